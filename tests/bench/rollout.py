"""`make bench-site`: what site.yml costs on nodes on which nothing is to be changed, beside roles of others on the same hosts.

  rollout.py                                the table of docs/reference/scale.md
  BENCH_HOSTS="1 4" BENCH_RUNS=2 rollout.py     with these numbers of hosts, and so many runs of each

Two roles of PyPI's packages that install and configure a daemon are set up on the hosts beside the collection's own. Then all
of them run in turn, with the same settings of Ansible.
"""
import collections
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests/scale"), str(TOP / "tests/integration/helpers")]

import measure  # noqa: E402
import tables  # noqa: E402
from run import COLLECTIONS, LOGS, environment  # noqa: E402
from scale import DOCUMENT, Failed, check_recap, numbers  # noqa: E402

CALLBACKS = pathlib.Path(__file__).resolve().parent / "callbacks"
DIRECTORY = LOGS / "bench-site"
GROUP = os.environ.get("CKPT_TORQUE_GROUP", "bench_site")
TARGET = "bench-site"
FORKS = 20
WANTED = 0.5
"""Of the leanest peer's time for a managed resource."""
PACKAGES = {
    "debops==3.3.2": ("debops/_data/ansible/collections/", ["debops/debops"]),
    "ansible==12.3.0": ("", ["community/zabbix", "community/general", "ansible/windows"]),
}
"""What pip takes: where its collections are, and which of them the peers need."""

Rollout = collections.namedtuple("Rollout", "name playbook settings")
"""name      str: that of its row
playbook  str or list: what ansible-playbook is given, or the plays themselves
settings  dict: of Ansible, as environment variables
"""


def build_peer(role, **variables):
    """Return the Rollout of somebody else's role.

    :param variables: what it lacks on a Debian host that reaches nothing but Debian's mirror
    """
    play = {"hosts": "torque_mom", "become": True, "gather_facts": True, "gather_subset": ["!all"], "roles": [role], "vars": variables,
            # How long the mirror takes is no cost of the role; the lists are fetched once before.
            "module_defaults": {"ansible.builtin.apt": {"cache_valid_time": 7 * 86400}}}
    return Rollout("`%s`" % role, [play], {"ANSIBLE_INJECT_FACT_VARS": "true"})


SITE = Rollout("`ckpt.torque.site`", "ckpt.torque.site", {})
UNPIPELINED = Rollout("`ckpt.torque.site`, no pipelining", "ckpt.torque.site", {"ANSIBLE_PIPELINING": "false"})
PEERS = [
    build_peer("debops.debops.nullmailer", nullmailer__smtp_srv_rr=[{"target": "head", "port": "25"}]),
    build_peer("community.zabbix.zabbix_agent", zabbix_manage_repo=False, zabbix_agent_version=7.0, zabbix_agent_version_check=False,
               zabbix_agent_install_agent_only=True, zabbix_agent_include_dirs=["/etc/zabbix/zabbix_agentd.conf.d"],
               zabbix_agent_logfile="/var/log/zabbix-agent/zabbix_agentd.log", zabbix_agent_pidfile="/run/zabbix/zabbix_agentd.pid",
               zabbix_agent_server="head"),
]
ROLLOUTS = [SITE, UNPIPELINED] + PEERS


def fetch(package):
    """Return a directory of collections (pathlib.Path), of a package that pip takes from PyPI once."""
    directory = DIRECTORY / "peers" / package
    if directory.is_dir():
        return directory
    print("==> taking %s" % package, flush=True)
    top, names = PACKAGES[package]
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as work:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, package],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        if done.returncode:
            raise Failed("pip cannot take %s, which has a role to compare with: %s" % (package, " ".join(done.stdout.split())[-300:]))
        wheel, = pathlib.Path(work).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            wanted = tuple("%sansible_collections/%s/" % (top, name) for name in names)
            archive.extractall(work, [name for name in archive.namelist() if name.startswith(wanted)])
        directory.parent.mkdir(exist_ok=True)
        shutil.move(os.path.join(work, top, "ansible_collections"), directory / "ansible_collections")
    return directory


def build_inventory(real, count):
    """Return the inventory (dict) of a site with the first so many compute nodes of the real one."""
    inventory = json.loads(json.dumps(real))["all"]
    nodes = inventory["children"]["torque_mom"]["hosts"]
    for name in list(nodes)[count:]:
        del nodes[name], inventory["hosts"][name]
    return {"all": inventory}


def play(rollout, inventory, label, paths, limit=("--limit", "torque_mom"), **settings):
    """Run a rollout; return its Cost and its log (pathlib.Path).

    :param inventory: what build_inventory returned
    :param label: what its files are called by
    :param paths: directories of collections
    :param settings: more environment variables
    """
    hosts, playbook, log = (DIRECTORY / (label + suffix) for suffix in (".json", ".yml", ".log"))
    hosts.write_text(json.dumps(inventory))
    playbook.write_text(json.dumps(rollout.playbook))
    variables = dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0",
                     ANSIBLE_COLLECTIONS_PATH=os.pathsep.join(map(str, paths)), **rollout.settings, **settings)
    cost = measure.run(["ansible-playbook", "-i", str(hosts), "--forks", str(FORKS), *limit,
                        rollout.playbook if isinstance(rollout.playbook, str) else str(playbook)], log, variables, TOP)
    if cost.status:
        raise Failed("%s ended with status %d; see %s" % (rollout.name, cost.status, log))
    return cost, log


def check_unchanged(inventory, log):
    check_recap(log.read_text(), list(inventory["all"]["children"]["torque_mom"]["hosts"]), False)


