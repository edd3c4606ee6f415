"""`make storm`: hundreds of moves, each asked for by several at a time. No job is lost, started twice or ends otherwise; no daemon dies."""
import os

import storms


def test_storm(cluster, torque):
    moves = int(os.environ.get("STORM") or 500)
    count = storms.storm(cluster, moves, 6, 60 + 12 * moves)
    assert count["moves"] >= moves
    assert count["longest qrun (ms)"] < 60000  # one that waits for pbs_mom in vain takes five minutes
