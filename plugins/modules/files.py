#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: files
short_description: Install text files and a Python package of this collection, in one remote execution
version_added: 0.1.0
description:
  - Writes files owned by root and writable by nobody else. Each is replaced by a rename, so that whoever opens it
    meanwhile sees the old file or the new one.
  - Can make a directory hold exactly a Python package of this collection and the named files. What else is there is
    removed. The package is compiled so that it starts fast where its users cannot write.
  - One execution for all files, where M(ansible.builtin.copy) and M(ansible.builtin.template) need five for each.
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
  python:
    description: The interpreter that runs the hooks, by absolute path.
    type: path
    default: /usr/bin/python3
  contents:
    description: The package's files by relative path. Filled in by the controller.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Install a unit
  ckpt.torque.files:
    files:
      /etc/systemd/system/example.service: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"

- name: Install the hooks
  ckpt.torque.files:
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
"""

import glob
import os
import shutil
import stat
import tempfile

from ansible.module_utils.basic import AnsibleModule


def difference(path, text, mode):
    """Return the file's present text (str) if it must be written, else None."""
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "(not a regular file)"
    present = read(path)
    if present == text and stat.S_IMODE(status.st_mode) == mode and (status.st_uid, status.st_gid) == (0, 0):
        return None
    return present


def read(path):
    """Return a file's text (str)."""
    with open(path, "rb") as stream:
        return stream.read().decode("utf-8", "replace")


def write(path, text, mode):
    """Put the file in its place in one step."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".ckpt-torque-", dir=directory)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(text.encode("utf-8"))
        os.fchmod(stream.fileno(), mode)
        os.fchown(stream.fileno(), 0, 0)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    os.rename(draft, path)


def remove(path):
    """Remove a file or a directory with all that is in it; never what a link leads to."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def is_roots(path, mode):
    """Whether path itself is root's with this mode (int)."""
    status = os.lstat(path)
    return (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, mode)


def strays(root, wanted):
    """Return what is in root but not among the wanted paths (set of str), sorted.

    Compiled files of wanted ones may stay if nobody but root could have written them.
    """
    found = []
    for directory, subdirectories, names in os.walk(root):
        for name in list(subdirectories):
            path = os.path.join(directory, name)
            needed = name == "__pycache__" or any(entry.startswith(path + "/") for entry in wanted)
            if os.path.islink(path) or not needed:
                found.append(path)
                subdirectories.remove(name)
        for name in names:
            path = os.path.join(directory, name)
            source = os.path.join(os.path.dirname(directory), name.split(".")[0] + ".py")
            compiled = os.path.basename(directory) == "__pycache__" and source in wanted
            if path not in wanted and not (compiled and not os.path.islink(path) and is_roots(path, 0o644)):
                found.append(path)
    return sorted(found)


def directories(root):
    """Return the directories (list of str) at and beneath root whose owner or mode is wrong."""
    return sorted(path for path, _subdirectories, _names in os.walk(root) if not is_roots(path, 0o755))


def uncompiled(package):
    """Return the sources (list of str) of a package that have no compiled file."""
    return [path for path in glob.glob(package + "/**/*.py", recursive=True)
            if not glob.glob("%s/__pycache__/%s.*.pyc" % (os.path.dirname(path), os.path.basename(path)[:-3]))]


def refuse(module, root, package):
    """End with a sentence when the parameters would do harm."""
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
    if os.path.isdir(root) and os.listdir(root) and not os.path.lexists(package):
        module.fail_json(msg="path %s holds other files, which would be removed; name a directory of its own; nothing was changed" % root)
    if not os.path.isfile(params["python"]) or not os.access(params["python"], os.X_OK):
        module.fail_json(msg="%s cannot be executed on this node; install Python 3.6 or newer or set checkpoint_hooks_python; "
                         "nothing was changed" % params["python"])


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "package": {"type": "str"},
            "files": {"type": "dict", "default": {}},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "executables": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "contents": {"type": "dict", "default": {}},
        },
        required_together=[("path", "package")],
        supports_check_mode=True,
    )
    os.umask(0o022)  # users must be able to read what is made here
    params = module.params
    whole = params["path"] is not None
    root = "/" + os.path.normpath(params["path"]).lstrip("/") if whole else "/"
    package = os.path.join(root, params["package"]) if whole else ""
    refuse(module, root, package)
    wanted = {os.path.join(package, name): (text, 0o644) for name, text in params["contents"].items()}
    for name, text in params["files"].items():
        wanted[os.path.join(root, name)] = (text, 0o755 if name in params["executables"] else 0o644)
    for name, text in params["secrets"].items():
        wanted[name] = (text, 0o600)

    removed = strays(root, set(wanted)) if whole and os.path.isdir(root) else []
    diffs = [{"before_header": path, "after_header": path, "after": "",
              "before": read(path) if os.path.isfile(path) and not os.path.islink(path) else "(not a regular file)"} for path in removed]
    written = []
    for path, (text, mode) in sorted(wanted.items()):
        gone = any(path.startswith(stray + "/") for stray in removed)
        present = "" if gone else difference(path, text, mode)
        if present is not None:
            written.append(path)
            shown = ("(secret)\n", "(another secret)\n") if path in params["secrets"] else (present, text)
            diffs.append({"before_header": path, "after_header": path, "before": shown[0], "after": shown[1]})
    wrong = directories(root) if whole else []
    compiling = whole and bool(written or removed or uncompiled(package))
    if not module.check_mode:
        try:
            for path in removed:
                remove(path)
            for path in written:
                write(path, *wanted[path])
            for path in directories(root) if whole else []:
                os.chown(path, 0, 0)
                os.chmod(path, 0o755)
        except OSError as error:
            module.fail_json(msg="cannot install the files: %s" % error)
        if compiling:
            module.run_command([params["python"], "-I", "-m", "compileall", "-q", package], check_rc=True)
    module.exit_json(changed=bool(written or removed or wrong or compiling), written=written, removed=removed, diff=diffs)


if __name__ == "__main__":
    main()
