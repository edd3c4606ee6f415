#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: torque_artifact
short_description: Install a TORQUE or BLCR that was built once, beside the others, and switch to it
version_added: 0.2.0
description:
  - Tells which platform a host is, and so which artifact it needs.
  - Unpacks the artifact from the controller's cache where the host has it not yet, and lets the link C(current) lead to it.
  - The controller notes an artifact's SHA-256 in a file beside it when it is new. What arrives on a host is compared with that before it
    is unpacked. That finds damage, on the controller's disk or on the way; who can write to the cache can change both files.
  - One execution on a host that has it.
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
    description: The artifact is looked for on the controller.
    support: full
options:
  name:
    description: What it is.
    type: str
    choices: [torque, blcr]
    default: torque
  version:
    description: Its version.
    type: str
    required: true
  digest:
    description: What tells this build from others of the version, on every platform.
    type: str
    required: true
  state:
    description: V(asked) changes nothing.
    type: str
    choices: [installed, asked]
    default: installed
  prefix:
    description: Where artifacts are installed.
    type: path
    default: /opt/torque
  cache:
    description: The controller's directory of artifacts.
    type: path
    required: true
  archive:
    description: The artifact on the host. Filled in by the controller.
    type: path
  checksum:
    description: SHA-256 of the artifact. Filled in by the controller.
    type: str
"""

EXAMPLES = r"""
- name: Install TORQUE
  ckpt.torque.torque_artifact:
    version: 6.1.3
    digest: 5ec1b3943a7a
    cache: /root/.cache/ckpt-torque/artifacts
"""

RETURN = r"""
platform:
  description: System, its major version and architecture.
  returned: success
  type: str
  sample: debian13-x86_64
family:
  description: V(Debian) or V(RedHat), by whose packages it installs; empty for others.
  returned: success
  type: str
package_formats:
  description: The kinds of packages that the host has the tool to make, of V(deb) and V(rpm).
  returned: success
  type: list
  elements: str
  sample: [deb]
key:
  description: The artifact's name.
  returned: success
  type: str
  sample: 6.1.3-debian13-x86_64-5ec1b3943a7a
path:
  description: Where the artifact is on the controller, or would be.
  returned: success
  type: str
available:
  description: Whether it is there.
  returned: success
  type: bool
installed:
  description: Whether the host had it before.
  returned: success
  type: bool
current:
  description: The name of the artifact that the link led to before; empty when there was none.
  returned: success
  type: str
"""

import hashlib
import os
import re
import shutil
import tarfile
import zlib

from ansible.module_utils.basic import AnsibleModule

MANIFEST = "ckpt-torque.json"
PACKAGERS = (("deb", "dpkg-deb"), ("rpm", "rpmbuild"))
LINK = "current"


def read(path):
    """Return a file's text (str), empty when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def system(release, redhat):
    """Return (name and major version, family), both str, of a system.

    :param release: text of /etc/os-release
    :param redhat: text of /etc/redhat-release, for EL6, which has no other
    """
    fields = dict(re.findall(r"""^(\w+)=["']?([^"'\n]*)["']?$""", release, re.MULTILINE))
    if not fields and redhat:
        fields = {"ID": "rhel", "VERSION_ID": (re.findall(r"release (\d+)", redhat) or [""])[0]}
    names = [fields.get("ID", "linux")] + fields.get("ID_LIKE", "").split()
    family = "Debian" if "debian" in names else "RedHat" if {"rhel", "fedora", "centos"} & set(names) else ""
    return names[0] + fields.get("VERSION_ID", "").split(".")[0], family


def relocated(members, inside):
    """Return the members beneath the directory inside (str), from now on named from there: {name: TarInfo}.

    :raises ValueError: when one would be put elsewhere, by its name or through a link, or is no file, directory or link
    """
    found = {}
    for member in members:
        if not (member.name + "/").startswith(inside + "/"):
            continue
        parts = os.path.relpath(member.name, inside).split(os.sep)
        above = [found.get(os.sep.join(parts[:end])) for end in range(1, len(parts))]
        if parts[0] == os.pardir or any(each and each.issym() for each in above):  # a link may lead anywhere
            raise ValueError("it would put %s elsewhere" % member.name)
        if os.sep.join(parts) in found:
            raise ValueError("it holds %s twice" % member.name)
        member.name = os.sep.join(parts)
        if member.islnk():
            member.linkname = os.path.relpath(member.linkname, inside)
            if member.linkname not in found or not found[member.linkname].isfile():
                raise ValueError("%s is a link to no file of it" % member.name)
        elif not (member.isfile() or member.isdir() or member.issym()):
            raise ValueError("%s is no file, directory or link" % member.name)
        found[member.name] = member
    return found


