# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a build yields, as an artifact: which one a host needs, and how it gets onto the host."""

import hashlib
import json
import os
import re
import shutil
import tarfile

from ..torque_ckpt.system.textfile import read_text

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable

MANIFEST = "ckpt-torque.json"
PACKAGERS = (("deb", "dpkg-deb"), ("rpm", "rpmbuild"))
LINK = "current"


def identify_system(release: str, redhat: str) -> "tuple[str, str]":
    """Return (name and major version, family) of a system.

    :param release: text of /etc/os-release
    :param redhat: text of /etc/redhat-release, for EL6, which has no other
    """
    fields = dict(re.findall(r"""^(\w+)=["']?([^"'\n]*)["']?$""", release, re.MULTILINE))
    if not fields and redhat:
        fields = {"ID": "rhel", "VERSION_ID": (re.findall(r"release (\d+)", redhat) or [""])[0]}
    names = [fields.get("ID", "linux")] + fields.get("ID_LIKE", "").split()
    family = "Debian" if "debian" in names else "RedHat" if {"rhel", "fedora", "centos"} & set(names) else ""
    return names[0] + fields.get("VERSION_ID", "").split(".")[0], family


def select_members(members: "Iterable[tarfile.TarInfo]", inside: str) -> "dict[str, tarfile.TarInfo]":
    """Return the members beneath the directory inside by their names, which are relative to it from now on.

    :raises ValueError: when one would be put elsewhere, by its name or through a link, or is no file, directory or link
    """
    selected: "dict[str, tarfile.TarInfo]" = {}
    for member in members:
        if not (member.name + "/").startswith(inside + "/"):
            continue
        parts = os.path.relpath(member.name, inside).split(os.sep)
        above = [selected.get(os.sep.join(parts[:end])) for end in range(1, len(parts))]
        if parts[0] == os.pardir or any(each and each.issym() for each in above):  # a link may lead anywhere
            raise ValueError("it would put %s elsewhere" % member.name)
        if os.sep.join(parts) in selected:
            raise ValueError("it holds %s twice" % member.name)
        member.name = os.sep.join(parts)
        if member.islnk():
            member.linkname = os.path.relpath(member.linkname, inside)
            if member.linkname not in selected or not selected[member.linkname].isfile():
                raise ValueError("%s is a link to no file of it" % member.name)
        elif not (member.isfile() or member.isdir() or member.issym()):
            raise ValueError("%s is no file, directory or link" % member.name)
        selected[member.name] = member
    return selected


def unpack(archive: str, inside: str, target: str) -> None:
    """Unpack the directory inside of the archive to a new directory, with owners and modes: pbs_iff is setuid root.

    :raises ValueError: when the archive does not hold it whole
    """
    with tarfile.open(archive, "r:gz", errorlevel=2) as tar:  # 2: an owner or mode that cannot be set is an error
        tar.extraction_filter = lambda member, path: member  # Python 3.14's own takes setuid away
        members = select_members(tar.getmembers(), inside)
        tar.fileobj.read(-1)  # to its end, where gzip has the checksum
        if MANIFEST not in members:
            raise ValueError("it holds no %s/%s" % (inside, MANIFEST))
        os.mkdir(target, 0o755)
        tar.extractall(target, members.values(), numeric_owner=True)


def install(archive: "str | None", key: str, prefix: str, label: "Callable[[str, str], None]",
            switch: bool = True) -> None:
    """Unpack the archive (None when that was done) beside the other artifacts and point the link to it.

    Both appear when they are whole.

    :param key: the artifact's name
    :param prefix: the directory of artifacts
    :param label: called with the directory that was unpacked and the path it will have, to give it SELinux contexts
    :param switch: whether the link is to lead to it
    """
    target, draft = os.path.join(prefix, key), os.path.join(prefix, ".%s.%s" % (key, os.uname().nodename))  # hosts may share it
    shutil.rmtree(draft, ignore_errors=True)  # left by a run that was killed
    os.makedirs(draft)
    try:
        if archive:
            unpack(archive, os.path.join(prefix.strip("/"), key), os.path.join(draft, "new"))
            label(os.path.join(draft, "new"), target)
            os.sync()  # or a power loss may leave the directory under its name and its files empty
            if os.path.lexists(target):  # a part of one
                os.rename(target, os.path.join(draft, "old"))
            os.rename(os.path.join(draft, "new"), target)
        if switch:
            os.symlink(key, os.path.join(draft, "link"))
            os.rename(os.path.join(draft, "link"), os.path.join(prefix, LINK))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_archive(archive: str, checksum: "str | None") -> None:
    """Compare an archive (path) with its sha256 (None when nobody knows it).

    :raises ValueError: when it differs
    """
    digest = hashlib.sha256()
    with open(archive, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    if checksum not in (None, digest.hexdigest()):
        raise ValueError("it is not the file that was built: its sha256 is %s, the file beside it in the controller's cache says %s"
                         % (digest.hexdigest(), checksum))


def advise(error: Exception) -> str:
    """Return what to do about an error of install: the host's, or else the archive's."""
    if getattr(error, "errno", None) or isinstance(error, tarfile.ExtractError):
        return "fix that and run it again"
    return "remove it, and the .sha256 beside it, from the controller's cache and build it again"


def read_platform() -> "tuple[str, str]":
    """Return this host's platform, such as debian13-x86_64, and its family: Debian or RedHat, empty for others."""
    name, family = identify_system(read_text("/etc/os-release"), read_text("/etc/redhat-release"))
    return "%s-%s" % (name, os.uname().machine), family


def is_installed(directory: str, programs: "list[str]") -> bool:
    """Return whether a directory holds a whole artifact: a manifest, which a power loss may empty, and the programs (paths in it)."""
    try:
        json.loads(read_text(os.path.join(directory, MANIFEST)))
    except ValueError:
        return False
    return all(os.path.isfile(os.path.join(directory, name)) for name in programs)


def describe(version: str, digest: str, prefix: str, programs: "list[str]", find_program: "Callable[[str], str | None]") -> dict:
    """Return which artifact this host needs and which it has, as the modules return it.

    :param version: of the program
    :param digest: what tells its builds apart
    :param prefix: the directory of artifacts
    :param programs: files of the artifact (paths in it) without which it is not whole
    :param find_program: like AnsibleModule.get_bin_path
    """
    platform, family = read_platform()
    key = "%s-%s-%s" % (version, platform, digest)
    link = os.path.join(prefix, LINK)
    return {"platform": platform, "family": family, "key": key, "installed": is_installed(os.path.join(prefix, key), programs),
            "current": os.readlink(link) if os.path.islink(link) else "",
            "package_formats": [kind for kind, program in PACKAGERS if find_program(program)]}
