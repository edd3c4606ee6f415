"""pbs_server: its nodes and jobs, as TORQUE's commands print them."""
import json
import os
import re
from collections import OrderedDict, namedtuple

from ..errors import HookError
from .commands import Commands
from .names import get_job_number, get_name_on_disk

UNKNOWN = "Unknown Job Id"
"""What qstat prints on stderr of a job that the server does not know."""


MANIFEST = "ckpt-torque.json"
"""What an artifact of TORQUE was built from."""


class Node(namedtuple("Node", "states jobs rectime")):
    """A node as pbs_server shows it.

    states   set of str, such as {"down", "job-exclusive"}
    jobs     ids of the jobs on it (set of str)
    rectime  str: when pbs_server received its last report, by pbs_server's clock; empty when there was none since pbs_server started
    """


def parse_attributes(text: str) -> "dict[str, str]":
    """Return the attributes that "qstat -f" prints of one job; a line that starts with a tab continues the one before.

    What its owner put into one cannot pass for an earlier one: of several of one name the first counts.
    """
    attributes: "dict[str, str]" = {}
    name = None
    for line in text.split("\n"):
        if line.startswith("\t") and name:
            attributes[name] += line[1:]  # cut anywhere, before a space too
            continue
        parts = re.match(r" {4}(\S+) = (.*)$", line)
        if parts and parts.group(1) not in attributes:
            name = parts.group(1)
            attributes[name] = parts.group(2)
        else:
            name = None
    return {name: value.rstrip() for name, value in attributes.items()}  # 4.2 may end them with a space


def parse_node_jobs(text: str) -> "set[str]":
    """Return the job ids in the attribute jobs of a node.

    It is "0/12.head, 1/12.head, 2/13[2].head" with TORQUE 2.5 and 4.2, and "0-1,3/12.head,2/13[2].head", ranges of slots, since 5.1.
    """
    return set(re.findall(r"/([^,/\s]+)", text))


def parse_exec_host(exec_host: str) -> "list[str]":
    """Return the nodes of an exec_host value such as "node1/0-1+node2/0", each once; the first is the mother superior."""
    return list(OrderedDict.fromkeys(part.split("/")[0] for part in exec_host.split("+") if part))


def get_first_node(job: "dict[str, str]") -> str:
    """Return the first node of a job, given by its attributes; empty when it has none."""
    return (parse_exec_host(job.get("exec_host", "")) or [""])[0]


def get_owner(job: "dict[str, str]") -> str:
    """Return the name of the account whose job this is, given by its attributes."""
    return job.get("Job_Owner", "").partition("@")[0]


def runs_on(job: "dict[str, str]", node: str) -> bool:
    """Whether a job, given by its attributes, runs on this node."""
    return job.get("job_state") == "R" and node in parse_exec_host(job.get("exec_host", ""))


def _parse_rectime(status: str) -> str:
    """Return the rectime in a node's attribute status. pbs_server adds it to what the node has sent, so the last one counts."""
    return ([""] + re.findall(r"(?:^|,)rectime=(\d+)", status))[-1]


class Server(Commands):
    """pbs_server, asked by TORQUE's commands.

    Each method raises HookError, NO_SERVER, when it does not answer.
    """

    def has_patch(self, name: str) -> bool:
        """Whether this TORQUE was built with a patch, by the manifest that role torque_build leaves beside the commands' directory."""
        try:
            with open(os.path.join(self.path, "..", MANIFEST)) as stream:
                patches = json.load(stream)["patches"]
            return any(patch["name"] == name and patch["state"] != "not applicable" for patch in patches)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def read_name(self) -> str:
        """Return what the ids of its jobs end in."""
        status, output, error = self.run("qstat", "-B", "-f")
        names = [line.partition(":")[2].strip() for line in output.splitlines() if line.startswith("Server:")]
        if status != 0 or len(names) != 1 or not names[0]:
            raise self.make_error("qstat -B -f", status, error)
        return names[0]

    def list_job_numbers(self) -> "set[str]":
        """Return the numbers of the jobs that it lists, perhaps not all."""
        status, output, error = self.run("qselect")
        if status != 0:
            raise self.make_error("qselect", status, error)
        return {get_job_number(line.strip()) for line in output.splitlines() if line.strip()}

    def list_nodes(self) -> "dict[str, Node]":
        """Return {name: Node}."""
        from xml.etree import ElementTree  # the hooks, which ask for no nodes, would load it each time
        status, output, error = self.run("pbsnodes", "-x")
        try:
            if status != 0:
                raise ValueError(error)
            return {node.findtext("name", ""): Node(set(node.findtext("state", "").split(",")), parse_node_jobs(node.findtext("jobs", "")),
                                                    _parse_rectime(node.findtext("status", "")))
                    for node in ElementTree.fromstring(output).iter("Node")}
        except (ValueError, ElementTree.ParseError) as problem:
            raise self.make_error("pbsnodes -x", status, str(problem))

    def _show_job(self, job_id: str) -> "str | None":
        """Return what "qstat -f" prints of a job, None when the server does not know it."""
        status, output, error = self.run("qstat", "-f", job_id)
        if status == 0:
            return output
        if UNKNOWN in error:
            return None
        raise self.make_error("qstat -f " + job_id, status, error)

    def read_job(self, job_id: str) -> "dict[str, str]":
        """Return the attributes of a job, empty when the server does not know it."""
        return parse_attributes(self._show_job(job_id) or "")

    def denies_job(self, job_id: str) -> bool:
        """Whether the server answers that it does not know this job."""
        # TORQUE 2.4 knows elements of arrays by the second name.
        return all(self._show_job(name) is None for name in sorted({job_id, get_name_on_disk(job_id)}))

    def rerun_job(self, job_id: str) -> str:
        """Have pbs_server queue a job again whose node does not answer; return why it refused, or seems to, empty if it accepted."""
        try:
            status, _output, error = self.run("qrerun", "-f", job_id)
        except HookError as failure:  # the job may have been queued all the same
            return failure.sentence
        return "" if status == 0 else "qrerun -f exited %d: %s" % (status, " ".join(error.split()) or "it printed nothing")
