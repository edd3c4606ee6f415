"""Jobs whose node is down: reported, or queued again so that they continue from their images on other nodes.

pbs_server leaves a job in state R for as long as one of its nodes stays away. A job counts here when a node of it has been down
without a report for node_down_seconds, as seen by this program each time it runs, and when the image that it would continue from
is whole and sealed. A node that is down and reports has failed its health check; its jobs run. If the first node of a job answers, its
pbs_mom has to end the job, and only with the patch sister-crash does it let the job continue from its image afterwards. If it does not
answer, pbs_server takes the job from it, and only with the patch node-crash does every job with an image continue from that.
Without an answer of the server nothing is done, and nothing while more than node_down_share percent of the nodes are down: then it
is the network that failed, the jobs run, and the count begins anew.
"""
import json
import os
import time
from collections import namedtuple

from .. import config
from ..errors import HookError, SYSTEM, TEMPORARY
from ..store import catalog
from ..system import rootfiles
from ..torque.names import get_directory_name, is_job_id
from ..torque.server import Node, Server, get_first_node, get_owner, runs_on

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Container
    from .stores import Stores

STATE = "node_down.json"

GAP = 300
"""So many seconds after the end of a run nobody knows whether a node was down all the time; the count begins anew."""

END = 60
"""How long pbs_mom of the first node, if it answers, may take to end a job (seconds); it may be busy with the node that is missing."""

SISTER_CRASH = "sister-crash"
"""With this patch a job that pbs_mom ends because another node of it is gone continues from its image; without it starts anew."""

NODE_CRASH = "node-crash"
"""With this patch a job whose first node is gone continues from its image, and that node delivers no output of it later; without, one that
has only periodic images starts anew, and qrerun -f of the others never returns."""

NOTHING = "nothing was done"
DONE = "what is reported was done"
"""The consequence at the end."""

SOME = DONE + ", and one more job may have been queued again; the next run looks at the rest"
"""The consequence once pbs_server was asked to queue a job again."""


class Count(namedtuple("Count", "since seen rectime")):
    """What the state file holds of a node that is down.

    since    since when it has been down without a report (seconds since the epoch)
    seen     when that was last checked
    rectime  see server.Node
    """

    def has_ended(self, node: Node) -> bool:
        """Whether the node has reported since. Its rectime is only compared with an earlier one: pbs_server's clock may not be ours."""
        return node.rectime not in ("", self.rectime)


def _is_still_down(server: Server, name: str, count: Count) -> bool:
    """Whether a node is still down without a report."""
    node = server.list_nodes().get(name)
    return node is not None and "down" in node.states and not count.has_ended(node)


def _requeue_job(server: Server, job_id: str, node: str, patience: float) -> str:
    """Have pbs_server queue a job of a node that is down again; return why it did not, empty if it did.

    :param patience: how long to wait for its end (seconds)
    """
    server.consequence = SOME
    refusal = server.rerun_job(job_id)
    deadline = time.monotonic() + patience
    while runs_on(server.read_job(job_id), node):
        if time.monotonic() >= deadline:
            return refusal or "pbs_server has accepted qrerun -f, and the job is still there"
        time.sleep(1)
    return ""


