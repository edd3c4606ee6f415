"""`make zdtm`: CRIU's own test programs as jobs, held on one node and continued on another, beside the same under criu alone.

ZDTM="pthread00 file_lease02" tries these only; the table in docs/reference/zdtm.md is written when all were tried.
"""
import os
import time

import zdtm


def test_programs(cluster):
    names = os.environ.get("ZDTM", "").split()
    programs = zdtm.Programs(cluster, names)
    try:
        trials = programs.try_all(lambda trial: print("%-28s %-18s %-18s %s" % (
            trial.name, trial.bare.outcome, trial.hooks.outcome, trial.hooks.text or trial.bare.text), flush=True))
    finally:
        programs.remove()
    assert names or len(trials) > 200, "%d programs were compiled" % len(trials)
    if not names:
        zdtm.write_document(trials, time.strftime("%Y-%m-%d"))
    assert not zdtm.find_faults(trials)
