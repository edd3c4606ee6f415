#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: job_roundtrip
short_description: Prove that a real job submitted with qsub survives qhold, qrls and moves (level L3)
version_added: 0.2.0
description:
  - Run on a host where root may use C(qalter) and C(qdel), usually the server. Submits a job as an ordinary user, waits until it
    makes progress, holds it, releases it on the next node of the path, and so on; lets it end and checks its output.
  - The proof is the job's own output as TORQUE delivers it, a counter without gap or repeat, its stderr, its exit status, and a walltime
    that no restart has set back.
  - If a node of the path has no free slot, or is offline, RV(passed) is null and RV(cause) names it; no job is queued behind others.
  - Every wait is bounded. What the round trip created is removed, the job included.
  - A round trip that fails is a result, not a failure of the module; look at RV(passed) and RV(cause).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.round_trip
options:
  path:
    description: The nodes the job is to be on, in this order, by the names TORQUE has for them. A node may come twice in a row.
    type: list
    elements: str
    required: true
  case:
    description:
      - What happens to the job beside the moves of O(path).
      - V(move) - Nothing else.
      - V(continue) - The job is checkpointed once on its first node and continues (C(qchkpt)).
      - V(periodic) - On each node the job waits for an image that C(pbs_mom) makes by itself. Its timer counts minutes of
        walltime and is looked at about every 45 seconds, so this takes up to two minutes on each node.
      - V(older_image) - As V(continue); then the held job is restarted from the first of its two images (C(qalter -W
        checkpoint_name)). Needs a path of two nodes.
      - V(failed_hold) - As V(continue); then the directory of the job's images loses its write permission. The hold must fail,
        the job continue, the previous image stay as it was, and the comment say why. Then the permission is given back. Not
        possible with O(copies_path).
      - V(full_store) - As V(failed_hold), but O(full_store_file) is created, and there must be no free space on the first node
        where the job's images are, until the file is removed. Not possible with O(copies_path).
      - V(failed_restart) - A byte of the held job's image is changed before the first release. The restart must fail, the job be
        held with the reason in its comment, its image and its output stay. Then the image is repaired. Needs a path of two nodes.
      - V(truncated_image) - As V(failed_restart), but the largest file of the image loses its second half.
      - V(changed_manifest) - As V(failed_restart), but the image's manifest is changed.
      - V(foreign_file) - As V(failed_restart), but the largest file of the image is given to root. If root may not do that in the
        store, RV(passed) is null. Not possible with O(copies_path).
      - V(deleted_image) - As V(failed_restart), but the image is moved away.
      - V(failed_directory) - The job names a directory for its images that contains a shell command (C(qsub -c dir=)). The hold
        must fail, the job continue, the comment say why, and nobody run the command. The job stays on the first node.
      - V(server_away) - As V(continue), with the program of V(memory). C(pbs_server.service), which must run on this host, is
        stopped while the first hold writes its image, and started again when that is complete. The hold must arrive there. Jobs
        keep running, but nobody can use the server for about ten seconds. Not possible with O(copies_path).
      - V(node_crash) - The job is checkpointed on its first node (C(qchkpt)), then O(crash_file) is created, and the node must
        crash. The job must continue from its image, started once, when the node is back, without a command. If the node has other
        jobs, RV(passed) is null.
      - V(preempt) - A system hold is set and, while the image is written, released again, as Maui does for C(PREEMPTPOLICY
        CHECKPOINT). The job must leave its node with an image, and the scheduler start it again from that.
      - V(drain) - The first node is set offline and the job is held by an operator's hold, as C(drain.yml) does. When that is
        taken off the job must continue on the next node. Then the first node is taken into use again. Needs a path that leads to
        another node first.
      - V(files) - As V(continue), but the program appends to a file, and changes another one in place; both must have what it
        wrote.
      - V(timers) - As V(continue), but the program counts the signals of a timer, and those of another process.
      - V(connections) - As V(continue), but the program has TCP connections with another process of the job. Not with an engine
        that restores no sockets.
      - V(memory) - As V(continue), but the program fills O(memory) with numbers that cannot be compressed, and reads all of them
        again and again. It is measured how fast its image was written, and how fast its node writes a file of that size.
      - V(array) - As V(continue), but the job is one of an array (C(qsub -t 0)).
      - V(nested_signal) - As V(continue), but C(ckpt-run) starts the job's program, sends it a signal at each checkpoint, and
        starts it again. The program must continue from the file that it wrote itself, and no image may contain it.
      - V(nested_command) - As V(nested_signal), but C(ckpt-run) asks the program by a command.
      - V(multinode_output) - As V(nested_signal), but the job has all nodes of the path at a time, and its program has each of
        them print by C(pbsdsh). What they print must be in the job's output, no line missing or twice. Needs a path over two
        nodes.
      - V(mpi_mpich) - As V(continue), but the job runs four ranks of MPICH, which exchange messages. It compiles its program by
        C(mpicc.mpich) and starts it by C(mpiexec.mpich). If a node of the path has no such command, or the job cannot compile,
        RV(passed) is null and RV(cause) contains the reason.
      - V(mpi_openmpi) - As V(mpi_mpich), but of Open MPI, by C(mpicc.openmpi) and C(mpiexec.openmpi).
    type: str
    choices:
      - move
      - continue
      - periodic
      - older_image
      - failed_hold
      - full_store
      - failed_restart
      - truncated_image
      - changed_manifest
      - foreign_file
      - deleted_image
      - failed_directory
      - server_away
      - node_crash
      - preempt
      - drain
      - files
      - timers
      - connections
      - memory
      - array
      - nested_signal
      - nested_command
      - multinode_output
      - mpi_mpich
      - mpi_openmpi
    default: continue
  depth:
    description:
      - Submit the job with C(-c depth=N), see in each image's manifest that the checkpoint hook was given this number, and in the
        directory that the newest images are kept and no more than so many.
    type: int
  user:
    description: The ordinary user whose job it is.
    type: str
    required: true
  work_path:
    description: A directory of the user's that all nodes and this host share; the round trip makes its own beneath it.
    type: path
    required: true
  images_path:
    description:
      - Submit the job with C(-c dir=PATH), so that its images lie beneath this directory.
      - The default is what the queue's C(checkpoint_dir) says.
    type: path
  copies_path:
    description:
      - Where each node has a store of its own, the server's checkpoint directory, in which images are at rest. The module must run on the
        server then.
      - The default is that this host sees the store of the nodes.
    type: path
  qsub_options:
    description: Further options for C(qsub), for instance V([-j, oe]).
    type: list
    elements: str
    default: []
  ckpt_run_path:
    description: Where C(ckpt-run) is on the nodes.
    type: path
    default: /usr/local/bin/ckpt-run
    version_added: 0.3.0
  memory:
    description: How much memory the program of V(memory) fills, in MiB.
    type: int
    default: 256
    version_added: 0.3.0
  crash_file:
    description:
      - The file that the round trip creates as O(user) when the first node of the path is to crash, which somebody must do then.
      - Needed by V(node_crash).
    type: path
    version_added: 0.3.0
  boot_timeout:
    description: How long the job of V(node_crash) may take from the crash until it runs again, in seconds.
    type: int
    default: 900
    version_added: 0.3.0
  full_store_file:
    description:
      - The file that the round trip creates as O(user) when the first node of the path is to have no free space for the job's
        images. It has the name of their directory. Somebody must then fill that, and create a file of this name with C(.full)
        added; it has an empty line, or why that is not possible.
      - When the round trip removes the file, there must be space again, and the other file be removed.
      - Needed by V(full_store).
    type: path
    version_added: 0.3.0
  torque_directory:
    description: The directory of TORQUE's commands.
    type: path
    default: /opt/torque/current/bin
  timeout:
    description: How long each step may take, in seconds.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Prove that jobs move
  ckpt.torque.job_roundtrip:
    path: [node1, node2]
    user: alice
    work_path: /shared/ckpt/alice
  register: trip