def check_down_share(nodes: "dict[str, Node]", down: "Container[str]", share: int) -> None:
    """Check that no more nodes are down than the setting allows; one may always be, if it is not the last.

    Nodes that the administrator has set offline do not count.

    :param nodes: from Server.list_nodes
    :param down: names of those that are down
    :param share: percent
    :raises HookError: TEMPORARY
    """
    counted = [name for name, node in nodes.items() if "offline" not in node.states]
    missing = sum(name in down for name in counted)
    if missing and (missing == len(counted) or missing > max(1, len(counted) * share // 100)):
        raise HookError(TEMPORARY, "%d of %d nodes are down, more than node_down_share (%d percent) allows: check the network of the "
                        "nodes and of pbs_server; %s" % (missing, len(counted), share, NOTHING))


def _read_state(settings: dict) -> "tuple[dict[str, Count], list[str]]":
    """Return the Count of each node that was down, and the actions that were reported."""
    try:
        with open(os.path.join(settings["state_directory"], STATE)) as stream:
            state = json.load(stream)
        counts = {str(name): Count(float(since), float(seen), str(rectime)) for name, (since, seen, rectime) in state["nodes"].items()}
        return counts, list(map(str, state["reported"] if "reported" in state else state["told"]))  # as older hooks wrote it
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}, []  # then the count begins anew


def _write_state(settings: dict, nodes: "dict[str, Count]", reported: "list[str]", consequence: str) -> None:
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
        try:
            text = json.dumps({"nodes": nodes, "reported": sorted(reported)}, indent=1, sort_keys=True)
            rootfiles.replace_file(directory, STATE, text + "\n", 0o600)
        finally:
            os.close(directory)
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; see to that directory; %s"
                        % (os.path.join(settings["state_directory"], STATE), error.strerror, consequence))


def count_on(remembered: "Count | None", node: Node, now: float) -> Count:
    """Return the Count of a node that is down now.

    :param remembered: what the state file holds of the node, or None
    :param now: time in seconds since the epoch
    """
    if remembered is None or remembered.has_ended(node) or not remembered.since <= remembered.seen <= now <= remembered.seen + GAP:
        return Count(now, now, node.rectime)
    return Count(remembered.since, now, node.rectime)


def _find_images(stores: "Stores", jobs: "dict[str, dict[str, str]]") -> "dict[str, str]":
    """Return {job id: path of the image that it can continue from}, without the jobs that have none that is whole and sealed.

    That is the one that the server names, or the newest one where that is gone (see store.choice). A job of which the server knows no
    image would start anew, whatever there is. All jobs at once, because each search goes through the directories of all users.

    :param jobs: the attributes of each job
    """
    names = {job_id: job["checkpoint_name"] for job_id, job in jobs.items() if job.get("checkpoint_name")}
    if not names:
        return {}
    job_ids = {get_directory_name(job_id): job_id for job_id in names}
    images: "dict[str, list[dict]]" = {}
    for image, _entry in stores.list_images(lambda path: os.path.basename(path) in job_ids, job_ids):
        job_id = job_ids[os.path.basename(os.path.dirname(image["path"]))]
        if image["owner"] == get_owner(jobs[job_id]):
            images.setdefault(job_id, []).append(image)
    paths = {}
    for job_id, candidates in images.items():
        named = [image for image in candidates if image["image"] == names[job_id]]
        good = [image for image in named or candidates if image["state"] == catalog.WHOLE and image["authentic"]]
        if good:
            paths[job_id] = good[-1]["path"]
    return paths


def _update_counts(settings: dict, nodes: "dict[str, Node]", moment: float,
                   dry_run: bool) -> "tuple[dict[str, Count], set[str], list[str]]":
    """Bring the state file up to date; return the Count of each node in state down, which of these do not report, and which actions
    were reported.

    :param moment: when the nodes were listed (seconds since the epoch)
    :param dry_run: write no state
    :raises HookError: TEMPORARY when too many nodes are down
    """
    remembered, reported = _read_state(settings)
    counts = {name: count_on(remembered.get(name), node, moment) for name, node in nodes.items() if "down" in node.states}
    down = {name for name in counts if name not in remembered or not remembered[name].has_ended(nodes[name])}
    try:
        check_down_share(nodes, down, settings["node_down_share"])
    except HookError:  # that time says nothing of a node: when the network is back, some nodes report later than others
        counts = {name: count_on(None, nodes[name], moment) for name in counts}
        raise
    finally:
        if not dry_run:
            _write_state(settings, counts, reported, NOTHING)
    return counts, down, reported


