"""Programs of the site that run before and after a checkpoint, and at a restart: to return licences and to fetch them again, say.

They run as the job's owner, outside the job. What they leave running is ended with them.
"""
import os
import signal

from ..errors import HookError, TEMPORARY, quote_text
from ..system import command, environment, privilege, processes
from ..torque import names

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

PRE, POST, RESTART = "pre_program", "post_program", "restart_program"
"""Settings, each the path of a program, or empty."""

_MARGIN = 30
"""How much longer than the program the part of the hook that started it may take (seconds)."""


def _describe_end(status: int, output: str) -> str:
    """Return how a program ended, with the last line that it wrote."""
    how = "ended with status %d" % status if status > 0 else "was ended by signal %d" % -status
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "%s (%s)" % (how, quote_text(lines[-1])) if lines else how


class SitePrograms:
    """The site's programs for one job.

    :param settings: from config.load_settings
    :param user: the job's owner
    """

    def __init__(self, settings: "dict[str, Any]", user: privilege.User, job_id: str) -> None:
        self._paths = {setting: settings[setting] for setting in (PRE, POST, RESTART)}
        self._seconds, self._user, self._job_id = settings["program_seconds"], user, job_id

    def has(self, setting: str) -> bool:
        """Whether the site has this program."""
        return bool(self._paths[setting])

    def get_patience(self, setting: str) -> int:
        """Return how long a program may take at most (seconds)."""
        return self._seconds if self.has(setting) else 0

    def run(self, setting: str, event: str, name: str, consequence: str) -> None:
        """As root: run a program, which the site has.

        :param setting: which one
        :param event: why, its CKPT_EVENT
        :param name: the image's
        :param consequence: what becomes of the job if it fails, a part of the sentence
        :raises HookError: TEMPORARY when it fails or is too slow
        """
        privilege.load_modules()
        privilege.as_user(self._user, lambda: self.run_as_owner(setting, event, name, consequence), deadline=self._seconds + _MARGIN)

    def run_as_owner(self, setting: str, event: str, name: str, consequence: str) -> None:
        """As the job's owner, in a child that does nothing else: run a program; see run()."""
        path, user = self._paths[setting], self._user
        variables = dict(environment.ENVIRONMENT, HOME=user.home, USER=user.name, LOGNAME=user.name, CKPT_EVENT=event, CKPT_NAME=name)
        variables[names.JOB_ID] = self._job_id

        def confine() -> None:
            privilege.drop_capabilities()
            os.chdir("/")
            os.environ.clear()
            os.environ.update(variables)
        privilege.become_subreaper()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        advice = "try again, or ask the administrator about checkpoint_hooks_" + setting
        try:
            # Without a session of its own torque-ckpt check would take it for the job's root process, by PBS_JOBID.
            status, output = command.run([path], self._seconds, inherited=[], streams=(null, null), confine=confine, session=True)
        except HookError as error:
            raise HookError(TEMPORARY, "%s; %s; %s" % (error.reason, consequence, advice))
        finally:
            processes.signal_processes(processes.list_family(processes.read_self())[1:], signal.SIGKILL)
            os.close(null)
        if status != 0:
            raise HookError(TEMPORARY, "%s %s; %s; %s" % (path, _describe_end(status, output), consequence, advice))
