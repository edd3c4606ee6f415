"""The system log: one line an event."""
import syslog


def log_event(hook: str, **facts: object) -> None:
    """Write one line "hook=... key=value ..." to the system log.

    :param hook: which hook, or which part of torque-ckpt, writes
    :param facts: what happened; each value as text, on one line and in ASCII
    """
    syslog.openlog("ckpt-torque", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(" ".join(["hook=" + hook] + ["%s=%s" % (key, ascii(str(value))[1:-1]) for key, value in sorted(facts.items())]))