- name: Prove that a restart that fails loses nothing
  ckpt.torque.job_roundtrip:
    path: [node1, node2]
    case: failed_restart
    user: alice
    work_path: /shared/ckpt/alice
"""

RETURN = r"""
passed:
  description:
    - Whether the job did what its owner relies on.
    - Null when nothing was run, or the nodes do not have what the case needs or take no job.
  returned: always
  type: bool
cause:
  description: Step and reason of the failure, or why nothing was proven; empty when it passed.
  returned: always
  type: str
  sample: "hold: qhold 12.head exited 170: qhold: Server could not connect to MOM 12.head"
level:
  description: The level of proof.
  returned: always
  type: str
  sample: L3
case:
  description: What happened beside the moves, as O(case).
  returned: always
  type: str
  sample: continue
nodes:
  description: The nodes the job was on, in order.
  returned: always
  type: list
  elements: str
job_id:
  description: The job's identifier.
  returned: when it was submitted
  type: str
  sample: 12.head
counters:
  description: The job's counter at each image, and at its end.
  returned: always
  type: list
  elements: int
exit_status:
  description: The job's exit status as the server reports it.
  returned: when the job ended
  type: int
output_lines:
  description: How many lines of stdout TORQUE delivered.
  returned: when the job ended
  type: int
image_bytes:
  description: Size of the last image in bytes.
  returned: after the first image
  type: int
image_bytes_per_second:
  description: How fast the last image was written, while the engine held the job, in bytes per second.
  returned: if O(case=memory) has an image
  type: int