def _collect_facts(stores: "Stores", server: Server, down: "dict[str, Node]", seconds: "dict[str, int]") -> "list[dict[str, Any]]":
    """Return a fact (job, node, seconds, image, first) for each job that runs on a node which is down.

    first is the job's first node. Of several nodes of a job the one that has been down for longest counts.

    :param down: these nodes
    :param seconds: for how long each has been down
    """
    facts: "dict[str, dict[str, Any]]" = {}
    ripe = {}
    for name in sorted(down, key=lambda name: (-seconds[name], name)):
        for job_id in sorted(down[name].jobs - set(facts)):
            job = server.read_job(job_id) if is_job_id(job_id) else {}
            if runs_on(job, name):
                facts[job_id] = {"job": job_id, "node": name, "seconds": seconds[name], "first": get_first_node(job)}
                if seconds[name] >= stores.settings["node_down_seconds"]:
                    ripe[job_id] = job
    images = _find_images(stores, ripe)
    return [dict(fact, image=images.get(fact["job"])) for fact in sorted(facts.values(), key=lambda fact: (fact["node"], fact["job"]))]


def handle_down_nodes(stores: "Stores", dry_run: bool, report: "Callable[[dict, bool], None]",
                      now: "Callable[[], float]" = time.time) -> None:
    """Report the jobs on nodes that are down, or have pbs_server queue them again, as the settings decide.

    :param dry_run: report what would be done, and write no state
    :param report: called with a fact (job, node, seconds, image, action) for each job, and with whether it is new; action is
        one of "queued again", "would be queued again", "reported", "waits until ...", "left alone: ..." and "not queued again: ...";
        image is None for a job that waits
    :raises HookError: NO_SERVER when the server does not answer; TEMPORARY when too many nodes are down: nothing was done then
    """
    settings = stores.settings
    server = Server(settings["torque_directory"], NOTHING)
    nodes, moment = server.list_nodes(), now()
    counts, down, reported = _update_counts(settings, nodes, moment, dry_run)
    seconds = {name: int(moment - count.since) for name, count in counts.items()}
    actions = []
    for fact in _collect_facts(stores, server, {name: nodes[name] for name in down}, seconds):
        answers = fact.pop("first") not in down
        fact["action"] = _handle_job(server, settings, fact, answers, dry_run, counts[fact["node"]])
        actions.append("%s %s %s" % (fact["node"], fact["job"], fact["action"].partition(" until ")[0]))
        report(fact, actions[-1] not in reported)
    if not dry_run:  # the run may have taken longer than GAP
        _write_state(settings, {name: count._replace(seen=now()) for name, count in counts.items()}, actions, DONE)


def _handle_job(server: Server, settings: dict, fact: dict, answers: bool, dry_run: bool, count: Count) -> str:
    """Queue a job again if that is to be done; return the action of its fact.

    :param answers: whether the first node of the job does
    """
    if fact["seconds"] < settings["node_down_seconds"]:
        ripe = count.since + settings["node_down_seconds"]
        return "waits until %s" % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ripe))
    if fact["image"] is None:
        return "left alone: the image that the server names is not whole here, or the server knows of none"
    if answers and not server.has_patch(SISTER_CRASH):
        return "left alone: the first node of the job answers, and without TORQUE's patch %s it would start anew" % SISTER_CRASH
    if not answers and not server.has_patch(NODE_CRASH):
        return ("left alone: without TORQUE's patch %s the job may start anew, and its first node, if it comes back, may replace its "
                "output; if that node stays away, run qrerun -f %s" % (NODE_CRASH, fact["job"]))
    if settings["node_down_action"] != config.RESTART:
        return "reported"
    if dry_run:
        return "would be queued again"
    if not _is_still_down(server, fact["node"], count):  # the jobs before may have taken an hour
        return "left alone: %s is not down any more" % fact["node"]
    if not runs_on(server.read_job(fact["job"]), fact["node"]):
        return "left alone: the job does not run on %s any more" % fact["node"]
    reason = _requeue_job(server, fact["job"], fact["node"], END if answers else 0)
    return "not queued again: " + reason if reason else "queued again"