def unpack(archive, inside, place):
    """Unpack the directory inside (str) of the archive to a new directory, with owners and modes: pbs_iff is setuid root.

    :raises ValueError: when the archive does not hold it whole
    """
    with tarfile.open(archive, "r:gz", errorlevel=2) as tar:  # 2: an owner or mode that cannot be set is an error
        tar.extraction_filter = lambda member, path: member  # Python 3.14's own takes setuid away
        members = relocated(tar.getmembers(), inside)
        tar.fileobj.read()  # to its end, where gzip has the checksum
        if MANIFEST not in members:
            raise ValueError("it holds no %s/%s" % (inside, MANIFEST))
        os.mkdir(place, 0o755)
        tar.extractall(place, members.values(), numeric_owner=True)


def label(module, draft, place):
    """Give what was unpacked (path, str) the contexts that SELinux's policy has for where it will be (path, str).

    Without them systemd would start pbs_mom in its own domain.
    """
    if module.selinux_enabled():
        for top, directories, files in os.walk(draft):
            for path in [top] + [os.path.join(top, name) for name in directories + files]:
                module.set_context_if_different(path, module.selinux_default_context(place + path[len(draft):]), False)


def install(module, archive, key, prefix):
    """Unpack the archive (str, None when that was done) beside the other artifacts and let the link lead to it.

    Both appear when they are whole.
    """
    place, draft = os.path.join(prefix, key), os.path.join(prefix, ".%s.%s" % (key, os.uname().nodename))  # hosts may share it
    shutil.rmtree(draft, ignore_errors=True)  # left by a run that was killed
    os.makedirs(draft)
    try:
        if archive:
            unpack(archive, os.path.join(prefix.strip("/"), key), os.path.join(draft, "new"))
            label(module, os.path.join(draft, "new"), place)
            if os.path.lexists(place):  # a part of one: it has no manifest
                os.rename(place, os.path.join(draft, "old"))
            os.rename(os.path.join(draft, "new"), place)
        os.symlink(key, os.path.join(draft, "link"))
        os.rename(os.path.join(draft, "link"), os.path.join(prefix, LINK))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check(archive, checksum):
    """Compare an archive (path, str) with its sha256 (str, None when nobody knows it).

    :raises ValueError: when it is another
    """
    digest = hashlib.sha256()
    with open(archive, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    if checksum not in (None, digest.hexdigest()):
        raise ValueError("it is not the file that was built: its sha256 is %s, the file beside it in the controller's cache says %s"
                         % (digest.hexdigest(), checksum))


def cure(error):
    """Return what to do (str) about an error of install: the host's, or else the archive's."""
    if getattr(error, "errno", None) or isinstance(error, tarfile.ExtractError):
        return "mend that and run it again"
    return "remove it, and the .sha256 beside it, from the controller's cache and build it again"


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "choices": ["torque", "blcr"], "default": "torque"},
            "version": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["installed", "asked"], "default": "installed"},
            "prefix": {"type": "path", "default": "/opt/torque"},
            "cache": {"type": "path", "required": True},
            "archive": {"type": "path"},
            "checksum": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params, machine = module.params, os.uname()
    name, family = system(read("/etc/os-release"), read("/etc/redhat-release"))
    platform = "%s-%s" % (name, machine.machine)
    key = "%s-%s-%s" % (params["version"], platform, params["digest"])
    place, link = os.path.join(params["prefix"], key), os.path.join(params["prefix"], LINK)
    installed = os.path.isfile(os.path.join(place, MANIFEST))
    current = os.readlink(link) if os.path.islink(link) else ""
    result = {"platform": platform, "family": family, "key": key, "installed": installed, "current": current,
              "package_formats": [kind for kind, program in PACKAGERS if module.get_bin_path(program)]}
    if params["state"] == "asked":
        module.exit_json(changed=False, **result)
    if not os.path.isabs(params["prefix"]):
        module.fail_json(msg="%s: prefix %s is not an absolute path; name it in full; nothing was changed"
                         % (machine.nodename, params["prefix"]))
    result["diff"] = {"before": "%s -> %s\n" % (link, current) if current else "", "after": "%s -> %s\n" % (link, key)}
    if os.path.lexists(link) and not os.path.islink(link):
        module.fail_json(msg="%s: %s is not a link; move it away, it would hide the %s that is installed; nothing was changed"
                         % (machine.nodename, link, params["name"].upper()))
    if not module.check_mode and (installed or params["archive"]):
        os.umask(0o022)  # users must be able to enter
        try:
            if not installed:
                check(params["archive"], params["checksum"])
            if not installed or current != key:
                install(module, None if installed else params["archive"], key, params["prefix"])
        except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
            module.fail_json(msg="%s: cannot install the artifact %s: %s; %s" % (machine.nodename, key, error, cure(error)))
    module.exit_json(changed=not installed or current != key, **result)


if __name__ == "__main__":
    main()
