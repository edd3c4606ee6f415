#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: engine_roundtrip
short_description: Prove that a node's engine can freeze and revive a process tree (level L1)
version_added: 0.1.0
description:
  - As an ordinary user, starts a tree of two processes with a pipe, a unix and an inet socket, a thread and an open file,
    dumps it with the engine, kills it, restores it and lets it come to its own end.
  - The proof is the tree's own output, a counter without gap or repeat, and its exit status.
  - A round trip that fails is a result, not a failure of the module; look at RV(passed) and RV(cause).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.round_trip
options:
  engine:
    description: The engine to try.
    type: str
    choices: [criu]
    default: criu
  criu_path:
    description: Where CRIU is, by absolute path.
    type: path
    default: /usr/sbin/criu
  user:
    description: The ordinary user to do it as; not root.
    type: str
    default: nobody
  directory:
    description: Where a temporary directory for the image is made; it is removed in the end.
    type: path
    default: /var/tmp
  timeout:
    description: How long each step may take, in seconds.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Prove level L1
  ckpt.torque.engine_roundtrip:
  register: trip

- name: Insist on it
  ansible.builtin.assert:
    that: trip.passed
    fail_msg: "{{ trip.cause }}"
"""

RETURN = r"""
passed:
  description: Whether the tree came back whole. Null when it was not run (check mode).
  returned: always
  type: bool
cause:
  description: Why it failed; empty when it passed.
  returned: always
  type: str
  sample: "criu dump failed with status 1: Can't get 1:16 opt: Operation not supported"
level:
  description: The level of proof.
  returned: always
  type: str
  sample: L1
nodes:
  description: The nodes it touched.
  returned: always
  type: list
  elements: str
engine:
  description: Name and version of the engine.
  returned: when the engine answered
  type: dict
  sample: {name: criu, version: 4.2.1}
counter_before:
  description: The tree's counter when it was frozen.
  returned: when the tree was dumped
  type: int
counter_after:
  description: The tree's counter at its end.
  returned: when the tree was restored
  type: int
exit_status:
  description: The tree's exit status.
  returned: when the tree ended
  type: int
image_bytes:
  description: Size of the image in bytes.
  returned: when the tree was dumped
  type: int
phases:
  description: The steps with the time each took, in seconds.
  returned: always
  type: list
  elements: dict
  sample: [{step: dump, seconds: 0.04}]
"""

import os
import shutil
import signal
import sys
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils import mom, trial, workload
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt import identity, privilege
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError

STATUS = 7
"""The exit status the tree ends with; anything but 0 and 1, which failures produce by themselves."""


def reap():
    """Collect every child that has ended; killed ones would keep their process ids. Returns True."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return True


