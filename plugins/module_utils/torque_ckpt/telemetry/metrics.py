"""Counters that outlive the hooks: for torque-ckpt status, and for Prometheus.

They are kept in a file of root's on the node. Where the configuration names a metrics_directory, each hook writes them
there, too, as ckpt_torque.prom, for the textfile collector of Prometheus' node_exporter. No label holds a job, a user or a path, so
that the number of series stays small. A hook never fails for its metrics: what cannot be counted is reported in the system log.
"""
import json
import os
import time

from .. import errors
from ..system import rootfiles
from . import syslog

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable

FILE = "ckpt_torque.prom"
STATE = "metrics.json"

PATIENCE = 2
"""How long a hook waits for another one that counts (seconds)."""

KEPT = 20
"""How many failures are remembered with their sentences."""

COUNTER, GAUGE = "counter", "gauge"

METRICS = {
    "ckpt_torque_checkpoints_total": (COUNTER, ("engine", "outcome"), "Checkpoints by outcome: held, continued or failed."),
    "ckpt_torque_restarts_total": (COUNTER, ("engine", "outcome"), "Restarts by outcome: restarted or failed."),
    "ckpt_torque_failures_total": (COUNTER, ("hook", "cause"), "Failures by cause."),
    "ckpt_torque_written_bytes_total": (COUNTER, ("engine",), "Bytes of the images written."),
    "ckpt_torque_restored_bytes_total": (COUNTER, ("engine",), "Bytes of the images restored."),
    "ckpt_torque_checkpoint_seconds_total": (COUNTER, ("engine",), "Time spent in checkpoints that wrote an image."),
    "ckpt_torque_restart_seconds_total": (COUNTER, ("engine",), "Time spent in restarts until the job ran."),
    "ckpt_torque_frozen_seconds_total": (COUNTER, ("engine",), "Time for which the engine held jobs."),
    "ckpt_torque_frozen_seconds_last": (GAUGE, ("engine",), "Time for which the engine held the job of the last checkpoint."),
    "ckpt_torque_phase_seconds_total": (COUNTER, ("hook", "phase"), "Time spent in each phase of the hooks."),
    "ckpt_torque_pruned_total": (COUNTER, ("kind",), "What torque-ckpt prune removed: leftover, image or orphan."),
    "ckpt_torque_pruned_bytes_total": (COUNTER, ("kind",), "Bytes that torque-ckpt prune removed."),
    "ckpt_torque_last_success_timestamp_seconds": (GAUGE, ("hook",), "When the hook last did what it was asked to."),
    "ckpt_torque_last_failure_timestamp_seconds": (GAUGE, ("hook",), "When the hook last failed."),
}
"""Name: kind, labels, help."""


class Counters:
    """What has been counted: series by metric and labels, and the last failures.

    :param dumped: what dump() returned earlier
    """

    def __init__(self, dumped: "dict | None" = None) -> None:
        self.series: "dict[tuple[str, tuple[str, ...]], float]" = {}
        self.failures: "list[dict]" = []
        if isinstance(dumped, dict):
            for name, labels, value in dumped.get("series", []):
                if name in METRICS and len(labels) == len(METRICS[name][1]):
                    self.series[name, tuple(map(str, labels))] = float(value)
            self.failures = [entry for entry in dumped.get("failures", []) if isinstance(entry, dict)][-KEPT:]

    def dump(self) -> dict:
        """Return everything in a form that JSON can hold."""
        return {"series": [[name, list(labels), value] for (name, labels), value in sorted(self.series.items())],
                "failures": self.failures[-KEPT:]}

    def add(self, name: str, labels: "Iterable[str]", amount: float = 1) -> None:
        """Add to a counter, or set a gauge."""
        key = name, tuple(map(str, labels))
        self.series[key] = amount if METRICS[name][0] == GAUGE else self.series.get(key, 0) + amount

    def format_text(self) -> str:
        """Return the counters in Prometheus' text format."""
        lines = []
        for name, (kind, names, about) in METRICS.items():
            series = sorted((labels, value) for (metric, labels), value in self.series.items() if metric == name)
            if series:
                lines += ["# HELP %s %s" % (name, about), "# TYPE %s %s" % (name, kind)]
            for labels, value in series:
                pairs = ",".join('%s="%s"' % pair for pair in zip(names, map(_escape, labels)))
                lines.append("%s{%s} %s" % (name, pairs, repr(round(value, 6)) if value % 1 else "%d" % value))
        return "".join(line + "\n" for line in lines)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def read_counters(settings: dict) -> Counters:
    """Return the Counters of this node, empty when there are none yet or they cannot be read."""
    try:
        with open(os.path.join(settings["state_directory"], STATE)) as stream:
            return Counters(json.load(stream))
    except (OSError, ValueError, TypeError):
        return Counters()


