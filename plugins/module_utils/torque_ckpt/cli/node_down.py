"""Jobs whose node is down: reported, or queued again so that they continue from their images on other nodes.

pbs_server leaves a job in state R for as long as its node stays away. A job counts here when its first node, the one that
holds its image's processes, has been down for node_down_seconds, as seen by this program each time it runs, and when the image
that the server names is whole and sealed. Without an answer of the server nothing is done, and nothing while more than
node_down_share percent of the nodes are down: then it is the network that failed, and the jobs run.
"""
import json
import os
import re
import time
from xml.etree import ElementTree

from .. import config
from ..errors import HookError, SYSTEM, TEMPORARY
from ..store import catalog
from ..system import rootfiles
from ..torque.names import get_directory_name, is_job_id
from ..torque.commands import Commands

STATE = "node_down.json"

GAP = 300
"""After so many seconds without a look nobody knows whether a node was down all the time; the count begins anew."""

NOTHING = "nothing was done"


class Server(Commands):
    """pbs_server: its nodes and jobs.

    :param commands: directory of TORQUE's commands (str)
    """

    def __init__(self, commands):
        super().__init__(commands, NOTHING)

    def nodes(self):
        """Return {name: (states (set of str), ids of the jobs on it (set of str))}.

        :raises HookError: NO_SERVER when it does not answer
        """
        status, said, error = self.run("pbsnodes", "-x")
        try:
            if status != 0:
                raise ValueError(error)
            return {node.findtext("name"): (set((node.findtext("state") or "").split(",")), _jobs(node.findtext("jobs") or ""))
                    for node in ElementTree.fromstring(said).iter("Node")}
        except (ValueError, ElementTree.ParseError) as problem:
            raise self.silent("pbsnodes -x", status, str(problem))

    def job(self, job_id):
        """Return the attributes (dict) of a job (str), empty when the server does not know it.

        What its owner put into one cannot pass for an earlier one: the first of a name counts.
        """
        status, said, error = self.run("qstat", "-f", job_id)
        if status != 0:
            if "Unknown Job Id" in error:
                return {}
            raise self.silent("qstat -f " + job_id, status, error)
        found = {}
        for name, value in re.findall(r"^    (\S+) = (.*)$", said.replace("\n\t", ""), re.MULTILINE):
            found.setdefault(name, value)
        return found

    def queue_again(self, job_id, node):
        """Have a job of a node that is down queued again; return why it was not (str), empty when it was."""
        try:
            status, _said, error = self.run("qrerun", "-f", job_id)
            why = "qrerun -f exited %d: %s" % (status, " ".join(error.split()) or "it said nothing")
        except HookError as failure:  # a stock pbs_server queues a job with an image again and does not answer
            status, why = 1, failure.sentence
        if is_on(self.job(job_id), node):
            return "pbs_server has accepted qrerun -f, and the job is still there" if status == 0 else why
        return ""


def _jobs(text):
    """Return the job ids (set of str) in what pbsnodes says of a node, such as "0/12.head, 1/13[2].head"."""
    return {part.strip().rpartition("/")[2] for part in text.split(",") if part.strip()}


def is_on(job, node):
    """Whether a job (its attributes, dict) runs with this node (str) as its first."""
    return job.get("job_state") == "R" and re.split(r"[/+]", job.get("exec_host", ""))[0] == node


def check_share(nodes, share):
    """Prove that no more nodes are down than the setting allows; one may always be, if it is not the last.

    Nodes that the administrator has set offline do not count.

    :param nodes: from Server.nodes
    :param share: percent (int)
    :raises HookError: TEMPORARY
    """
    counted = [states for states, _jobs in nodes.values() if "offline" not in states]
    down = sum("down" in states for states in counted)
    if down and (down == len(counted) or down > max(1, len(counted) * share // 100)):
        raise HookError(TEMPORARY, "%d of %d nodes are down, more than node_down_share (%d percent) allows: look at the network, and at "
                        "pbs_server's; %s" % (down, len(counted), share, NOTHING))


def _recall(settings):
    try:
        with open(os.path.join(settings["state_directory"], STATE)) as stream:
            found = json.load(stream)
        return {str(name): (float(since), float(seen)) for name, (since, seen) in found["nodes"].items()}, list(map(str, found["told"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}, []  # then the count begins anew


def _remember(settings, nodes, told):
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
        try:
            text = json.dumps({"nodes": nodes, "told": sorted(told)}, indent=1, sort_keys=True)
            rootfiles.replace_file(directory, STATE, text + "\n", 0o600)
        finally:
            os.close(directory)
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; %s" % (STATE, error.strerror, NOTHING))


def since(before, now):
    """Return since when a node that is down now has been so, and now: what is remembered of it.

    :param before: what was remembered of it (tuple of float) or None
    """
    if before is None or not before[0] <= before[1] <= now <= before[1] + GAP:
        return now, now
    return before[0], now


def _image(stores, job_id, job):
    """Return the path (str) of the image that the server names for a job, None where there is none that is whole and sealed."""
    name, owner = job.get("checkpoint_name"), job.get("Job_Owner", "").partition("@")[0]
    directory = get_directory_name(job_id)
    for image, _entry in stores.images(lambda path: os.path.basename(path) == directory, [directory], {name}):
        if image["state"] == catalog.WHOLE and image["authentic"] and image["owner"] == owner:
            return image["path"]
    return None


def look(stores, dry_run, say, now=time.time):
    """Report the jobs on nodes that are down, or have them queued again, as the settings say.

    :param stores: main.Stores
    :param dry_run: say what would be done, and remember nothing (bool)
    :param say: called with a fact (dict: job, node, seconds, image, action) for each job, and with whether it is new (bool); action is
        one of "queued again", "would be queued again", "reported", "waits until ...", "left alone: ..." and "not queued again: ..."
    :raises HookError: NO_SERVER when the server does not answer, TEMPORARY when too many nodes are down; nothing was done then
    """
    settings = stores.settings
    server = Server(settings["torque_directory"])
    nodes, moment = server.nodes(), now()
    before, told = _recall(settings)
    down = {name: since(before.get(name), moment) for name, (states, _jobs) in nodes.items() if "down" in states}
    if not dry_run:
        _remember(settings, down, told)
    check_share(nodes, settings["node_down_share"])
    found = []
    for name, (first, _seen) in sorted(down.items()):
        for job_id in sorted(nodes[name][1]):
            job = server.job(job_id) if is_job_id(job_id) else {}
            if is_on(job, name):
                fact = {"job": job_id, "node": name, "seconds": int(moment - first), "image": _image(stores, job_id, job)}
                fact["action"] = _act(server, settings, fact, dry_run, first)
                found.append("%s %s %s" % (name, job_id, fact["action"].partition(" until ")[0]))
                say(fact, found[-1] not in told)
    if not dry_run:
        _remember(settings, down, found)


def _act(server, settings, fact, dry_run, first):
    """Do what is to be done for a job; return the action (str) of its fact."""
    if fact["image"] is None:
        return "left alone: the image that the server names is not whole here, or there is none"
    if fact["seconds"] < settings["node_down_seconds"]:
        ripe = first + settings["node_down_seconds"]
        return "waits until %s" % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ripe))
    if settings["node_down_action"] != config.RESTART:
        return "reported"
    if dry_run:
        return "would be queued again"
    why = server.queue_again(fact["job"], fact["node"])
    return "not queued again: " + why if why else "queued again"
