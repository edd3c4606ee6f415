"""One sentence for people (stderr: pbs_mom makes it the job's comment), one line for the system log."""
import os
import sys
import syslog

from .errors import HookError, SYSTEM


def log(hook, **facts):
    """Write one line "hook=... key=value ..." to the system log."""
    syslog.openlog("ckpt-torque", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(" ".join(["hook=" + hook] + ["%s=%s" % (key, ascii(str(value))[1:-1]) for key, value in sorted(facts.items())]))


def guard(hook, work, job=None):
    """Run work() and return the hook's exit code (int); say a failure in one sentence.

    :param hook: the hook's name (str)
    :param job: the job id, if the arguments hold one (str)
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
    return code


def _where(error):
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_lineno, os.path.basename(place.tb_frame.f_code.co_filename)
