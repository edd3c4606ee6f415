"""One sentence for people (stderr: pbs_mom makes it the job's comment), one line for the system log."""
import os
import sys
import syslog

from .errors import HookError, CONFIG, SYSTEM, TEMPORARY

STATUS = "PBS_RESTART_STATUS"
"""Variable of the restart hook: the file in which a pbs_mom with the patch restart-status looks, when the hook has ended,
for what became of the restart. "Temporary ..." queues the job again, any other line holds it; it becomes the job's comment."""


def log(hook, **facts):
    """Write one line "hook=... key=value ..." to the system log."""
    syslog.openlog("ckpt-torque", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(" ".join(["hook=" + hook] + ["%s=%s" % (key, ascii(str(value))[1:-1]) for key, value in sorted(facts.items())]))


def is_temporary(code):
    """Whether another node or another hour may mend a failure with this code (int)."""
    return code in (TEMPORARY, CONFIG)


def verdict(code, sentence):
    """Return the job's comment (str) for a restart that failed with this code (int), for this reason (str)."""
    return "%s failure of the restart: %s" % ("Temporary" if is_temporary(code) else "Permanent", sentence)


def restart_failed(code, sentence):
    """Tell pbs_mom the verdict; without its patch nobody looks."""
    path = os.environ.get(STATUS)
    if path:
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
                stream.write(verdict(code, sentence) + "\n")
        except OSError as error:
            log("restart", outcome="not told", path=path, reason=error.strerror)


def restart_succeeded():
    """Take back what restart_failed said: from now on the hook's exit status is the job's."""
    path = os.environ.get(STATUS)
    if path and os.path.lexists(path):
        os.unlink(path)


def guard(hook, work, job=None, tell=None):
    """Run work() and return the hook's exit code (int); say a failure in one sentence.

    :param hook: the hook's name (str)
    :param job: the job id, if the arguments hold one (str)
    :param tell: called with code and sentence of a failure
    """
    try:
        return work() or 0
    except HookError as error:
        code, sentence = error.code, error.sentence
    except Exception as error:  # pylint: disable=broad-except
        code, sentence = SYSTEM, "unexpected %s: %s (line %d of %s)" % ((type(error).__name__, error) + _where(error))
    sentence = " ".join(sentence.split())
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
    log(hook, job=job, outcome="failed", code=code, sentence=repr(sentence))
    if tell:
        tell(code, sentence)
    return code


def _where(error):
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_lineno, os.path.basename(place.tb_frame.f_code.co_filename)