def update_counters(settings: dict, change: "Callable[[Counters], None]") -> bool:
    """Let change(counters) count something, as root, and keep it; returns whether that was done. Never raises."""
    if os.geteuid() != 0:
        return False
    opened: "list[int]" = []
    try:
        opened.append(rootfiles.open_directory(settings["state_directory"]))
        lock = rootfiles.lock_file(opened[0], STATE + ".lock", PATIENCE)
        if lock is None:
            raise OSError(0, "another hook counts for more than %d seconds" % PATIENCE)
        opened.append(lock)
        counters = read_counters(settings)
        change(counters)
        rootfiles.replace_file(opened[0], STATE, json.dumps(counters.dump(), separators=(",", ":")) + "\n", 0o600)
        if settings["metrics_directory"]:
            opened.append(rootfiles.open_directory(settings["metrics_directory"]))
            rootfiles.replace_file(opened[-1], FILE, counters.format_text(), 0o644)
        return True
    except (OSError, ValueError, TypeError, KeyError) as error:
        syslog.log_event("metrics", outcome="not counted", reason=getattr(error, "strerror", None) or error)
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)


def count_call(settings: dict, hook: str, facts: dict) -> bool:
    """Count one call of the checkpoint or restart hook; returns whether that was done.

    :param settings: from config.load_settings
    :param hook: "checkpoint" or "restart"
    :param facts: outcome (str), bytes, seconds, frozen_seconds, phases (dict of float), and of a failure job, code, sentence
        and, if it is not the one of the code, cause
    """
    outcome, engine = facts["outcome"], settings["engine"]

    def change(counters: Counters) -> None:
        now = int(time.time())
        counters.add("ckpt_torque_%ss_total" % hook, (engine, outcome))
        for phase, seconds in facts.get("phases", {}).items():
            counters.add("ckpt_torque_phase_seconds_total", (hook, phase), seconds)
        if outcome == "failed":
            counters.add("ckpt_torque_failures_total", (hook, facts.get("cause") or errors.CAUSES.get(facts["code"], "other")))
            counters.add("ckpt_torque_last_failure_timestamp_seconds", (hook,), now)
            counters.failures.append({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), "hook": hook, "job": facts.get("job"),
                                      "code": facts["code"], "sentence": facts["sentence"]})
            return
        counters.add("ckpt_torque_last_success_timestamp_seconds", (hook,), now)
        if "bytes" in facts:
            counters.add("ckpt_torque_%s_bytes_total" % {"checkpoint": "written", "restart": "restored"}[hook], (engine,), facts["bytes"])
        if "seconds" in facts:
            counters.add("ckpt_torque_%s_seconds_total" % hook, (engine,), facts["seconds"])
        if "frozen_seconds" in facts:
            counters.add("ckpt_torque_frozen_seconds_total", (engine,), facts["frozen_seconds"])
            counters.add("ckpt_torque_frozen_seconds_last", (engine,), facts["frozen_seconds"])
    return update_counters(settings, change)
