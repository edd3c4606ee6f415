"""validate on a site of many real nodes: one job visits all of them, so that each is once source and once target of a move."""
import json

from cluster import FIGURES, STORE


def test_ring_of_all_nodes(cluster, tmp_path):
    nodes = sorted(set(cluster.nodes) - {"head"}, key=lambda name: int(name[4:]))
    path = nodes + nodes[:1]
    done = cluster.playbook("validate", "-f", "10", validate_directory=str(tmp_path), validate_ring=len(nodes))
    assert done.code == 0, done.out
    report = json.loads((tmp_path / "results.json").read_text())
    assert [result for result in report["results"] if result["passed"] is not True] == []
    levels = ["L1", "L2"] + ["L3"] * cluster.torque
    states = {node["name"]: [node[level] for level in levels] for node in report["nodes"]}
    assert states == {name: ["passed"] * len(levels) for name in nodes}
    jobs = [result for result in report["results"] if result["level"] in levels[1:]]
    assert [job["nodes"] for job in jobs] == [path] * len(jobs) and len(jobs) == len(levels) - 1
    for job in jobs:
        moves = [phase for phase in job["phases"] if phase["step"] in ("release", "restart")]
        assert [phase["node"] for phase in moves] == path[1:]
        assert job["counters"] == sorted(set(job["counters"]))
        seconds = sum(phase["seconds"] for phase in moves) / len(moves)
        FIGURES.append("%s: %d moves of one job, %.1f s each" % (job["level"], len(moves), seconds))
    for node in cluster.nodes.values():
        assert node.run("pgrep -u alice").out == ""
    assert cluster.nodes["head"].ask("ls -d %s/*.CK %s/alice/* 2> /dev/null || true" % (STORE, STORE)) == ""
    page = (tmp_path / "report.html").read_text()
    assert [name for name in nodes if ">%s<" % name not in page] == []
