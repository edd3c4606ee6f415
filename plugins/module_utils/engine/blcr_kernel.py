# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node has of BLCR, and must have so that its kernel modules can be built and loaded: reading and checking it."""

import grp
import hashlib
import os
import re

from ..torque_ckpt.system.textfile import read_text
from .choice import dotted, numbers

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable

LAST = {"0.8.5": (3, 7), "0.8.6_b4": (3, 17)}
"""The last kernel that each version of BLCR knows."""
MODULES = ("blcr_imports", "blcr")
"""In the order in which they are loaded."""
CAP_SYS_MODULE = 16
REFERENCE_SYMBOLS = ("init_task", "sys_call_table", "linux_banner")
"""Symbols whose address tells one kernel build from another."""


def parse_addresses(lines: "Iterable[str]") -> "dict[str, str]":
    """Return the addresses (by name, without leading zeros) of REFERENCE_SYMBOLS in lines of a symbol table."""
    values = {}
    for line in lines:
        words = line.split()
        if len(words) >= 3 and words[2] in REFERENCE_SYMBOLS:
            values[words[2]] = words[0].lstrip("0")
    return {name: address for name, address in values.items() if address}  # who may not read them gets zeros


def read_addresses(path: str) -> "dict[str, str]":
    """Return the addresses in a symbol table file, empty when it cannot be read."""
    try:
        with open(path, "r") as stream:
            return parse_addresses(stream)
    except (OSError, UnicodeDecodeError):
        return {}


def find_system_map(release: str, tree: str, given: str, root: str = "/") -> str:
    """Return where the symbol table of a kernel is, empty when it is nowhere.

    :param release: the kernel's; tree: where it was compiled or its headers are; given: what the site names
    """
    if given:
        return given
    for path in (os.path.join(root, "boot", "System.map-" + release), os.path.join(tree, "System.map"),
                 os.path.join(root, "lib/modules", release, "System.map")):
        if os.path.isfile(path):
            return path
    return ""


def read_tree_release(tree: str) -> str:
    """Return of which kernel a tree or headers are, empty when they were not prepared."""
    match = re.search(r'UTS_RELEASE "([^"]+)"', read_text(os.path.join(tree, "include/generated/utsrelease.h")) or
                      read_text(os.path.join(tree, "include/linux/utsrelease.h")))
    return match.group(1) if match else ""


def find_signing_rule(root: str = "/") -> str:
    """Return what restricts the kernel to signed modules, empty when nothing does."""
    lockdown = re.search(r"\[(\w+)\]", read_text(os.path.join(root, "sys/kernel/security/lockdown")))
    if lockdown and lockdown.group(1) != "none":
        return "lockdown %s" % lockdown.group(1)
    if read_text(os.path.join(root, "sys/module/module/parameters/sig_enforce")).strip() == "Y":
        return "module.sig_enforce"
    return ""


def list_module_files(release: str, root: str = "/") -> "dict[str, str]":
    """Return the files (paths by the module's name) that modprobe would load of BLCR for a kernel."""
    top = os.path.join(root, "lib/modules", release)
    names = (line.split(":", 1)[0] for line in read_text(os.path.join(top, "modules.dep")).splitlines())
    files = {os.path.basename(name).split(".ko")[0]: os.path.join(top, name) for name in names if "/blcr" in name}
    return {name: files[name] for name in MODULES if os.path.isfile(files.get(name, ""))}


def list_kernels_without_modules(release: str, root: str = "/") -> "list[str]":
    """Return the releases (sorted) of the installed kernels besides the running one that have no modules of BLCR."""
    top = os.path.join(root, "lib/modules")
    releases = os.listdir(top) if os.path.isdir(top) else []
    return sorted(name for name in releases if name != release and os.path.isfile(os.path.join(top, name, "modules.dep"))
                  and len(list_module_files(name, root)) < len(MODULES))


