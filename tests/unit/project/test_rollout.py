"""make bench-site: what counts as a managed resource, and how the figures are computed."""
import json
import sys

import pytest
from paths import TOP

sys.path[:0] = [str(TOP / "tests/bench"), str(TOP / "tests/bench/callbacks")]

import resources  # noqa: E402
import rollout  # noqa: E402


@pytest.mark.parametrize("action, arguments, compared", [
    ("ansible.builtin.template", {"src": "a.j2", "dest": "/etc/a"}, [("path", "/etc/a")]),
    ("ansible.builtin.package", {"name": "a"}, [("package", "a")]),
    ("ansible.builtin.apt", {"name": ["a", "b"]}, [("package", "a"), ("package", "b")]),
    ("ansible.builtin.command", {"cmd": "true"}, []),
    ("ckpt.torque.engine_roundtrip", {"engine": "criu"}, []),
    ("ckpt.torque.installed_files", {"files": {"/etc/a": "text"}}, [("path", "/etc/a")]),
    ("ckpt.torque.installed_files", {"path": "/lib/a", "package": "p", "files": {"run": "text", "/etc/a": "text"}, "secrets": {"/k": "k"}},
     [("path", "/lib/a/run"), ("path", "/etc/a"), ("path", "/k"), ("package", "p")]),
    ("community.general.git_config", {"name": "a"}, [("unknown", "community.general.git_config")])])
def test_what_a_task_compares(action, arguments, compared):
    assert resources.list_resources(action, arguments) == compared


def write(*entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_resource_counts_once_on_each_host():
    lines = write(*(entry for host in "ab" for entry in ([host, "path", "/etc/a"], [host, "path", "/etc/a"], [host, "service", "/etc/a"])))
    assert rollout.count_resources(lines, ["a", "b"]) == 2


@pytest.mark.parametrize("entries", [[["a", "path", "/etc/a"]], [["a", "path", "/etc/a"], ["b", "path", "/etc/a"], ["b", "path", "/etc/b"]],
                                     [["a", "unknown", "x.y.z"], ["b", "unknown", "x.y.z"]], []])
def test_count_that_means_nothing_fails(entries):
    with pytest.raises(rollout.Failed):
        rollout.count_resources(write(*entries), ["a", "b"])


def test_site_of_the_first_nodes():
    nodes = {"node1": {}, "node2": {}, "node3": {}}
    real = {"all": {"hosts": dict(nodes, head={}), "children": {"torque_server": {"hosts": {"head": {}}}, "torque_mom": {"hosts": nodes}}}}
    site = rollout.build_inventory(real, 2)["all"]
    assert list(site["hosts"]) == ["node1", "node2", "head"]
    assert list(site["children"]["torque_mom"]["hosts"]) == ["node1", "node2"]
    assert len(real["all"]["hosts"]) == 4


def test_rows():
    """The line through the times, and the ratio to the least of the others."""
    names = [entry.name for entry in rollout.ROLLOUTS]
    times = dict(zip(names, ([3, 4], [3, 7], [12, 18], [11, 14])))
    head, *rows = rollout.format_rows([1, 2], times, dict(zip(names, (10, 10, 20, 4))))
    assert head[2:4] == ["1 host", "2 hosts"]
    assert [row[1:] for row in rows] == [
        ["10", "3.0 s", "4.0 s", "2.0 s", "1.00 s", "100 ms", "0.33"], ["10", "3.0 s", "7.0 s", "-1.0 s", "4.00 s", "400 ms", "1.33"],
        ["20", "12.0 s", "18.0 s", "6.0 s", "6.00 s", "300 ms", "1.00"], ["4", "11.0 s", "14.0 s", "8.0 s", "3.00 s", "750 ms", "2.50"]]


def test_rounds_begin_with_each_in_turn(monkeypatch):
    began = []

    def play(entry, *_arguments):
        began.append(entry.name)
        return rollout.measure.Cost(0, float(len(began)), 0, 0, 0), None
    monkeypatch.setattr(rollout, "play", play)
    monkeypatch.setattr(rollout, "check_unchanged", lambda *_arguments: None)
    medians = rollout.time_rollouts({}, 2, [])
    names = [entry.name for entry in rollout.ROLLOUTS]
    assert began == names + names[1:] + names[:1]
    assert medians == [(1 + 8) / 2, (2 + 5) / 2, (3 + 6) / 2, (4 + 7) / 2]


def test_peer_that_cannot_be_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(rollout, "DIRECTORY", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(rollout.Failed, match="^pip cannot take debops==3.3.2, which has a role to compare with: ERROR: "):
        rollout.fetch("debops==3.3.2")
    assert not (tmp_path / "peers").exists()
