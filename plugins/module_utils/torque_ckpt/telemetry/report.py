"""One sentence for people (stderr: pbs_mom makes it the job's comment), one line for the system log, and the counters."""
import os
import sys

from .. import phases
from ..errors import HookError, SYSTEM, is_temporary, plain
from ..torque import contract
from . import syslog


_settings = {}


def count_with(settings):
    """Count what this hook does from now on as the configuration (dict) says; before it is read nothing can be counted."""
    _settings.update(settings)


def _tell(hook, facts):
    """Log one line with the facts, the node and the time of each phase; count it."""
    spent = phases.spent()
    shown = dict(facts, node=os.uname().nodename, **{name + "_seconds": round(seconds, 3) for name, seconds in spent.items()})
    if "sentence" in shown:
        shown["sentence"] = repr(shown["sentence"])
    syslog.log_event(hook, **shown)
    if _settings and hook != "run":  # that one is the user's
        from . import metrics  # not on the way to a hook's work
        metrics.count(_settings, hook, dict(facts, phases=spent))


def done(hook, **facts):
    """Log and count that a hook did what it was asked to.

    :param facts: outcome, engine (str), job (str), bytes (int), seconds, frozen_seconds (float), and what else the line is to say
    """
    _tell(hook, facts)


def about(found):
    """Return what a line says of an image (its manifest, dict) where there is something: what it does not bring back, how it is packed."""
    said = {name: found[name] for name in ("compression", "plain_bytes", "remarks") if found.get(name)}
    return dict(said, lost=", ".join(found["lost"])) if found.get("lost") else said


def failed(hook, job, code, sentence):
    """Log and count a failure of a hook, with the phase that failed."""
    phase = {"phase": phases.failed()} if phases.failed() else {}
    _tell(hook, dict(phase, job=job, outcome="failed", code=code, sentence=sentence))


def verdict(code, sentence):
    """Return the job's comment (str) for a restart that failed with this code (int), for this reason (str)."""
    return "%s failure of the restart: %s" % ("Temporary" if is_temporary(code) else "Permanent", sentence)


def restart_failed(code, sentence):
    """Tell pbs_mom the verdict; without its patch nobody looks."""
    path = os.environ.get(contract.STATUS)
    if path:
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as stream:
                stream.write(verdict(code, sentence) + "\n")
        except OSError as error:
            syslog.log_event("restart", outcome="not told", path=path, reason=error.strerror)


def restart_succeeded():
    """Take back what restart_failed said: from now on the hook's exit status is the job's."""
    path = os.environ.get(contract.STATUS)
    if path and os.path.lexists(path):
        os.unlink(path)


def guard(hook, work, job=None, tell=None):
    """Run work() and return the hook's exit code (int); say a failure in one sentence.

    :param hook: the hook's name (str)
    :param job: the job id, if the arguments hold one (str)
    :param tell: called with code and sentence of a failure
    """
    told = False
    try:
        return work() or 0
    except HookError as error:
        code, sentence, told = error.code, error.sentence, error.told
    except Exception as error:  # pylint: disable=broad-except
        code, sentence = SYSTEM, "unexpected %s: %s (line %d of %s)" % ((type(error).__name__, error) + _where(error))
    # What a job or a program chose may be in it; it becomes the job's comment, which root looks at in a terminal.
    sentence = "".join(char if char.isprintable() else plain(char) for char in " ".join(sentence.split()))
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
    if not told:
        failed(hook, job, code, sentence)
    if tell:
        tell(code, sentence)
    return code


def _where(error):
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_lineno, os.path.basename(place.tb_frame.f_code.co_filename)
