# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the job of a round trip of level L3 runs. The output of each program is that of workload.PROGRAM, so all are judged alike."""

from ..torque_ckpt.selftest import workload
from . import evidence


class Program:
    """What a job runs.

    :param name: of its source in the job's directory
    :param source: the text
    :param command: shell command that runs it, as evidence.build_script takes it
    :param routes: whose words the second and the third word of its lines are, as workload.Evidence takes them
    """

    def __init__(self, name: str, source: str, command: str, routes: "tuple[str, str]" = workload.ROUTES) -> None:
        self.name, self.source, self.command, self.routes = name, source, command, routes


COUNTER = Program("program.py", workload.PROGRAM, evidence.COMMAND)
"""The program of all levels, whose processes are in the image."""

# It ends with another status than the job when it was asked for its file, and its secret is in the file only. It notes each of its starts.
_RESTARTABLE = '''\
import os, signal, sys, time
stop_file, tick, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
request, asked = "request.%d" % os.getpid(), []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
counter, secret = 0, os.urandom(8).hex()
if os.path.exists("state"):
    with open("state") as stream:
        first, secret = stream.read().split()
    counter = int(first)
with open("starts", "a") as stream:
    stream.write("%d\\n" % counter)
while not os.path.exists(stop_file):
    if asked or os.path.exists(request):
        with open("state.new", "w") as stream:
            stream.write("%d %s\\n" % (counter, secret))
        os.rename("state.new", "state")
        if os.path.exists(request):
            os.unlink(request)  # the next one may have the same process id
        os._exit(3)
    counter += 1
    os.write(1, ("%d %d %d %s\\n" % (counter, counter, counter, secret)).encode())
    time.sleep(tick)
os.write(1, ("end %d\\n" % counter).encode())
os._exit(status)
'''

_NESTED = "cd {work} && {ckpt_run} %s --file state -- python3 program.py stop {tick} {status}"

NESTED_SIGNAL = Program("program.py", _RESTARTABLE, _NESTED % "--signal TERM")
NESTED_COMMAND = Program("program.py", _RESTARTABLE, _NESTED % "--checkpoint 'touch request.$CKPT_RUN_PID'")
