#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: qmgr
short_description: Give TORQUE's server, queues and nodes the attributes they should have
version_added: 0.2.0
description:
  - Takes server, queues and nodes as data, reads the live ones with one C(qmgr) process, runs the commands that make
    the difference in a second one and reads again to see that they worked. Nothing to do costs one process.
  - Attributes and objects that are not named are left alone, unless O(purge) says otherwise.
  - Values are compared by meaning. V(1gb) is V(1048576kb), V(3600) is V(01:00:00), V(yes) is V(True), and a list is a
    set; only C(route_destinations) has an order.
  - What TORQUE only reports, such as C(total_jobs), is refused, and so are C(state) and C(note) of a node, which belong
    to M(ckpt.torque.pbs_node).
  - A queue or node with jobs is not deleted; TORQUE itself would purge the jobs of a node. This is looked at before
    anything is changed.
  - The server's access lists, managers and operators are set last, as they can shut out whoever sets them.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  server:
    description:
      - Attributes of the server by name. V(null) unsets one.
      - Resources are written C(resources_default.walltime) or as a dictionary in C(resources_default).
    type: dict
    default: {}
  server_members:
    description:
      - What lists of the server contain at least, by attribute; what else they contain stays.
      - An attribute that O(server) names too is as that says.
    type: dict
    default: {}
    version_added: 0.3.0
  queues:
    description:
      - Attributes of queues by queue name, as in O(server). A queue that is not there is created.
      - V(absent) in place of the attributes deletes a queue.
    type: dict
    default: {}
  nodes:
    description:
      - Attributes of nodes by node name, as in O(queues). The server must be able to resolve a new one.
      - Two names that differ in case or domain only are refused.
    type: dict
    default: {}
  purge:
    description: The kinds of which everything that is not named is deleted.
    type: list
    elements: str
    choices: [queues, nodes]
    default: []
  qmgr_path:
    description:
      - Where C(qmgr) is, by absolute path.
      - Looked for in C(/opt/torque/current/bin) and then in E(PATH) when it is not given.
    type: path
  timeout:
    description:
      - How long C(qmgr) may take to read, in seconds.
      - To make the changes it gets one second more for each command.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: One queue whose jobs can be checkpointed, two nodes
  ckpt.torque.qmgr:
    server:
      default_queue: batch
      scheduling: true
      managers: [root@head.example.org, alice@head.example.org]
    queues:
      batch:
        queue_type: execution
        checkpoint_defaults: enabled
        resources_default: {walltime: "01:00:00"}
        enabled: true
        started: true
      old: absent
    nodes:
      node1: {np: 16, properties: [big, gpu]}
      node2: {np: 8}

- name: No other nodes than these
  ckpt.torque.qmgr:
    nodes: "{{ dict(groups['torque_mom'] | product([{}])) }}"
    purge: [nodes]
"""

RETURN = r"""
commands:
  description: The C(qmgr) commands that make the difference, in order.
  returned: always, once the live state has been read
  type: list
  elements: str
  sample: ["set queue batch started = True"]
executed:
  description: Those that were done; empty in check mode.
  returned: always, once the live state has been read
  type: list
  elements: str
before:
  description: The live values of what is managed, as TORQUE writes them.
  returned: success
  type: dict
  contains:
    server:
      description: The server's attributes that were named.
      type: dict
    queues:
      description: Attributes by queue name.
      type: dict
    nodes:
      description: Attributes by node name.
      type: dict
  sample: {nodes: {}, queues: {batch: {started: "False"}}, server: {}}
after:
  description: The same as it is now, or in check mode as it would be.
  returned: success
  type: dict
  sample: {nodes: {}, queues: {batch: {started: "True"}}, server: {}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import qmgr
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, find_command
from ansible_collections.ckpt.torque.plugins.module_utils.torque.qmgr import QmgrError
from ansible_collections.ckpt.torque.plugins.module_utils.torque.server import Server

PLURAL = {"server": "server", "queue": "queues", "node": "nodes"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "server": {"type": "dict", "default": {}},
            "server_members": {"type": "dict", "default": {}},
            "queues": {"type": "dict", "default": {}},
            "nodes": {"type": "dict", "default": {}},
            "purge": {"type": "list", "elements": "str", "choices": ["queues", "nodes"], "default": []},
            "qmgr_path": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params = module.params
    facts: dict = {}  # what is known when something fails
    try:
        for plural in params["purge"]:
            if not params[plural]:
                raise QmgrError("purge of %s with no %s named would delete every one; name those that stay; nothing was changed"
                                % (plural, plural))
        goal = qmgr.wanted(params["server"], params["queues"], params["nodes"])
        members = qmgr.wanted_members(params["server_members"])
        if members:
            goal["server"].setdefault("", {})
        purge = [kind for kind in qmgr.KINDS if PLURAL[kind] in params["purge"]]
        server = Server(find_command("qmgr", params["qmgr_path"], module.get_bin_path), params["timeout"])
        state = server.read([kind for kind in qmgr.KINDS if goal[kind]])
        qmgr.add_members(goal, state, members)
        changes = qmgr.plan(state, goal, purge)
        commands = [line for change in changes for line in change.lines()]
        facts = {"commands": commands, "executed": []}
        after = qmgr.apply(state, changes)
        if commands and not module.check_mode:
            facts["executed"], failure = server.execute(commands)
            if failure:
                raise QmgrError(failure)
            after = server.read([kind for kind in qmgr.KINDS if goal[kind]])
            offline = qmgr.find_new_offline(changes, after)
            if offline:
                done, failure = server.execute(offline)
                if failure and not qmgr.frees_by_itself(failure):
                    raise QmgrError(failure)
                facts["commands"], facts["executed"] = commands + done, commands + done
            left = [line for change in qmgr.plan(after, goal, purge) for line in change.lines()]
            if left:
                raise QmgrError("qmgr did all commands, yet TORQUE holds on to another value; this is left to do: %s; "
                                "write what TORQUE shows in its place" % "; ".join(left))
    except (CommandError, QmgrError) as error:
        module.fail_json(msg=str(error), changed=bool(facts.get("executed")), **facts)
    views = [qmgr.managed(each, goal, purge) for each in (state, after)]
    before, after = [{PLURAL[kind]: view[kind] for kind in qmgr.KINDS} for view in views]
    for view in (before, after):
        view["server"] = view["server"].get("", {})
    diff = {"before_header": "qmgr", "after_header": "qmgr", "before": qmgr.render(views[0]), "after": qmgr.render(views[1])}
    module.exit_json(changed=bool(commands), before=before, after=after, diff=diff, **facts)


if __name__ == "__main__":
    main()
