"""What must hold on this node before the checkpoint or restart hook touches anything; and the job that a call is about."""
from .. import config
from ..engines import registry
from ..image import seal
from ..job.records import Records
from ..job.site_programs import SitePrograms
from ..store import location
from ..system import environment, private_dir, privilege

MYPY = False  # true for the type checker alone
if MYPY:
    from ..telemetry.report import Report
    from ..torque.contract import Call


class Job:
    """The job that one call of the checkpoint or restart hook is about.

    call      contract.Call: what pbs_mom asks for
    settings  dict from config.load_settings
    user      privilege.User: the job's owner
    store     dict: the entry in the settings of the store where the job's images are
    engine    engines.base.Engine
    keys      seal.Keys
    records   records.Records: root's records of the job on this node
    programs  site_programs.SitePrograms
    report    report.Report: of this call
    hook      str: the hook's path; the programs that belong to it are beside it
    """

    def __init__(self, call: "Call", settings: dict, hook: str, report: "Report") -> None:
        """:raises HookError: CONFIG, NO_USER or REFUSED"""
        self.call, self.settings, self.hook, self.report = call, settings, hook, report
        self.user = privilege.find_user(call.user, call.group)
        self.store = location.find_store(settings["stores"], call.directory)
        location.check_mounted(self.store)
        environment.check_programs(settings, config.PROGRAMS)
        self.programs = SitePrograms(settings, self.user, call.job_id)
        self.engine = registry.load_engine(settings)
        self.keys = seal.Keys(settings["key_path"])
        self.records = Records(settings["run_directory"], call.job_id)

    def create_private_directory(self, consequence: str) -> private_dir.PrivateDirectory:
        """Return a private directory for the job's owner.

        :param consequence: what becomes of the job if there can be none, the end of the sentence
        """
        return private_dir.PrivateDirectory(self.settings["private_directory"] or self.settings["state_directory"], self.user, consequence)


def prepare_job(call: "Call", config_path: str, hook: str, report: "Report") -> Job:
    """Return the Job of a call.

    :param config_path: the hooks' configuration
    :param hook: the hook's path
    :param report: counts from now on
    :raises HookError: CONFIG, NO_USER or REFUSED
    """
    environment.check_code(config_path)
    report.settings = config.load_settings(config_path)
    return Job(call, report.settings, hook, report)
