"""One sentence for people (stderr: pbs_mom sets it as the job's comment), one line for the system log, and the counters."""
import os
import sys

from .. import phases
from ..errors import HookError, SYSTEM, is_temporary, quote_name
from ..torque import contract
from . import syslog


class Report:
    """What one call of a hook reports; a context manager that turns a failure of its body into a sentence and an exit code.

    code      int: the hook's exit code, 0 until the body has failed
    sentence  str: why it failed
    settings  dict from config.load_settings, or None: before the configuration is read nothing can be counted

    :param hook: the hook's name
    :param job_id: the job's id, or None when the arguments hold none
    """

    def __init__(self, hook: str, job_id: "str | None" = None) -> None:
        self.hook, self.job_id = hook, job_id
        self.code, self.sentence = 0, ""
        self.settings: "dict | None" = None

    def log_success(self, **facts: object) -> None:
        """Log and count the hook's success.

        :param facts: outcome, engine (str), bytes (int), seconds, frozen_seconds (float), and the other facts of the line
        """
        self._write(dict(facts, job=self.job_id))

    def log_failure(self, code: int, sentence: str, cause: str = "") -> None:
        """Log and count a failure, with the phase that failed, and its cause if that is not the one of its code."""
        facts = {name: value for name, value in (("phase", phases.failed()), ("cause", cause)) if value}
        self._write(dict(facts, job=self.job_id, outcome="failed", code=code, sentence=sentence))

    def _write(self, facts: dict) -> None:
        """Log one line with the facts, the node and the time of each phase; count it."""
        spent = phases.spent()
        line = dict(facts, node=os.uname().nodename, **{name + "_seconds": round(seconds, 3) for name, seconds in spent.items()})
        if "sentence" in line:
            line["sentence"] = repr(line["sentence"])
        syslog.log_event(self.hook, **line)
        if self.settings and self.hook != "run":  # that one is the user's
            try:
                from . import metrics  # only when the work is done: it delays no hook
                metrics.count_call(self.settings, self.hook, dict(facts, phases=spent))
            except Exception as error:  # newer hooks may have been installed while this one worked, with metrics that do not fit to it
                syslog.log_event("metrics", outcome="not counted", reason=error)

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, kind: object, error: "BaseException | None", trace: object) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        failure = error if isinstance(error, HookError) else build_unexpected(error)
        self.code, sentence, reported = failure.code, failure.sentence, failure.reported
        # What a job or a program chose may be in it; it becomes the job's comment, which root looks at in a terminal.
        self.sentence = "".join(char if char.isprintable() else quote_name(char) for char in " ".join(sentence.split()))
        sys.stderr.write(self.sentence + "\n")
        sys.stderr.flush()
        if not reported:
            self.log_failure(self.code, self.sentence, failure.cause)
        return True


def describe_image(manifest: dict) -> dict:
    """Return what a log line reports of an image, by its manifest, if anything: what it does not restore, how it is compressed."""
    facts = {name: manifest[name] for name in ("compression", "plain_bytes", "remarks") if manifest.get(name)}
    return dict(facts, lost=", ".join(manifest["lost"])) if manifest.get("lost") else facts


def format_verdict(code: int, sentence: str) -> str:
    """Return the job's comment for a restart that failed with this code, for this reason."""
    return "%s failure of the restart: %s" % ("Temporary" if is_temporary(code) else "Permanent", sentence)


def report_restart_failure(code: int, sentence: str) -> None:
    """Report the verdict to pbs_mom; without its patch nobody reads it."""
    path = os.environ.get(contract.STATUS)
    if path:
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
                stream.write(format_verdict(code, sentence) + "\n")
        except OSError as error:
            _log_unreported(path, error)


def report_restart_remarks(remarks: str) -> bool:
    """Report to pbs_mom what the comment of the restarted job is to say; return whether this pbs_mom has the patch that reads it."""
    path = os.environ.get(contract.COMMENT)
    if not path:
        return False
    from ..system import rootfiles  # few restarts have remarks
    try:
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            rootfiles.replace_file(directory, os.path.basename(path), remarks + "\n", 0o600)  # pbs_mom may read it at any time
        finally:
            os.close(directory)
    except OSError as error:
        _log_unreported(path, error)
    return True


def _log_unreported(path: str, error: OSError) -> None:
    syslog.log_event("restart", outcome="not reported", path=path, reason=error.strerror)


def withdraw_restart_failure() -> None:
    """Withdraw what report_restart_failure reported: from now on the hook's exit status is the job's."""
    path = os.environ.get(contract.STATUS)
    if path and os.path.lexists(path):
        os.unlink(path)


def build_unexpected(error: Exception) -> HookError:
    """Return the HookError for one that nobody foresaw: it says where it was raised."""
    return HookError(SYSTEM, "unexpected %s: %s (line %d of %s)" % ((type(error).__name__, error) + _locate(error)))


def _locate(error: Exception) -> "tuple[int, str]":
    """Return in which line of which file an error was raised."""
    line, file_name, trace = 0, "", error.__traceback__
    while trace is not None:
        line, file_name, trace = trace.tb_lineno, os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_next
    return line, file_name