class Trip(object):
    """One round trip; .facts is what it found out."""

    def __init__(self, settings, user, place, timeout):
        self.engine = registry.get(settings)
        self.user = user
        self.image = os.path.join(place, "image")
        self.output = os.path.join(place, "output")
        self.stop_file = os.path.join(place, "stop")
        self.program = os.path.join(place, "program.py")
        self.timeout = timeout
        self.phases = trial.Phases()
        self.facts = {"phases": self.phases.done}
        self.root = None

    def start(self):
        """Start the tree as the user and wait until it works."""
        with open(self.program, "w") as stream:
            stream.write(workload.PROGRAM)
        os.chmod(self.program, 0o644)
        os.mkdir(self.image)
        descriptors = [os.open(os.devnull, os.O_RDONLY), os.open(self.output, os.O_CREAT | os.O_WRONLY, 0o600)]
        for path in (self.image, self.output):
            os.chown(path, self.user.uid, self.user.gid)
        self.root = mom.spawn(sys.executable, [self.program, self.stop_file, "0.002", str(STATUS)], {"PATH": "/bin:/usr/bin"}, "/",
                              [descriptors[0], descriptors[1], descriptors[1]], self.user)
        for descriptor in descriptors:
            os.close(descriptor)
        self._progress(5, "before the dump")

    def dump(self):
        """Freeze the tree into the image, then kill it."""
        tree = identity.tree(self.root)
        privilege.as_user(self.user, lambda: self.engine.dump(self.root, self.image, stop=True), self.engine.dump_capabilities)
        self.facts["counter_before"] = trial.evidence(self.output).counter
        self.facts["image_bytes"] = mom.image_bytes(self.image)
        for pid in reversed(tree):
            os.kill(pid, signal.SIGKILL)
        if not mom.wait_until(lambda: reap() and not [pid for pid in tree if identity.process(pid)], self.timeout):
            raise trial.TrialError("killed processes did not go away within %d seconds" % self.timeout)

    def restore(self):
        """Bring the tree back and wait until it works again."""
        privilege.as_user(self.user, lambda: self.engine.restore(self.image), self.engine.restore_capabilities)
        self._progress(self.facts["counter_before"] + 5, "after the restore")

    def finish(self):
        """Let the tree end by itself and judge its output."""
        open(self.stop_file, "w").close()
        answer = []

        def over():
            pid, status = os.waitpid(self.root, os.WNOHANG)
            if pid:
                answer.append(mom.exit_status(status))
            return bool(pid)

        if not mom.wait_until(over, self.timeout):
            raise trial.TrialError("the restored tree did not end within %d seconds" % self.timeout)
        found = trial.evidence(self.output)
        self.facts.update(exit_status=answer[0], counter_after=found.counter)
        if found.problems:
            raise trial.TrialError("the tree's output is not whole: " + "; ".join(found.problems))
        if not found.ended or answer[0] != STATUS:
            raise trial.TrialError("the tree ended with status %d, expected %d after its last line" % (answer[0], STATUS))

    def clean(self):
        """Leave no process behind."""
        for pid in identity.tree(self.root) if self.root else []:
            found = identity.process(pid)
            if found and found.uid == self.user.uid and found.state not in "ZX":
                os.kill(pid, signal.SIGKILL)

    def _progress(self, counter, when):
        if not mom.wait_until(lambda: trial.evidence(self.output).counter >= counter, self.timeout):
            raise trial.TrialError("the tree made no progress %s: its output is %s"
                                   % (when, ascii(trial.read(self.output)[-200:]) if trial.read(self.output) else "empty"))


def attempt(trip):
    """Do the round trip; return its cause of failure (str, empty when it passed)."""
    try:
        trip.facts["engine"] = {"name": trip.engine.name, "version": trip.engine.version()}
        for step in ("start", "dump", "restore", "finish"):
            trip.phases.measure(step, getattr(trip, step))
        return ""
    except (HookError, trial.TrialError, OSError) as error:
        return str(error)
    finally:
        trip.clean()


def main():
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "choices": ["criu"], "default": "criu"},
            "criu_path": {"type": "path", "default": "/usr/sbin/criu"},
            "user": {"type": "str", "default": "nobody"},
            "directory": {"type": "path", "default": "/var/tmp"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    node = os.uname().nodename
    if module.check_mode:
        module.exit_json(changed=False, **trial.result("L1", [node], None, "check mode: no process is started", phases=[]))
    if os.geteuid() != 0:
        module.fail_json(msg="%s: engine_roundtrip must run as root to become user %s; use become" % (node, module.params["user"]))
    settings = {"engine": module.params["engine"], "criu_path": module.params["criu_path"], "criu_options": [],
                "engine_timeout": module.params["timeout"]}
    privilege.become_subreaper()  # the restored tree becomes ours
    facts = {"phases": []}
    try:
        place = tempfile.mkdtemp(prefix="ckpt-torque-", dir=module.params["directory"])
        os.chmod(place, 0o755)
    except OSError as error:
        module.fail_json(msg="%s: cannot make a temporary directory in %s: %s; name another directory"
                         % (node, module.params["directory"], error.strerror))
    try:
        trip = Trip(settings, privilege.account(module.params["user"]), place, module.params["timeout"])
        facts = trip.facts
        cause = attempt(trip)
    except HookError as error:
        cause = str(error)
    finally:
        shutil.rmtree(place)
    module.exit_json(changed=False, **trial.result("L1", [node], not cause, cause, **facts))


if __name__ == "__main__":
    main()
