"""Results of validations as the modules return them, for the page's tests."""

KERNEL = "6.12.9-amd64"


def engine_trip(node, cause="", seconds=0.04, version="4.2.1"):
    facts = {} if cause else {"counter_before": 15, "counter_after": 20, "exit_status": 7, "image_bytes": 9726959}
    return dict(facts, level="L1", nodes=[node], passed=not cause, cause=cause, engine={"name": "criu", "version": version},
                phases=[{"step": "start", "seconds": 0.03}, {"step": "dump", "seconds": seconds}]
                + [{"step": "restore", "seconds": seconds * 1.3}] * (not cause))


def looked(names, **faults):
    """Level L0: a result for each node, with what is wrong with some of them (str by name)."""
    return [{"level": "L0", "nodes": [name], "passed": name not in faults,
             "cause": "%s: %s" % (name, faults[name]) if name in faults else ""} for name in names]


def trip(level, nodes, cause="", **facts):
    steps, queued = ("run", "restart") if level == "L2" else ("submit", "release"), {} if level == "L2" else {"running_seconds": 0.23}
    phases = [{"step": steps[0], "node": nodes[0], "seconds": 0.35, "counter": 10},
              {"step": "continue", "node": nodes[0], "seconds": 0.47, "counter": 33, "engine_seconds": 0.054}]
    for before, node in zip(nodes, nodes[1:]):
        phases += [{"step": "hold", "node": before, "seconds": 0.25, "counter": 80, "engine_seconds": 0.033},
                   dict(queued, step=steps[1], node=node, seconds=0.57, counter=95)]
    if level == "L3":
        facts["torque"] = "6.1.3"
    return dict(facts, level=level, nodes=nodes, passed=not cause, cause=cause, counters=[22, 80, 125],
                engine={"name": "criu", "version": "4.2.1"}, image_bytes=10408692, compression="zstd", exit_status=7, phases=phases)


def describe_nodes(names, classes=1):
    return [{"name": name, "class": 1 + number % classes, "store": "/shared/ckpt default", "kernel": KERNEL}
            for number, name in enumerate(names)]


def all_good():
    names = ["node%d" % number for number in range(1, 6)]
    path = ["node1", "node2", "node1", "node2"]
    results = looked(names) + [engine_trip(name, seconds=0.03 + 0.004 * number) for number, name in enumerate(names)]
    return results + [trip("L2", path), trip("L3", path, case="continue")], describe_nodes(names)


def failures():
    names = ["node%d" % number for number in range(1, 13)]
    path = ["node1", "node2", "node1", "node2"]
    hostile = "criu restore failed: <script>document.title = 'owned'</script>&\x1b[31m; correct \"engine_options\" & try again"
    lost = "the host could not be reached or the module failed; see the output of ansible-playbook"
    libc = ("/usr/lib/x86_64-linux-gnu/libc.so.6 is of 2003400 bytes with build id 0123456789ab, on node1 and 9 others it is of 2003408 "
            "bytes with build id 58749c528985; install the same packages on both, or no job restarts that has mapped it")
    results = looked(names, node9=libc, node11=libc)
    results += [engine_trip(name, {"node3": hostile, "node7": lost}.get(name, "")) for name in names]
    unknown = "node6: restart: user alice is not known on this node; compare the account database with the other nodes"
    results += [trip("L2", path), trip("L2", ["node5", "node6"], unknown),
                {"level": "L3", "nodes": [], "passed": None, "cause": "level L2 failed; fix that first"}]
    return results, describe_nodes(names, 2)


def nothing():
    cause = "check mode: no process is started"
    return [{"level": level, "nodes": ["node1"] * (level == "L1"), "passed": None, "cause": cause, "phases": []}
            for level in ("L1", "L3")], describe_nodes(["node1"])


def many(total=500):
    names = ["node%03d" % number for number in range(1, total + 1)]
    lost = "the host could not be reached or the module failed; see the output of ansible-playbook"
    results = looked(names) + [engine_trip(name, lost if number % 31 == 30 else "", 0.02 + number % 37 / 1000)
                               for number, name in enumerate(names)]
    for first in (names[:2], names[2:4]):
        results += [trip("L2", first * 2), trip("L3", first * 2, case="continue")]
    nodes = describe_nodes(names)
    return results, [dict(node, **{"class": 1 if number < 2 or number % 2 else 2}) for number, node in enumerate(nodes)]


SAMPLES = {"good": all_good, "failures": failures, "nothing": nothing, "many": many}

IMAGES = [{"store": "/shared/ckpt default", "images": 40, "bytes": 96 << 30, "everywhere": 37, "somewhere": 2, "nowhere": 1, "problems": [],
           "faults": [{"job": "4711.head", "owner": "alice", "image": "ckpt.4711.head.1764080000",
                       "why": "the image needs a CPU with avx512f, which this node does not have"}]}]
"""What the stores of some samples hold."""


PLAN = {"node%02d" % number: {"reached": number < 60, "restarts": number % 4 == 1, "warnings": [
    "cannot after the next boot with kernel 3.10.0-957, which has no modules of BLCR"] * (number % 20 == 2), "why": [
        "the hooks differ from the collection's (<script>document.title = 'owned'</script>)"] * (number % 2)
    + ["criu is not at /opt/criu/current/sbin/criu on this node; run the role criu"] * (number % 10 == 1)} for number in range(1, 60)}
PLAN["node60"] = {"reached": False, "why": ["Failed to connect to the host via ssh: No route to host"], "restarts": False, "warnings": []}
"""What the filter plan_nodes may return."""
