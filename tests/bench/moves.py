"""What a move costs beside TORQUE itself: prints medians of one job's moves.

stdin is JSON: {"job_id" and "phases": what job_roundtrip returned, "logs": {node: the lines that the hooks wrote to the system log there}}
"""
import json
import re
import statistics
import sys

STEPS = [  # step, which of its times, the hook's line in the log, whole way
    ("hold", "seconds", "hook=checkpoint .*outcome=held", "qhold to H"),
    ("release", "running_seconds", "hook=restart .*outcome=restarted", "qrls to the first line written on the other node"),
]


def rows(phases, logs, step, key, line):
    """Return [whole time, hook's, engine's or None] (milliseconds) for each time the step was done."""
    hooks = {node: iter([1000 * float(re.search(r" seconds=(\S+)", entry).group(1)) for entry in lines if re.search(line, entry)])
             for node, lines in logs.items()}
    return [[1000 * phase[key], next(hooks[phase["node"]]), 1000 * phase["engine_seconds"] if "engine_seconds" in phase else None]
            for phase in phases if phase["step"] == step]


def main():
    given = json.load(sys.stdin)
    logs = {node: [entry for entry in lines if " job=%s " % given["job_id"] in entry] for node, lines in given["logs"].items()}
    for step, key, line, title in STEPS:
        times = rows(given["phases"], logs, step, key, line)
        print("%s (median of %d)" % (title, len(times)))
        print("  whole               %7.1f ms" % statistics.median(whole for whole, hook, engine in times))
        print("  TORQUE itself       %7.1f ms" % statistics.median(whole - hook for whole, hook, engine in times))
        print("  hook                %7.1f ms   wanted: at most 1000" % statistics.median(hook for whole, hook, engine in times))
        engines = [engine for whole, hook, engine in times if engine is not None]
        if engines:
            print("    of it the engine  %7.1f ms" % statistics.median(engines))


if __name__ == "__main__":
    main()