store_bytes_per_second:
  description: How fast the job wrote a file of O(memory) into its directory, on its node, in bytes per second.
  returned: if O(case=memory) has an image
  type: int
compression:
  description: Name of the program that compressed the last image, by its manifest; empty where none did.
  returned: after the first image
  type: str
  sample: zstd
engine:
  description: Name and version of the engine, by the last image's manifest.
  returned: after the first image
  type: dict
  sample: {name: criu, version: 4.2.1}
torque:
  description: The server's version.
  returned: when it answered
  type: str
  sample: 6.1.3
comments:
  description: The job's comment after each image, each hold that had to fail and each restart that had to fail.
  returned: always
  type: list
  elements: str
states:
  description:
    - The states of the job, each when it was first seen, in seconds since the first look; C(node) is empty where TORQUE names none.
    - The job is looked at about ten times a second, so short ones may be missing.
  returned: always
  type: list
  elements: dict
  sample: [{state: R, substate: 42, node: node1, seconds: 0.31}]
walltime:
  description: The walltime the server accounts, in seconds.
  returned: when the job ended
  type: int
phases:
  description:
    - All steps with node, time taken (seconds) and counter.
    - A step that wrote an image has C(engine_seconds), how long the engine held the job, by the image's manifest.
    - C(hold) has C(walltime), which the server accounts so far (seconds).
    - C(release) has C(running_seconds), from C(qalter) to the first line that the job wrote on the new node (the rest of its time goes to
      ten further lines), and C(resumed), the counter from which it continued.
  returned: always
  type: list
  elements: dict
  sample: [{node: node1, step: hold, seconds: 0.42, engine_seconds: 0.031, walltime: 3, counter: 57}]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque.commands import CommandError, Commands
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import roundtrip
from ansible_collections.ckpt.torque.plugins.module_utils.validation import cases
from ansible_collections.ckpt.torque.plugins.module_utils.validation.job import COMMANDS, JobRoundTrip


def find_fault(params: dict) -> str:
    """Return what is wrong with the arguments, empty when nothing is."""
    if not params["path"]:
        return "the path holds no node"
    for name, unit in (("depth", ""), ("memory", " (MiB)"), ("boot_timeout", " (second)"), ("timeout", " (second)")):
        if params[name] is not None and params[name] < 1:
            return "%s is %d, but must be at least 1%s" % (name, params[name], unit)
    return cases.find_fault(params)


def judge(causes: "list[str]", possible: bool) -> "bool | None":
    """Return the verdict: None when a node does not have what the case needs, and nothing else is wrong."""
    return None if not possible and len(causes) == 1 else not causes


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "list", "elements": "str", "required": True},
            "case": {"type": "str", "choices": list(cases.CASES), "default": "continue"},
            "depth": {"type": "int"},
            "user": {"type": "str", "required": True},
            "work_path": {"type": "path", "required": True},
            "images_path": {"type": "path"},
            "copies_path": {"type": "path"},
            "qsub_options": {"type": "list", "elements": "str", "default": []},
            "ckpt_run_path": {"type": "path", "default": "/usr/local/bin/ckpt-run"},
            "memory": {"type": "int", "default": 256},
            "crash_file": {"type": "path"},
            "full_store_file": {"type": "path"},
            "boot_timeout": {"type": "int", "default": 900},
            "torque_directory": {"type": "path", "default": "/opt/torque/current/bin"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params, host = module.params, os.uname().nodename
    fault = find_fault(params)
    if fault:
        module.fail_json(msg="%s: job_roundtrip: %s; nothing was done" % (host, fault))
    if module.check_mode:
        module.exit_json(changed=False, **roundtrip.build_result("L3", params["path"], None, "check mode: no job is submitted",
                                                                 case=params["case"], counters=[], comments=[], states=[], phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: job_roundtrip must run as root to submit as another user; use become" % host)
    missing = [name for name in COMMANDS if not os.access(os.path.join(params["torque_directory"], name), os.X_OK)]
    if missing:
        module.fail_json(msg="%s: job_roundtrip: %s has no %s; install TORQUE's commands here or correct torque_directory; nothing was done"
                         % (host, params["torque_directory"], ", ".join(missing)))

    commands = Commands(params["torque_directory"], params["timeout"])
    try:
        trip = JobRoundTrip(params, cases.CASES[params["case"]], commands)
    except HookError as error:
        module.fail_json(msg="%s: job_roundtrip: %s; nothing was done" % (host, error))
    causes = trip.make()
    try:
        version = commands.read_version()
    except CommandError:
        version = None  # the verdict does not depend on it
    if version:
        trip.facts["torque"] = version
    nodes = trip.nodes if trip.possible and trip.nodes else params["path"]
    result = roundtrip.build_result("L3", nodes, judge(causes, trip.possible), "; ".join(causes),
                                    phases=trip.phases.done, states=commands.states, **trip.facts)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