def is_outdated(files: "dict[str, str]", root: str = "/") -> "bool | None":
    """Whether other modules are loaded than those in files (from list_module_files); None if that cannot be known.

    The linker gives each module an id of its own, which is in the file and, for one that is loaded, in /sys.
    """
    differ = []
    for name, path in files.items():
        ids, text = _read_bytes(os.path.join(root, "sys/module", name, "notes/.note.gnu.build-id")), _read_bytes(path)
        if ids and text.startswith(b"\x7fELF"):  # not a compressed one
            differ.append(ids not in text)
    return any(differ) if differ else None


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def list_users(root: str = "/") -> "list[dict]":
    """Return who has BLCR's library mapped and so could not continue without the modules: {"pid": int, "job": str, empty for none}."""
    users = []
    for pid in sorted(int(name) for name in os.listdir(os.path.join(root, "proc")) if name.isdigit()):
        directory = os.path.join(root, "proc", str(pid))
        if re.search(rb"/libcr(_run|_omit)?\.so", _read_bytes(os.path.join(directory, "maps"))):
            job = re.search(rb"(?:^|\0)PBS_JOBID=([^\0]*)", _read_bytes(os.path.join(directory, "environ")))
            users.append({"pid": pid, "job": job.group(1).decode("utf-8", "replace") if job else ""})
    return users


def read_ctrl(root: str = "/") -> "dict[str, str]":
    """Return who may use the modules: group and mode of /proc/checkpoint/ctrl; empty when they are not loaded."""
    try:
        status = os.stat(os.path.join(root, "proc/checkpoint/ctrl"))
    except OSError:
        return {}
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return {"group": group, "mode": "%04o" % (status.st_mode & 0o7777)}


def list_dkms_versions(root: str = "/") -> "list[str]":
    """Return the versions (sorted) of BLCR that DKMS has."""
    top = os.path.join(root, "var/lib/dkms/blcr")
    return sorted(name for name in (os.listdir(top) if os.path.isdir(top) else []) if os.path.lexists(os.path.join(top, name, "source")))


def _hash_file(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):  # a locale-archive has 100 MB
                digest.update(chunk)
    except OSError:
        return "none"
    return digest.hexdigest()[:16]


def read_common_facts(root: str = "/") -> "dict[str, str]":
    """Return what nodes must have in common so that an image restarts on each of them.

    libc, loader, locales: hashes, the third of the locale-archive, which every program that has a locale has mapped; nscd: whether it
    runs, for programs that ask it have its files mapped; randomize_va_space, vdso: how the kernel lays out processes.
    """
    maps = read_text(os.path.join(root, "proc/self/maps"))
    mapped = sorted(set(re.findall(r"(/\S*/(?:libc[-.]|ld-)[^/\s]*so[^/\s]*)$", maps, re.MULTILINE)))
    libc = [path for path in mapped if "/libc" in path]
    loader = [path for path in mapped if "/ld-" in path]
    vdso = [read_text(os.path.join(root, "proc/sys", name)).strip() for name in ("vm/vdso_enabled", "kernel/vdso", "abi/vsyscall32")]
    return {
        "libc": _hash_file(os.path.join(root, libc[0].lstrip("/"))) if libc else "none",
        "loader": _hash_file(os.path.join(root, loader[0].lstrip("/"))) if loader else "none",
        "locales": _hash_file(os.path.join(root, "usr/lib/locale/locale-archive")),
        "nscd": "runs" if os.path.exists(os.path.join(root, "run/nscd/socket")) else "does not run",
        "randomize_va_space": read_text(os.path.join(root, "proc/sys/kernel/randomize_va_space")).strip(),
        "vdso": next((value for value in vdso if value), ""),
    }


def uses_prelink(root: str = "/") -> bool:
    """Whether prelink changes this node's programs, on each node differently, or has done so."""
    if os.path.exists(os.path.join(root, "etc/prelink.cache")):
        return True
    if not any(os.path.exists(os.path.join(root, directory, "prelink")) for directory in ("usr/sbin", "sbin")):
        return False
    return any(re.search(r"^\s*PRELINKING=[\"']?yes", read_text(os.path.join(root, path)), re.MULTILINE)
               for path in ("etc/sysconfig/prelink", "etc/default/prelink"))


