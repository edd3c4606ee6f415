#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: engine_info
short_description: Report which checkpoint engine a node can run, and what it has of each
version_added: 0.1.0
description:
  - Reads kernel, CPU, libc, PID range and the installed engines of a node.
  - Chooses the engine by the running kernel and says why. Fails when the engine asked for cannot run on this kernel.
  - The engines, their kernels and their options are those of the hooks' registry of engines (C(docs/reference/hooks-json.md) lists them).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
  - ckpt.torque.attributes.read_only
options:
  engine:
    description:
      - The engine the site asks for, by its name in the registry.
      - V(auto) takes the first one that can run on the kernel.
    type: str
    default: auto
  engine_options:
    description:
      - Options of the engines, a dictionary for each, by the engine's name; for instance where it is installed.
      - What is not set has its default.
    type: dict
    default: {}
  key_path:
    description: The file with the keys of the hooks.
    type: path
    default: /etc/ckpt-torque/manifest.key
"""

EXAMPLES = r"""
- name: Ask the node which engine it can run
  ckpt.torque.engine_info:
  register: node

- name: Ask for CRIU, which is compiled there; fails with the way out on an older kernel
  ckpt.torque.engine_info:
    engine: criu
    engine_options:
      criu: {path: /opt/criu/current/sbin/criu}
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
engines:
  description:
    - What the node has of each engine, by the engine's name.
    - Each has C(path), where it was looked for, and C(version), empty when it is not installed.
    - CRIU also has C(link), what C(path) itself is a link to, empty when it is none, C(program), the file that C(path) leads to in the end,
      C(capabilities), what root's bounding set holds of those that CRIU needs, and C(execmem), whether memory may be writable and
      executable at once, which SELinux can refuse. BLCR also has C(modules), those of its kernel modules that are loaded.
  returned: success
  type: dict
  sample:
    criu:
      path: /opt/criu/current/sbin/criu
      link: ""
      program: /opt/criu/4.2.1-debian13-x86_64-0c1f5a7c2b9e/sbin/criu
      version: 4.2.1
      capabilities: {checkpoint_restore: true, setpcap: true, sys_ptrace: true}
      execmem: true
    blcr: {path: /opt/blcr/current/bin, version: "", modules: []}
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
from ansible_collections.ckpt.torque.plugins.module_utils.engine.choice import AUTO, EngineError, choose
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.engines import registry
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.errors import HookError
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility, compressors, seal
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.textfile import read_text


def field(text: str, name: str) -> str:
    """Return the value of a "name: value" line, empty when there is none."""
    match = re.search(r"^%s\s*:\s*(.*)$" % re.escape(name), text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def number(text: str) -> "int | None":
    """Return int(text), or None when it is empty."""
    return int(text) if text.strip() else None


def key_ids(path: str) -> "list[str]":
    """Return the ids of the keys in a file, none when there are no keys."""
    try:
        return [name for name, _secret in seal.load_keys(path, os.geteuid())]
    except HookError:
        return []


def find_fault(engine: str, options: dict) -> str:
    """Return what is wrong with the module's parameters engine and engine_options, empty if nothing is."""
    known = registry.list_names()
    if engine not in [AUTO] + known:
        return "value of engine must be one of: %s, got: %s" % (", ".join([AUTO] + known), engine)
    for name, values in options.items():
        entry = registry.find_entry(name)
        if entry is None or not isinstance(values, dict):
            return "engine_options has dictionaries for the engines %s, got: %s" % (", ".join(known), name)
        fault = entry.find_fault(values)
        if fault:
            return "the configuration of %s %s; correct engine_options" % (name, fault)
    return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "default": AUTO},
            "engine_options": {"type": "dict", "default": {}},
            "key_path": {"type": "path", "default": "/etc/ckpt-torque/manifest.key", "no_log": False},
        },
        supports_check_mode=True,
    )
    machine, options = os.uname(), module.params["engine_options"]
    fault = find_fault(module.params["engine"], options)
    if fault:
        module.fail_json(msg="%s: %s" % (machine.nodename, fault))
    try:
        engine, reason = choose(module.params["engine"], machine.release)
    except EngineError as error:
        module.fail_json(msg="%s: %s" % (machine.nodename, error), kernel=machine.release)

    module.exit_json(
        changed=False,
        engine=engine,
        reason=reason,
        kernel=machine.release,
        arch=machine.machine,
        libc=os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "",
        engines={entry.name: entry.load().probe(entry.add_defaults(options.get(entry.name, {}))) for entry in registry.ENGINES},
        compressors=compressors.list_available(),
        key_ids=key_ids(module.params["key_path"]),
        node=compatibility.describe_node(),
        cpu_flags=sorted(field(read_text("/proc/cpuinfo"), "flags").split()),
        pids={"max": number(read_text("/proc/sys/kernel/pid_max")), "last": number(read_text("/proc/sys/kernel/ns_last_pid"))},
    )


if __name__ == "__main__":
    main()