def count_resources(lines, names):
    """Return how many resources each host has compared (int).

    :param lines: what the callback has written (str): the same resource counts once
    :param names: the hosts, of which each must have compared the same
    """
    compared = collections.defaultdict(set)
    for host, kind, name in map(json.loads, lines.splitlines()):
        if kind == "unknown":
            raise Failed("whether %s compares something is not known; name it in %s" % (name, CALLBACKS / "resources.py"))
        compared[host].add((kind, name))
    counts = {len(compared[name]) for name in names}
    if len(counts) != 1 or 0 in counts:
        raise Failed("the hosts compare different numbers of resources: %s" % sorted(counts))
    return counts.pop()


def set_up(rollout, inventory, paths):
    """Have a rollout change what it wants to change; return how many resources of a host it compares when there is nothing to change."""
    label = "".join(letter for letter in rollout.name if letter.isalnum())
    play(rollout, inventory, label + "-first", paths, limit=())
    path = DIRECTORY / (label + "-resources")
    path.unlink(missing_ok=True)
    _cost, log = play(rollout, inventory, label + "-second", paths, BENCH_RESOURCES=str(path), ANSIBLE_CALLBACK_PLUGINS=str(CALLBACKS),
                      ANSIBLE_CALLBACKS_ENABLED="resources")
    check_unchanged(inventory, log)
    return count_resources(path.read_text(), list(inventory["all"]["children"]["torque_mom"]["hosts"]))


def time_rollouts(inventory, runs, paths):
    """Return the median of how long each of ROLLOUTS takes (list of float). They take turns, and each begins a round as often."""
    times = [[] for _rollout in ROLLOUTS]
    for turn in range(runs):
        for number in range(len(ROLLOUTS)):
            index = (turn + number) % len(ROLLOUTS)
            cost, log = play(ROLLOUTS[index], inventory, "timed-%d" % index, paths)
            check_unchanged(inventory, log)
            times[index].append(cost.seconds)
    return [statistics.median(seconds) for seconds in times]


def format_rows(sizes, times, resources):
    """Return the cells of the table (list of list of str), the head first.

    :param sizes: numbers of hosts
    :param times: name of a rollout: median (seconds) for each of the sizes
    :param resources: name of a rollout: how many managed resources of a host it compares
    """
    lines = {name: statistics.linear_regression(sizes, seconds) for name, seconds in times.items()}
    each = {name: line.slope / resources[name] for name, line in lines.items()}
    leanest = min(each[peer.name] for peer in PEERS)
    rows = [["rollout", "resources"] + ["%d host%s" % (size, "s" * (size > 1)) for size in sizes]
            + ["fixed", "per host", "per resource", "of the leanest other"]]
    for name, line in lines.items():
        rows.append([name, "%d" % resources[name]] + ["%.1f s" % seconds for seconds in times[name]]
                    + ["%.1f s" % line.intercept, "%.2f s" % line.slope, "%.0f ms" % (1000 * each[name]), "%.2f" % (each[name] / leanest)])
    return rows


def describe_run(runs, load):
    import ansible.release
    return "Medians of %d runs with %d forks, ansible-core %s; run on %s, %d CPUs, load %.1f." % (
        runs, FORKS, ansible.release.__version__, time.strftime("%Y-%m-%d", time.gmtime()), len(os.sched_getaffinity(0)), load)


def measure_all(real, sizes, runs):
    """Return times and resources, as format_rows takes them.

    :param real: the inventory of the hosts (dict)
    """
    paths = [COLLECTIONS] + [fetch(package) for package in PACKAGES]
    print("==> setting up %d hosts; output in .cache/test/bench-site" % sizes[-1], flush=True)
    everyone = build_inventory(real, sizes[-1])
    update = {"hosts": "torque_mom", "become": True, "gather_facts": False, "tasks": [{"ansible.builtin.apt": {"update_cache": True}}]}
    play(Rollout("apt-get update", [update], {}), everyone, "update", paths)
    resources = {rollout.name: set_up(rollout, everyone, paths) for rollout in [SITE] + PEERS}
    resources[UNPIPELINED.name] = resources[SITE.name]
    times = {rollout.name: [] for rollout in ROLLOUTS}
    for size in sizes:
        for rollout, seconds in zip(ROLLOUTS, time_rollouts(build_inventory(real, size), runs, paths)):
            times[rollout.name].append(seconds)
            print("%-35s %2d hosts %6.1f s" % (rollout.name, size, seconds), flush=True)
    return times, resources


def main():
    import cluster  # brings hosts up
    sizes, runs, load = sorted(set(numbers("BENCH_HOSTS", "1 4 16 32"))), int(os.environ.get("BENCH_RUNS") or 9), os.getloadavg()[0]
    if len(sizes) < 2:
        print("BENCH_HOSTS needs two numbers or more: the time for a host is that of a line through them", file=sys.stderr)
        return 2
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    os.environ["TORQUE_SOURCE"] = "none"
    os.environ.update(environment(), CKPT_TORQUE_NODES=str(sizes[-1]))
    try:
        times, resources = measure_all(json.loads(pathlib.Path(cluster.Cluster(GROUP).inventory).read_text()), sizes, runs)
    except Failed as failure:
        print("rollout.py: %s" % failure, file=sys.stderr)
        return 1
    head, *rows = format_rows(sizes, times, resources)
    lines = tables.format_head(head) + [tables.format_row(row) for row in rows] + ["", describe_run(runs, load)]
    print("\n".join(lines))
    DOCUMENT.write_text(tables.replace(DOCUMENT.read_text(), TARGET, lines))
    if not os.environ.get("CKPT_TORQUE_KEEP"):
        cluster.hosts("down", GROUP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
