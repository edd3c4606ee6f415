"""$checkpoint_run_exe: start the job's shell as a child, so that the session leader stays outside the image.

Called by pbs_mom as the job's user, already a session leader, with the job's
environment and files.
"""
import os

from .. import config
from ..engines import registry
from ..errors import HookError, USAGE
from ..job import identity, supervisor
from ..job.records import Records
from ..system import environment, privilege
from ..telemetry import syslog
from ..telemetry.report import Report
from ..torque import contract, names


def _start_job(command: "list[str]") -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)  # "kill 0" in a job script must not reach the leader
        # Daemons that the job starts become the shell's children, not the leader's: they stay in the image.
        privilege.become_subreaper()
        privilege.reset_signals()
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, ("run: cannot start %s: %s\n" % (command[0], error.strerror)).encode())
    finally:
        os._exit(127 if not os.path.exists(command[0]) else 126)


def _wrap_command(command: "list[str]", settings: dict) -> "list[str]":
    """Return the command as the engine wants it; unchanged if the engine is missing: a checkpoint will report that."""
    try:
        return registry.load_engine(settings).build_command(command)
    except HookError as error:
        syslog.log_event("run", job=os.environ.get(names.JOB_ID, ""), outcome="not under the engine", sentence=repr(error.sentence))
        return command


def _set_variables(settings: dict) -> None:
    """Set what engine and site want in the environment of a job on one node, unless the job has set it itself.

    A job on several nodes sends its messages through the network, and has no checkpoint.
    """
    slots = identity.read_slots(os.environ.get(names.NODE_FILE, ""))
    if len(set(slots)) > 1:
        return
    entry = registry.find_entry(settings["engine"])
    wanted = dict(entry.variables if entry else (), **settings["environment"])
    variables = {name: value for name, value in wanted.items() if value is not None and name not in os.environ}
    os.environ.update(variables)
    if variables and len(slots) > 1 and settings["environment_reported"]:
        _report_variables(variables)


def _report_variables(variables: "dict[str, str]") -> None:
    """Print them where the user of a parallel job sees it, on standard error."""
    line = "run: set so that this job can be checkpointed: %s (a job script may set others)\n" % " ".join(
        "%s=%s" % variable for variable in variables.items())
    try:
        os.write(2, os.fsencode(line))
    except OSError:
        pass  # a full disk must not keep the job from its start


def main(argv: "list[str]", config_path: str) -> int:
    """Start argv[1:] and end as it ends; return the exit code when it cannot be started.

    :param argv: as pbs_mom passes it
    :param config_path: the hooks' configuration
    """
    job_id = os.environ.get(names.JOB_ID)
    with Report("run", job_id) as report:
        command = contract.parse_run(argv[1:])
        environment.check_code(config_path)
        settings = config.load_settings(config_path)
        if os.getsid(0) != os.getpid():
            raise HookError(USAGE, "run: must be started by pbs_mom as the leader of a session; the job was not started")
        environment.close_descriptors()  # in an image they would be fatal
        supervisor.block_signals()
        _set_variables(settings)
        job = _start_job(_wrap_command(command, settings))
        environment.disable_core_dumps()  # the job has its own limit by now
        supervisor.end_as(supervisor.supervise_job(job, Records(settings["run_directory"], job_id or "")))
    return report.code
