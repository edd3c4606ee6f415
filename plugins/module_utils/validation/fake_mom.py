# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""pbs_mom's part in the life of a job, played to the letter.

The calls, identities, directories, environments, descriptors and modes are
those of TORQUE 6.1.3 on Linux (docs/reference/contract.md). Needs root.
"""

import os
import signal
import time

from ..torque_ckpt.job import identity
from ..torque_ckpt.selftest.roundtrip import get_exit_status, start_process
from ..torque_ckpt.system import processes
from ..torque_ckpt.system.command import wait_for_child
from ..torque_ckpt.system.textfile import read_text
from ..torque_ckpt.system.waiting import wait_until

MYPY = False  # true for the type checker alone
if MYPY:
    from ..torque_ckpt.system.privilege import User
    from ..torque_ckpt.system.processes import Process

LEAKED = (10, 15, 17)
"""Descriptors that pbs_mom leaks into the run hook."""

HOOK_ENVIRONMENT = {"PATH": "/bin:/usr/bin"}
"""All that the two root hooks get."""


class MomError(Exception):
    """A step did not do what pbs_mom relies on; the text says which, why and what was seen."""


def reap(leader: "int | None") -> None:
    """Collect children that have ended, but not the leader (pid), whose status is wanted: as zombies they keep their ids."""
    for pid in processes.list_children(os.getpid()):
        if pid != leader:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


class Job:
    """A job under this pbs_mom.

    :param home: the MOM's home on this node; holds mom_priv/jobs
    :param hooks: directory of the hooks run, checkpoint and restart
    :param group: the job's group name
    :param directory: where images of this job go, <dir>/<job_id>.CK
    :param session_id: of the job's *first* start; pbs_mom passes it for ever
    """

    def __init__(self, home: str, hooks: str, user: "User", group: str, job_id: str, directory: str,
                 session_id: "int | None" = None) -> None:
        self.home = home
        self.hooks = hooks
        self.user = user
        self.group = group
        self.job_id = job_id
        self.directory = directory
        self.session_id = session_id
        self.leader: "int | None" = None
        self.status: "int | None" = None
        self.private = os.path.join(home, "mom_priv")
        self.script = os.path.join(self.private, "jobs", job_id + ".SC")
        self.complaint = os.path.join(self.private, "jobs", job_id + ".stderr")

    def place_script(self, text: str) -> None:
        """Put the job script where pbs_mom keeps it, as the user's."""
        os.makedirs(os.path.dirname(self.script), mode=0o755, exist_ok=True)
        with open(self.script, "w") as stream:
            stream.write(text)
        os.chown(self.script, self.user.uid, self.user.gid)
        os.chmod(self.script, 0o700)

    def run(self, output: str, error: str) -> None:
        """Start the job with the run hook, its stdout and stderr in the named files."""
        reader, writer = os.pipe()
        os.write(writer, (self.script + "\n").encode())
        os.close(writer)
        environment = {
            "HOME": self.user.home, "USER": self.user.name, "LOGNAME": self.user.name, "SHELL": "/bin/bash",
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", "PBS_JOBID": self.job_id, "PBS_JOBNAME": "ckpt-validate",
            "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_LOGNAME": self.user.name, "PBS_QUEUE": "batch", "PBS_NODENUM": "0",
            "PBS_TASKNUM": "1", "PBS_VERSION": "TORQUE-6.1.3",
        }
        home = self.user.home if os.path.isdir(self.user.home) else "/"
        self.leader = start_process(os.path.join(self.hooks, "run"), ["/bin/bash"], environment, home,
                                    [reader, output, error], self.user, 0o077, LEAKED)
        self.session_id = self.leader
        os.close(reader)

    def checkpoint(self, name: str, number: int, timeout: int) -> str:
        """Call the checkpoint hook as pbs_mom does, through popen(3): one shell line. Returns its stderr.

        :param name: the image's name
        :param number: 0 to continue, 15 to hold
        :raises MomError: when it exits non-zero
        """
        try:
            os.mkdir(self.directory, 0o755)
            os.chown(self.directory, self.user.uid, self.user.gid, follow_symlinks=False)  # stock pbs_mom follows
        except OSError:  # pbs_mom continues in any case; if root is squashed, the hook creates the directory
            pass
        line = " ".join([os.path.join(self.hooks, "checkpoint"), str(self.session_id), self.job_id, self.user.name, self.group,
                         self.directory, name, str(number), "-"]) + "  2>&1 1>/dev/null"
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        pid = start_process("/bin/sh", ["-c", line], HOOK_ENVIRONMENT, self.private, [null, writer, null])
        os.close(writer)
        os.close(null)
        status, output = wait_for_child(pid, reader, timeout)
        complaint = output.decode("utf-8", "replace").strip()[:4096]  # pbs_mom's buffer
        if status is None:
            raise MomError("checkpoint hook did not end within %d seconds and was killed" % timeout)
        if get_exit_status(status) != 0:
            raise MomError("checkpoint hook exited %d: %s" % (get_exit_status(status), complaint or "it printed nothing on stderr"))
        return complaint

    def restart(self, name: str) -> None:
        """Start the restart hook as pbs_mom does; it is the job from now on.

        :raises MomError: when there is nothing at the image's path
        """
        image = os.path.join(self.directory, name)
        try:
            os.stat(image)
        except OSError as error:
            raise MomError("pbs_mom finds no image %s: %s" % (image, error.strerror))
        try:
            os.chown(image, self.user.uid, self.user.gid, follow_symlinks=False)  # stock pbs_mom follows
        except PermissionError:  # root is squashed; pbs_mom continues
            pass
        null = os.open(os.devnull, os.O_RDWR)
        # pbs_mom gives it /dev/null; the file is for the validation's eyes only.
        complaint = os.open(self.complaint, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        self.status = None
        self.leader = start_process(os.path.join(self.hooks, "restart"),
                                    [str(self.session_id), self.job_id, self.user.name, self.group, self.directory, name],
                                    HOOK_ENVIRONMENT, self.private, [null, null, complaint])
        os.close(null)
        os.close(complaint)

    def copy(self, source: str, target: str, timeout: int) -> None:
        """Call the program of $rcpcmd, as the user, as pbs_mom does for an image; it tries three times, this once.

        :raises MomError: when it exits non-zero
        """
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        environment = dict(HOOK_ENVIRONMENT, HOME=self.user.home, PBS_JOBID=self.job_id)
        pid = start_process(os.path.join(self.hooks, "copy"), ["-rpB", source, target], environment, "/", [null, null, writer], self.user)
        os.close(writer)
        os.close(null)
        status, output = wait_for_child(pid, reader, timeout)
        if status is None or get_exit_status(status) != 0:
            words = output.decode("utf-8", "replace").strip() or "it printed nothing"
            raise MomError("the copy from %s to %s failed: %s" % (source, target, words))

    def ended(self) -> bool:
        """Return whether the job's leader has ended; its wait status is in .status then."""
        if self.status is None and self.leader is not None:
            pid, status = os.waitpid(self.leader, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is not None

    def wait(self, timeout: int) -> int:
        """Wait for the job's end; return its Exit_status."""
        if not wait_until(self.ended, timeout) or self.status is None:
            raise MomError("the job did not end within %d seconds" % timeout)
        return get_exit_status(self.status)

    def last_words(self) -> str:
        """Return what the restart hook wrote on stderr."""
        return read_text(self.complaint).strip()

    def processes(self) -> "list[Process]":
        """Return the processes of the job on this node: its session and its PBS_JOBID."""
        members = []
        reap(self.leader)
        for entry in os.listdir("/proc"):
            process = processes.read_process(int(entry)) if entry.isdigit() else None
            if process is None or process.state in "ZX" and (process.pid == self.leader or process.ppid != os.getpid()):
                continue  # ended() collects the leader; other zombies of ours still hold their ids
            if process.session == self.leader or process.uid == self.user.uid and identity.read_job_id(process.pid) == self.job_id:
                members.append(process)
        return members

    def kill(self) -> None:
        """End whatever is left of the job on this node."""
        for _attempt in range(20):
            left = self.processes()
            if not left:
                break
            for process in left:
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.ended()
            time.sleep(0.05)
        self.ended()

    def forget(self) -> None:
        """Remove what this MOM keeps of the job."""
        for path in (self.script, self.complaint):
            try:
                os.unlink(path)
            except OSError:
                pass
        for path in (os.path.dirname(self.script), self.private, self.home):
            try:
                os.rmdir(path)
            except OSError:
                break  # another job's, or not ours
