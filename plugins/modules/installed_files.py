#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: installed_files
short_description: Install text files and a Python package of this collection, in one remote execution
version_added: 0.1.0
description:
  - Writes files owned by root and writable by nobody else. Each is replaced by a rename, so that whoever opens it
    meanwhile sees the old file or the new one.
  - Can make a directory hold exactly a Python package of this collection and the named files. What else is there is
    removed. The package is compiled so that it starts fast where its users cannot write.
  - One execution for all files, where M(ansible.builtin.copy) and M(ansible.builtin.template) need five for each. The package is sent
    in a second one, and only where it differs.
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    description: Files that change are shown in full, new ones and those in O(path) in one line.
    support: partial
  idempotent:
    support: full
  action:
    description: The package is read on the controller.
    support: full
options:
  path:
    description: The directory on the node that will hold nothing else. Goes with O(package).
    type: path
  package:
    description: The Python package, one of this collection's C(plugins/module_utils).
    type: str
  files:
    description: Texts by path; relative paths are in O(path).
    type: dict
    default: {}
  secrets:
    description: Texts by absolute path that root alone may read; never shown, not even in the difference.
    type: dict
    default: {}
  executables:
    description: Which of O(files) can be executed.
    type: list
    elements: str
    default: []
  directories:
    description: Directories by absolute path which another program creates, by what O(files) tell it; see RV(missing).
    type: list
    elements: path
    default: []
    version_added: 0.3.0
  python:
    description: The interpreter that runs the hooks, by absolute path.
    type: path
    default: /usr/bin/python3
  digests:
    description: The SHA-256 of the package's files by relative path. Filled in by the controller.
    type: dict
    default: {}
    version_added: 0.4.0
  contents:
    description: The package's files by relative path. Filled in by the controller, when they differ.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Install a unit
  ckpt.torque.installed_files:
    files:
      /etc/systemd/system/example.service: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"

- name: Install the hooks
  ckpt.torque.installed_files:
    path: /usr/lib/ckpt-torque
    package: torque_ckpt
    files:
      run: "{{ lookup('ansible.builtin.template', 'entry.py.j2') }}"
      /etc/ckpt-torque/hooks.json: "{{ settings | to_nice_json }}"
    executables: [run]
"""

RETURN = r"""
written:
  description: The files that differed.
  returned: success
  type: list
  elements: str
removed:
  description: What was in the directory but does not belong there.
  returned: success
  type: list
  elements: str
complete:
  description: Whether the node has all of it, and nothing else in O(path). False in check mode if something differs.
  returned: success
  type: bool
  version_added: 0.4.0
missing:
  description: Which of O(directories) do not exist.
  returned: success
  type: list
  elements: str
  version_added: 0.3.0
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.install import Installation, list_foreign


def refuse_harm(module: AnsibleModule, root: str, package: str, wanted: "set[str]") -> None:
    """End with a sentence when the parameters would do harm; wanted: the paths that will be there."""
    params = module.params
    lost = sorted([name for name in params["files"] if params["path"] is None and not os.path.isabs(name)]
                  + [name for name in params["secrets"] if not os.path.isabs(name)])
    if lost:
        module.fail_json(msg="%s is not an absolute path; name it in full or name a path; nothing was changed" % ", ".join(lost))
    if params["path"] is None:
        return
    if not os.path.isabs(params["path"]) or root.count("/") < 2:
        module.fail_json(msg="path %s would be emptied of everything else; name a directory of its own, at least two levels deep; "
                         "nothing was changed" % params["path"])
    if not os.path.lexists(package) and list_foreign(root, wanted):
        module.fail_json(msg="path %s holds other files, which would be removed; name a directory of its own; nothing was changed" % root)
    if not os.path.isfile(params["python"]) or not os.access(params["python"], os.X_OK):
        module.fail_json(msg="%s cannot be executed on this node; install Python 3.6 or newer or set checkpoint_hooks_python; "
                         "nothing was changed" % params["python"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "package": {"type": "str"},
            "files": {"type": "dict", "default": {}},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "executables": {"type": "list", "elements": "str", "default": []},
            "directories": {"type": "list", "elements": "path", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "digests": {"type": "dict", "default": {}},
            "contents": {"type": "dict", "default": {}},
        },
        required_together=[("path", "package")],
        supports_check_mode=True,
    )
    os.umask(0o022)  # users must be able to read what is created here
    params = module.params
    whole = params["path"] is not None
    root = "/" + os.path.normpath(params["path"]).lstrip("/") if whole else "/"
    package = os.path.join(root, params["package"]) if whole else ""
    digests = {os.path.join(package, name): digest for name, digest in params["digests"].items()}
    wanted: "dict[str, tuple[str | None, int]]" = dict.fromkeys(digests, (None, 0o644))
    wanted.update({os.path.join(package, name): (text, 0o644) for name, text in params["contents"].items()})
    for name, text in params["files"].items():
        wanted[os.path.join(root, name)] = (text, 0o755 if name in params["executables"] else 0o644)
    for name, text in params["secrets"].items():
        wanted[name] = (text, 0o600)
    refuse_harm(module, root, package, set(wanted))

    installation = Installation(wanted, root if whole else None, package if whole else None, digests)
    if not installation.is_ready and not module.check_mode:
        module.exit_json(changed=False, contents_needed=True)
    answer = {"changed": installation.changed, "written": installation.written, "removed": installation.removed,
              "complete": not (module.check_mode and installation.changed),
              "missing": [path for path in params["directories"] if not os.path.isdir(path)]}
    if module._diff:
        answer["diff"] = installation.list_differences(params["secrets"])
    if not module.check_mode:
        try:
            installation.install()
        except OSError as error:
            module.fail_json(msg="cannot install the files: %s" % error)
        if installation.compiling:
            module.run_command([params["python"], "-I", "-m", "compileall", "-q", package], check_rc=True)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