def get_boot_file(root: str = "/") -> str:
    """Return the file in which this system expects the names of modules to load at boot."""
    if os.path.isdir(os.path.join(root, "etc/modules-load.d")):
        return "/etc/modules-load.d/ckpt-torque-blcr.conf"
    return "/etc/sysconfig/modules/ckpt-torque-blcr.modules"  # a script, before systemd


def read_kernel_build(release: str, tree: str, system_map: str, root: str = "/") -> dict:
    """Return what this node has: kernel, tree, tree_release, system_map, signed_only (str), loaded (list of str),
    can_load, loading_disabled (bool), same_addresses (bool, None if the kernel does not show its addresses).

    :param release: the running kernel's
    :param tree: where it was compiled or its headers are; empty: /lib/modules/RELEASE/build
    :param system_map: its symbol table; empty: searched for
    """
    tree = tree or os.path.join(root, "lib/modules", release, "build")
    map_path = find_system_map(release, tree, system_map, root)
    of_map, of_kernel = read_addresses(map_path), read_addresses(os.path.join(root, "proc/kallsyms"))
    common = set(of_map) & set(of_kernel)
    bounding = re.search(r"^CapBnd:\s*(\S+)", read_text(os.path.join(root, "proc/self/status")), re.MULTILINE)
    modules = [line.split()[0] for line in read_text(os.path.join(root, "proc/modules")).splitlines()]
    return {
        "kernel": release, "tree": tree, "tree_release": read_tree_release(tree),
        "system_map": map_path if os.path.isfile(map_path) else "",
        "signed_only": find_signing_rule(root), "loaded": [name for name in modules if name in MODULES],
        "can_load": bool(int(bounding.group(1), 16) >> CAP_SYS_MODULE & 1) if bounding else False,
        "loading_disabled": read_text(os.path.join(root, "proc/sys/kernel/modules_disabled")).strip() == "1",
        "same_addresses": all(of_map[name] == of_kernel[name] for name in common) if common else None,
    }


def find_load_fault(build: dict, version: str, signed: bool = False) -> str:
    """Return why this node cannot load BLCR, empty when it can.

    :param build: from read_kernel_build(); version: of BLCR; signed: whether the modules will be
    """
    release = build["kernel"]
    if version in LAST and numbers(release) > LAST[version]:
        fits = [name for name, last in sorted(LAST.items()) if numbers(release) <= last]
        cure = "set blcr_version to %s" % fits[0] if fits else "set checkpoint_engine to criu or auto"
        return "BLCR %s knows kernels up to %s, this node runs %s; %s" % (version, dotted(LAST[version]), release, cure)
    if set(build["loaded"]) == set(MODULES):
        return ""
    if not build["can_load"]:
        return ("root's bounding set lacks CAP_SYS_MODULE, as in a container, so that no kernel module can be loaded; load BLCR on the "
                "host that runs the container, or set checkpoint_engine to criu")
    if build["loading_disabled"]:
        return "the loading of kernel modules is forbidden until the next boot (kernel.modules_disabled is 1); boot the node without that"
    if build["signed_only"] and not signed:
        return ("the kernel takes signed modules only (%s), and those of BLCR are not signed; name a key that the kernel trusts in "
                "blcr_signing_key, switch that off (secure boot, lockdown) or set checkpoint_engine to criu" % build["signed_only"])
    return ""


def find_build_fault(build: dict) -> str:
    """Return why BLCR cannot be built for this node, empty when it can; build: from read_kernel_build()."""
    release = build["kernel"]
    if not build["tree_release"]:
        return ("there are no headers of kernel %s at %s; install kernel-devel-%s or linux-headers-%s, or name the tree in which it was "
                "compiled in blcr_kernel_tree" % (release, build["tree"], release, release))
    if build["tree_release"] != release:
        return "%s is of kernel %s, this node runs %s; boot that one, or correct blcr_kernel_tree" % (
            build["tree"], build["tree_release"], release)
    if not build["system_map"]:
        return "there is no symbol table of kernel %s; name its System.map in blcr_system_map" % release
    if build["same_addresses"] is False:
        return ("%s is not of the running kernel: it has other addresses; name the System.map of this very build in blcr_system_map, and "
                "boot with nokaslr where the kernel moves itself" % build["system_map"])
    return ""
