"""Play what TORQUE's commands really said (data/qmgr/README.md)."""

import os
import re
from collections import namedtuple

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "qmgr")
VERSIONS = ("2.5.13", "4.2.10", "6.1.3")

# What the recorded calls set.
SERVER = {"scheduling": True, "default_queue": "batch", "managers": ["root@head", "alice@head"], "tcp_timeout": "300",
          "comment": "it, is # nice; and long: one, two, three, four, five, six, seven, eight, nine, ten, twelve",
          "acl_hosts": ["node1", "node2", "head"], "log_events": 511}
QUEUES = {"batch": {"queue_type": "execution", "enabled": True, "started": "yes", "resources_max.mem": "1gb",
                    "resources_default": {"walltime": 3600, "nodes": "1:ppn=1"}, "acl_hosts": ["node1", "head"],
                    "checkpoint_defaults": "enabled"},
          "fast": {"queue_type": "e", "Priority": 7, "started": True, "enabled": True},
          "rt": {"queue_type": "route", "route_destinations": ["fast", "batch"]}}
NODES = {"node1": {"np": 2, "properties": ["fast", "big"]}, "node2": {"np": 3, "properties": "slow"}}

Call = namedtuple("Call", "command text status output error")


def calls(version):
    """Return the recorded calls of a TORQUE version, {name: Call}."""
    with open(os.path.join(DATA, version + ".txt"), encoding="utf-8") as stream:
        parts = re.split(r"^== (\S+)\n", stream.read(), flags=re.MULTILINE)[1:]
    recorded = {}
    for name, part in zip(parts[::2], parts[1::2]):
        head, output, error = re.fullmatch(r"(.*?)--- stdout\n(.*?)--- stderr\n(.*)", part, re.DOTALL).groups()
        command = re.match(r"\$ (.*)\n", head).group(1)
        text = "".join(line + "\n" for line in re.findall(r"^< (.*)$", head, re.MULTILINE))
        recorded[name] = Call(command, text, int(re.search(r"^status (\d+)$", head, re.MULTILINE).group(1)), output, error)
    return recorded


class Player:
    """Runs as module_utils.torque.commands.run does, and says what was recorded. Whatever else is asked for fails the test.

    asked  the commands that were asked for (list of str)
    """

    def __init__(self, version, *names):
        recorded = calls(version)
        self.left = [recorded[name] for name in names]
        self.asked = []

    def __call__(self, command, text="", timeout=60):
        command_line = " ".join("'%s'" % word if " " in word else word for word in [os.path.basename(command[0])] + command[1:])
        self.asked.append(command_line)
        assert self.left, "nobody expected %s with %r" % (command_line, text)
        call = self.left.pop(0)
        assert (command_line, text) == (call.command, call.text)
        return call.status, call.output, call.error


SCRIPT = """\
#!/bin/sh
cd '%s'
n=$(($(ls args.* 2>/dev/null | wc -l) + 1))
echo "$(basename "$0") $*" > args.$n
[ "${0##*/}" = qmgr ] && cat > text.$n
[ -e status.$n ] || { echo nobody expected this call >&2; exit 99; }
cat output.$n
cat error.$n >&2
exit "$(cat status.$n)"
"""


class Program:
    """A program that says what was recorded, for modules that run as processes.

    :param directory: where it keeps what it says and hears (pathlib.Path)
    :param name: "qmgr" or "pbsnodes"
    """

    def __init__(self, directory, name, version, *names):
        self.directory = directory
        self.calls = [calls(version)[each] for each in names]
        for number, call in enumerate(self.calls, 1):
            for part in ("status", "output", "error"):
                (directory / ("%s.%d" % (part, number))).write_text(str(getattr(call, part)))
        self.path = directory / name
        self.path.write_text(SCRIPT % directory)
        self.path.chmod(0o755)

    def check(self):
        """Fail unless it was called as recorded: every call, in order, with its stdin."""
        heard = sorted(self.directory.glob("args.*"), key=lambda path: int(path.suffix[1:]))
        assert [path.read_text().strip() for path in heard] == [call.command.replace("'", "") for call in self.calls]
        texts = [self.directory / ("text.%d" % number) for number in range(1, len(self.calls) + 1)]
        assert [path.read_text() if path.exists() else "" for path in texts] == [call.text for call in self.calls]
