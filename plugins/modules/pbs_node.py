#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: pbs_node
short_description: Drain a TORQUE node and release it, without touching what others have marked
version_added: 0.2.0
description:
  - Drains a node by setting it offline with a note of our own, C(ckpt-torque:) and the reason. The server starts no more
    jobs on it; those that run go on. Can wait until they have ended.
  - A mark is ours when the whole note is. What others set offline stays offline, with their note; see RV(held_by).
  - A node in use that carries another's note is not drained, as that would overwrite the note.
  - When waiting fails or is interrupted, the mark is taken back if this run set it.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Does not wait.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  node:
    description: The node's name, as the server knows it.
    type: str
    required: true
  state:
    description:
      - V(drained) sets it offline; V(released) takes our mark away.
      - A node that is not offline is released already, whatever its note says; only our own note is cleared.
    type: str
    choices: [drained, released]
    default: drained
  reason:
    description: Why, in one line of at most 243 bytes. To release a node give the reason it was drained with.
    type: str
    default: maintenance
  wait:
    description: With O(state=drained), wait until no job is left on the node, also when others hold it.
    type: bool
    default: false
  timeout:
    description: How long to wait, in seconds.
    type: int
    default: 3600
  poll:
    description: How long to sleep between two looks, in seconds.
    type: int
    default: 5
  pbsnodes_path:
    description:
      - Where C(pbsnodes) is, by absolute path.
      - Looked for in C(/opt/torque/current/bin) and then in E(PATH) when it is not given.
    type: path
"""

EXAMPLES = r"""
- name: No new jobs on this node, and none left
  ckpt.torque.pbs_node:
    node: "{{ inventory_hostname }}"
    reason: kernel update
    wait: true
  delegate_to: head

- name: In use again, unless somebody else holds it
  ckpt.torque.pbs_node:
    node: "{{ inventory_hostname }}"
    state: released
    reason: kernel update
  delegate_to: head
"""

RETURN = r"""
held_by:
  description:
    - Another's note on a node that is offline; V(an offline mark without a note) when it has none.
    - Null when nobody else holds it.
  returned: success
  type: str
  sample: "disk broken, see ticket 12"
states:
  description: The node's states, as the server shows them.
  returned: success
  type: list
  elements: str
  sample: [offline, job-exclusive]
note:
  description: The node's note; empty when it has none.
  returned: success
  type: str
  sample: "ckpt-torque: kernel update"
jobs:
  description: Ids of the jobs on the node.
  returned: success
  type: list
  elements: str
  sample: ["4.head"]
msg:
  description: What was found or done.
  returned: always
  type: str
  sample: node node1 is drained
"""

import signal
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque import nodes as pbs_nodes
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError
from ansible_collections.ckpt.torque.plugins.module_utils.torque.nodes import NodeError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Interrupted(NodeError):
    """A signal asked to end."""


class Pbsnodes:
    """One node, through pbsnodes.

    :param path: of pbsnodes (str)
    :param name: of the node (str)
    :param run: as module_utils.torque.commands.run
    """

    def __init__(self, path, name, run=commands.run):
        self.path = path
        self.name = name
        self.run = run

    def _call(self, arguments):
        """Return (stdout, stderr as one line), both str. pbsnodes exits 0 also when it has failed."""
        try:
            _status, output, error = self.run([self.path] + arguments)
        except CommandError as failure:
            raise NodeError(str(failure))
        return output, commands.join_complaint(error)

    def read(self):
        """Return the torque.nodes.Node."""
        output, error = self._call([self.name])
        if "Unknown node" in error or "no node list" in error:
            raise NodeError("the server knows no node %s; pbsnodes shows the names it knows" % self.name)
        node = pbs_nodes.parse(output)
        if node is None:
            raise NodeError(commands.describe_silence("pbsnodes", error or "it printed nothing"))
        return node

    def mark(self, note):
        """Set the node offline with a note (str); return the Node after it."""
        return self._change("drain", ["-o", "-N", note], lambda node: node.offline and node.note == note)

    def clear(self):
        """Take the offline mark and the note away; return the Node after it."""
        return self._change("release", ["-c", "-N", "n"], lambda node: not node.offline and not node.note)

    def _change(self, verb, options, done):
        error = self._call(options + [self.name])[1]
        node = self.read()
        if not done(node):
            raise NodeError("pbsnodes did not %s node %s: %s; only root on the server's host and the server's managers and "
                            "operators may do this" % (verb, self.name, error or "it gave no reason"))
        return node


def await_idle_node(nodes, node, timeout, poll, clock, sleep):
    """Return the Node once it has no jobs; a server that does not answer meanwhile is asked again.

    :raises NodeError: when the time is over
    """
    seen, trouble = [], [""]

    def is_idle():
        if not seen:
            seen[:] = [node]  # it was read just now
            return not node.jobs
        try:
            seen[:], trouble[:] = [nodes.read()], [""]
        except Interrupted:
            raise
        except NodeError as error:
            trouble[:] = [" (%s)" % error]
        return not seen[0].jobs

    if not wait_until(is_idle, timeout, poll, clock, sleep):
        raise NodeError("node %s still has jobs after %d seconds: %s%s; end or hold them, or wait longer"
                        % (nodes.name, timeout, ", ".join(seen[0].jobs), trouble[0]))
    return seen[0]


def clear_own_mark(nodes, mark):
    """Clear our mark (str), if it is there; return a sentence on it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        if nodes.read().note != mark:
            return "no mark of ours is on it"
        nodes.clear()
    except NodeError as error:
        return "our mark may still be on it (%s): release it" % error
    return "our mark was taken back"


def set_node_state(nodes, mark, params, check, clock=time.monotonic, sleep=time.sleep):
    """Drain or release the node; return the module's answer (dict).

    :raises NodeError: when it cannot be done
    """
    drained = params["state"] == "drained"
    before = node = nodes.read()
    act, held_by = pbs_nodes.decide(nodes.name, before, mark, drained)
    try:
        if check:
            node = pbs_nodes.after(before, act, mark)
        elif act:
            node = nodes.mark(mark) if act == "mark" else nodes.clear()
        if drained and params["wait"] and not check:
            node = await_idle_node(nodes, node, params["timeout"], params["poll"], clock, sleep)
    except NodeError as error:
        if act != "mark":
            raise
        raise NodeError("%s; %s" % (error, clear_own_mark(nodes, mark)))
    return dict(node._asdict(), changed=act is not None, held_by=held_by,
                msg=pbs_nodes.sentence(nodes.name, node, drained, held_by),
                diff={"before_header": nodes.name, "after_header": nodes.name,
                      "before": pbs_nodes.render(before), "after": pbs_nodes.render(node)})


def raise_interrupted(number, _frame):
    raise Interrupted("interrupted by signal %d" % number)


def main():
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "released"], "default": "drained"},
            "reason": {"type": "str", "default": "maintenance"},
            "wait": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 3600},
            "poll": {"type": "int", "default": 5},
            "pbsnodes_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    for number in SIGNALS:
        signal.signal(number, raise_interrupted)
    try:
        mark = pbs_nodes.note(params["node"], params["reason"])
        path = commands.find_command("pbsnodes", params["pbsnodes_path"], module.get_bin_path)
        answer = set_node_state(Pbsnodes(path, params["node"]), mark, params, module.check_mode)
    except (NodeError, CommandError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
