"""`make scale`: what validate.yml and site.yml cost the controller of a site with hundreds of nodes.

  scale.py                                                  all rows of docs/reference/scale.md
  SCALE="50 100" SCALE_SITE="" scale.py                     these numbers of nodes, for validate.yml and for site.yml
  SCALE_FORKS="5 20" SCALE="500" SCALE_SITE="" scale.py     each with so many forks

Three real hosts are set up; then each playbook runs there once, and the program `ssh` of this directory keeps what the hosts answer. With
these answers it stands in for ssh when the playbook runs on the simulated nodes: all but the hosts and the network is real.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests/integration/helpers")]

import measure  # noqa: E402
import tables  # noqa: E402
from run import LOGS, environment  # noqa: E402

STUB = pathlib.Path(__file__).resolve().parent / "ssh"
DOCUMENT = TOP / "docs/reference/scale.md"
DIRECTORY = LOGS / "scale"
GROUP = os.environ.get("CKPT_TORQUE_GROUP", "scale")
PLAYBOOKS = {"validate": ["-e", json.dumps({"validate_level": "L0"})], "site": ["--limit", "torque_mom"]}
NEXT = b"\n@@ next part @@\n"
"""What parts of an answer are separated by (ssh)."""
HEADS = ["nodes", "forks", "time", "CPU time", "main process", "all processes", "`report.html`", "run on", "CPUs", "load"]


class Failed(Exception):
    """A run did not do what a real one does, in a sentence."""


def numbers(name, default):
    return [int(word) for word in os.environ.get(name, default).split()]


def build_inventory(real, count):
    """Return the inventory of a site with so many compute nodes, or with those that are real.

    :param real: the inventory of the test hosts (dict)
    :param count: None for the real ones
    """
    inventory = json.loads(json.dumps(real))
    hosts, moms = inventory["all"]["hosts"], inventory["all"]["children"]["torque_mom"]["hosts"]
    if count is not None:
        for name in moms:
            del hosts[name]
        moms.clear()
        moms.update({"node%04d" % number: {} for number in range(1, count + 1)})
        hosts.update({name: {} for name in moms})
        for entry in hosts.values():
            entry.update(ansible_host="192.0.2.1", ansible_port=22)  # nobody's: what is not answered here is answered nowhere
    for name, entry in hosts.items():
        entry.update(ansible_ssh_executable=str(STUB), ansible_ssh_extra_args="-o HostKeyAlias=" + name)
    return inventory


def count_calls(tape):
    """Return how many requests each host has answered, and forget them."""
    path = tape / "calls"
    calls = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return {name: calls.count(name) for name in set(calls)}


def check_recap(output, names, reported):
    """Fail unless the recap has each of the nodes, none with a change or a failure.

    :param reported: whether the first of them is said to have written the report
    """
    recaps = dict(re.findall(r"^(\S+) +: (ok=.*?) *$", output, re.MULTILINE))
    for name in names:
        changed = 1 if reported and name == names[0] else 0
        if not re.search(r"changed=%d +unreachable=0 +failed=0" % changed, recaps.get(name, "")):
            raise Failed("%s: %s" % (name, recaps.get(name, "not in the recap")))


def check_report(directory, names):
    """Fail unless the report has one result of level L0 for each of the nodes, which has passed."""
    results = json.loads((directory / "results.json").read_text())["results"]
    passed = [result["nodes"] for result in results if result["level"] == "L0" and result["passed"]]
    if sorted(passed) != sorted([name] for name in names) or any(result["passed"] is False for result in results):
        raise Failed("the report has %d nodes that passed" % len(passed))


def play(name, inventory, tape, forks, record=False):
    """Run a playbook; return its Cost and how many requests each host answered.

    :param name: of PLAYBOOKS
    :param inventory: what build_inventory returned
    """
    moms = list(inventory["all"]["children"]["torque_mom"]["hosts"])
    label = "%s-%s" % (name, "record" if record else "%d-%d" % (len(moms), forks))
    path = DIRECTORY / (label + ".json")
    path.write_text(json.dumps(inventory))
    variables = dict(environment(), ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0",
                     SCALE_TAPE=str(tape), **{"SCALE_RECORD": shutil.which("ssh")} if record else {})
    report = DIRECTORY / (label + "-report")
    shutil.rmtree(report, ignore_errors=True)
    command = ["ansible-playbook", "-i", str(path), "--forks", str(forks), "-e", json.dumps({"validate_directory": str(report)}),
               "ckpt.torque." + name] + PLAYBOOKS[name]
    log = DIRECTORY / (label + ".log")
    cost = measure.run(command, log, variables, TOP)
    if (tape / "unknown").exists():
        raise Failed("the real hosts were never asked: %s" % (tape / "unknown").read_text()[:300])
    if cost.status:
        raise Failed("%s.yml ended with status %d; see %s" % (name, cost.status, log))
    check_recap(log.read_text(), moms, name == "validate")
    if name == "validate":
        check_report(report, moms)
    return cost, count_calls(tape), report


def record(name, real):
    """Have the real hosts answer; return the tape (a directory) and how many requests a node got."""
    tape = DIRECTORY / (name + "-tape")
    shutil.rmtree(tape, ignore_errors=True)
    tape.mkdir()
    _cost, calls, _report = play(name, build_inventory(real, None), tape, 20, record=True)
    return tape, calls


def describe_tape(tape, calls):
    """Return how long the real hosts took, and what ssh cost (str)."""
    answers = [[float(part) for part in path.read_bytes().split(NEXT)[1:3]] for path in tape.glob("*.answer")]
    seconds, cpu = (sum(values) / len(answers) for values in zip(*answers))
    return "%s; %d different requests; %.2f s each, of which ssh took %.3f s of CPU" % (
        ", ".join("%s answered %d" % pair for pair in sorted(calls.items())), len(answers), seconds, cpu)


def try_size(name, real, tape, calls, count, forks):
    """Run a playbook on so many simulated nodes; return the cells of its row."""
    load = os.getloadavg()[0]
    inventory = build_inventory(real, count)
    cost, answered, report = play(name, inventory, tape, forks)
    first, *others = inventory["all"]["children"]["torque_mom"]["hosts"]
    expected = dict(dict.fromkeys(others, calls["node2"]), **{first: calls["node1"]})
    wrong = sorted(name for name in expected if answered.get(name, 0) != expected[name])
    if wrong:
        raise Failed("%s answered %d requests, the real node %d" % (wrong[0], answered.get(wrong[0], 0), expected[wrong[0]]))
    page = report / "report.html"
    return ["%d" % count, "%d" % forks, "%.0f s" % cost.seconds, "%.0f s" % cost.cpu, "%.0f MiB" % (cost.main / 2**20),
            "%.0f MiB" % (cost.tree / 2**20), "%.0f KiB" % (page.stat().st_size / 2**10) if page.exists() else "-",
            time.strftime("%Y-%m-%d", time.gmtime()), "%d" % len(os.sched_getaffinity(0)), "%.1f" % load]


def target(name):
    return "scale: " + name


def parse(text, name):
    """Return the lines (str) of a table of the document by number of nodes and of forks."""
    return {tuple(int(cell) for cell in line.split("|")[1:3]): line for line in tables.read(text, target(name)) if tables.ROW.match(line)}


def merge(text, name, row):
    """Return the document (str) with a row (list of str) put in or replaced."""
    known = parse(text, name)
    known[int(row[0]), int(row[1])] = tables.format_row(row)
    return tables.replace(text, target(name), tables.format_head(HEADS) + [known[size] for size in sorted(known)])


def main():
    import cluster  # brings hosts up
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    inventory = cluster.Cluster(GROUP).inventory
    real = json.loads(pathlib.Path(inventory).read_text())
    sizes = {"validate": numbers("SCALE", "50 100 200 500"), "site": numbers("SCALE_SITE", "100 300 1000")}
    print("==> site.yml on the real hosts; output in .cache/test/scale", flush=True)
    cost = measure.run(["ansible-playbook", "-i", inventory, "ckpt.torque.site"], DIRECTORY / "setup.log", environment(), TOP)
    if cost.status:
        print("site.yml ended with status %d; see %s" % (cost.status, DIRECTORY / "setup.log"))
        return 1
    try:
        for name, counts in sizes.items():
            if counts:
                tape, calls = record(name, real)
                print("==> %s.yml: %s" % (name, describe_tape(tape, calls)), flush=True)
            for count in counts:
                for forks in numbers("SCALE_FORKS", "20"):
                    row = try_size(name, real, tape, calls, count, forks)
                    print("%-9s %s" % (name, " | ".join(row)), flush=True)
                    DOCUMENT.write_text(merge(DOCUMENT.read_text(), name, row))
    except Failed as failure:
        print("scale.py: %s" % failure, file=sys.stderr)
        return 1
    if not os.environ.get("CKPT_TORQUE_KEEP"):
        cluster.hosts("down", GROUP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
