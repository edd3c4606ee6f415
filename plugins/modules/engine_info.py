#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: engine_info
short_description: Tell which checkpoint engine a node can run, and what it has of it
version_added: 0.1.0
description:
  - Reads kernel, capabilities, CPU, libc, PID range and the installed engines of a node.
  - Chooses the engine by the running kernel and says why. Fails when the engine asked for cannot run on this kernel.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  engine:
    description:
      - The engine the site asks for.
      - V(auto) takes CRIU on kernels 5.9 and newer and BLCR on kernels 3.5 to 3.17.
    type: str
    choices: [auto, criu, blcr]
    default: auto
  criu_path:
    description: Where CRIU is, by absolute path; C(pbs_mom) does not search C(/usr/sbin).
    type: path
    default: /usr/sbin/criu
  key_path:
    description: The file with the keys of the hooks.
    type: path
    default: /etc/ckpt-torque/manifest.key
"""

EXAMPLES = r"""
- name: Ask the node what it can do
  ckpt.torque.engine_info:
  register: node

- name: Insist on CRIU; fails with the way out on an older kernel
  ckpt.torque.engine_info:
    engine: criu
"""

RETURN = r"""
engine:
  description: The engine for this node.
  returned: success
  type: str
  sample: criu
reason:
  description: Why this one.
  returned: success
  type: str
  sample: kernel 6.12.9-amd64 is 5.9 or newer
kernel:
  description: Release of the running kernel.
  returned: success
  type: str
  sample: 6.12.9-amd64
arch:
  description: Machine architecture.
  returned: success
  type: str
  sample: x86_64
libc:
  description: Name and version of the C library.
  returned: success
  type: str
  sample: glibc 2.41
criu:
  description: The installed CRIU.
  returned: success
  type: dict
  contains:
    path:
      description: Where it was looked for.
      type: str
    version:
      description: Its version; empty when it is not installed.
      type: str
      sample: 4.2.1
blcr:
  description: The installed BLCR.
  returned: success
  type: dict
  contains:
    modules:
      description: BLCR's kernel modules that are loaded.
      type: list
      elements: str
capabilities:
  description: What root's bounding set holds of the capabilities CRIU needs.
  returned: success
  type: dict
  sample: {checkpoint_restore: true, setpcap: true, sys_ptrace: true}
execmem:
  description: Whether memory may be writable and executable at once, as CRIU needs it; SELinux can refuse it.
  returned: success
  type: bool
compressors:
  description: Which of C(zstd), C(lz4) and C(gzip) the node has, where the hooks look for them.
  returned: success
  type: list
  elements: str
  sample: [zstd, gzip]
key_ids:
  description: Ids of the keys that the hooks have here, the one that seals first; empty without hooks.
  returned: success
  type: list
  elements: str
  sample: ["2026"]
node:
  description: What decides where an image can be restarted, as manifests have it.
  returned: success
  type: dict
  sample: {arch: x86_64, cpu: [avx, avx2], kernel: 6.12.9-amd64, kernel_version: "#1 SMP", libc: glibc 2.41, node: node1}
cpu_flags:
  description: The CPU's features, sorted.
  returned: success
  type: list
  elements: str
pids:
  description: Largest process id and the one handed out last in this PID namespace.
  returned: success
  type: dict
  sample: {last: 271344, max: 4194304}
"""

import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.engine.choice import EngineError, choose
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import criu
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility, compressors, seal

CAPABILITIES = {"setpcap": 8, "sys_ptrace": 19, "checkpoint_restore": 40}


def read(path):
    """Return a file's text (str), empty when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def field(text, name):
    """Return the value (str) of a "name: value" line, empty when there is none."""
    found = re.search(r"^%s\s*:\s*(.*)$" % re.escape(name), text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def number(text):
    """Return int(text), or None when it is empty."""
    return int(text) if text.strip() else None


def key_ids(path):
    """Return the ids (list of str) of the keys in a file, none when there are no keys."""
    try:
        return [name for name, _secret in seal.load(path, os.geteuid())]
    except HookError:
        return []


def main():
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "choices": ["auto", "criu", "blcr"], "default": "auto"},
            "criu_path": {"type": "path", "default": "/usr/sbin/criu"},
            "key_path": {"type": "path", "default": "/etc/ckpt-torque/manifest.key", "no_log": False},
        },
        supports_check_mode=True,
    )
    machine = os.uname()
    try:
        engine, reason = choose(module.params["engine"], machine.release)
    except EngineError as error:
        module.fail_json(msg="%s: %s" % (machine.nodename, error), kernel=machine.release)

    path, version = module.params["criu_path"], ""
    if os.path.isfile(path) and os.access(path, os.X_OK):
        output = module.run_command([path, "--version"])[1]
        version = field(output, "Version")
    bounding = int(field(read("/proc/self/status"), "CapBnd") or "0", 16)
    modules = [line.split()[0] for line in read("/proc/modules").splitlines()]
    module.exit_json(
        changed=False,
        engine=engine,
        reason=reason,
        kernel=machine.release,
        arch=machine.machine,
        libc=os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "",
        criu={"path": path, "version": version},
        blcr={"modules": [name for name in modules if name in ("blcr", "blcr_imports")]},
        capabilities={name: bool(bounding >> bit & 1) for name, bit in CAPABILITIES.items()},
        execmem=criu.execmem(),
        compressors=compressors.found(),
        key_ids=key_ids(module.params["key_path"]),
        node=compatibility.node(),
        cpu_flags=sorted(field(read("/proc/cpuinfo"), "flags").split()),
        pids={"max": number(read("/proc/sys/kernel/pid_max")), "last": number(read("/proc/sys/kernel/ns_last_pid"))},
    )


if __name__ == "__main__":
    main()
