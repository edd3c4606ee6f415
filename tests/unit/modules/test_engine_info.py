"""engine_info: what it says of this node is what the node says of itself."""

import json
import os
import platform
import re
import shutil

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.engine import choice
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.image import compatibility
from ansible_collections.ckpt.torque.plugins.modules import engine_info

MACHINE = os.uname()
KERNEL = choice.numbers(MACHINE.release)

on_criu_kernel = pytest.mark.skipif(KERNEL < (5, 9), reason="this kernel is older than 5.9")
off_blcr_kernel = pytest.mark.skipif((2, 6) <= KERNEL <= (3, 17), reason="BLCR can run on this kernel")


def text(path):
    """Return a file's text (str), empty when this kernel has no such file."""
    try:
        with open(path) as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("given, name, value", [
    ("Version: 4.2.1\nGitID: v4.2.1\n", "Version", "4.2.1"),
    ("flags\t\t: fpu vme\nmodel : x\nflags\t\t: other\n", "flags", "fpu vme"),
    ("vmx flags\t: ept\n", "flags", ""),
    ("Version:\n", "Version", ""),
    ("", "Version", ""),
    ("a.b: dot\n", "a.b", "dot"),
    ("axb: dot\n", "a.b", ""),
])
def test_field(given, name, value):
    assert engine_info.field(given, name) == value


@pytest.mark.parametrize("given, value", [("4194304\n", 4194304), ("0", 0), ("", None), ("\n", None)])
def test_number(given, value):
    assert engine_info.number(given) == value


@on_criu_kernel
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_this_node(module, tmp_path, check):
    options = {"criu": {"path": str(tmp_path / "criu")}, "blcr": {"path": str(tmp_path)}}
    answer = module("engine_info", {"engine_options": options}, check=check)
    last = answer.pop("pids")["last"]
    flags = re.findall(r"^flags\s*: (.*)$", text("/proc/cpuinfo"), re.MULTILINE)
    modules = [line.split()[0] for line in text("/proc/modules").splitlines()]
    bounding = int(re.search(r"^CapBnd:\s*(\w+)$", text("/proc/self/status"), re.MULTILINE).group(1), 16)
    assert answer == {
        "changed": False,
        "compressors": [name for name in ("zstd", "lz4", "gzip") if shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")],
        "engine": "criu",
        "reason": "kernel %s is 5.9 or newer" % MACHINE.release,
        "kernel": MACHINE.release,
        "arch": MACHINE.machine,
        "libc": " ".join(platform.libc_ver()),
        "engines": {
            "criu": {"path": str(tmp_path / "criu"), "link": "", "program": "", "version": "", "execmem": True,
                     "capabilities": {"setpcap": bool(bounding & 1 << 8), "sys_ptrace": bool(bounding & 1 << 19),
                                      "checkpoint_restore": bool(bounding & 1 << 40)}},
            "blcr": {"path": str(tmp_path), "version": "", "modules": [name for name in ("blcr", "blcr_imports") if name in modules]}},
        "key_ids": [],
        "node": {"node": MACHINE.nodename, "kernel": MACHINE.release, "kernel_version": MACHINE.version, "arch": MACHINE.machine,
                 "libc": " ".join(platform.libc_ver()), "cpu": compatibility.read_cpu_features()},
        "cpu_flags": sorted(flags[0].split()) if flags else [],
    }
    if os.path.exists("/proc/sys/kernel/ns_last_pid"):
        assert 0 < last <= int(text("/proc/sys/kernel/pid_max"))
    else:
        assert last is None


def test_largest_process_id(module):
    assert module("engine_info", {})["pids"]["max"] == int(text("/proc/sys/kernel/pid_max"))


@on_criu_kernel
def test_criu_asked_for(module):
    answer = module("engine_info", {"engine": "criu"})
    assert (answer["engine"], answer["reason"]) == ("criu", "asked for, and kernel %s can run it" % MACHINE.release)
    assert answer["engines"]["criu"]["path"] == "/opt/criu/current/sbin/criu"


@on_criu_kernel
def test_program_is_what_links_lead_to(module, tmp_path, program):
    path = program(tmp_path / "criu", "#!/bin/sh\necho Version: 4.2.1\n")
    (tmp_path / "own").symlink_to(path)
    (tmp_path / "current").symlink_to(tmp_path / "own")
    answer = module("engine_info", {"engine_options": {"criu": {"path": str(tmp_path / "current")}}})["engines"]["criu"]
    assert (answer["link"], answer["program"]) == (str(tmp_path / "own"), path)


@off_blcr_kernel
@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_blcr_cannot_run_here(module, check):
    answer = module("engine_info", {"engine": "blcr"}, check=check)
    way_out = "set checkpoint_engine to criu or auto" if KERNEL >= (5, 9) else "boot a kernel in that range, or 5.9 and newer for CRIU"
    assert answer["failed"] is True
    assert answer["msg"] == "%s: BLCR cannot run on kernel %s: with these hooks it runs on kernels 3.5 to 3.17; %s" % (
        MACHINE.nodename, MACHINE.release, way_out)
    assert answer["kernel"] == MACHINE.release


def test_unknown_engine(module):
    answer = module("engine_info", {"engine": "dmtcp"})
    assert answer["failed"] is True
    assert answer["msg"] == "%s: value of engine must be one of: auto, criu, blcr, got: dmtcp" % MACHINE.nodename


def criu_at(module, path):
    """Return what the node has of CRIU (dict) when it is looked for there."""
    return module("engine_info", {"engine_options": {"criu": {"path": path}}})["engines"]["criu"]


@on_criu_kernel
@pytest.mark.parametrize("script, version", [
    ("echo Version: 4.2.1; echo GitID: v4.2.1", "4.2.1"), ("echo unknown option; exit 1", ""), ("", ""),
], ids=["version", "other words", "silent"])
def test_version_of_criu(module, tmp_path, program, script, version):
    path = program(tmp_path / "criu", "#!/bin/sh\n[ \"$*\" = --version ] || exit 1\n%s\n" % script)
    described = criu_at(module, path)
    assert (described["path"], described["version"]) == (path, version)


@on_criu_kernel
def test_criu_that_cannot_be_executed(module, tmp_path):
    (tmp_path / "criu").write_text("#!/bin/sh\necho Version: 4.2.1\n")
    (tmp_path / "criu").chmod(0o644)
    assert criu_at(module, str(tmp_path / "criu"))["version"] == ""


@on_criu_kernel
def test_criu_that_is_a_directory(module, tmp_path):
    described = criu_at(module, str(tmp_path))
    assert (described["path"], described["version"]) == (str(tmp_path), "")


@on_criu_kernel
def test_version_of_blcr(module, tmp_path, program):
    for name in ("cr_run", "cr_checkpoint", "cr_restart"):
        program(tmp_path / name, "#!/bin/sh\necho $(basename $0) version 0.8.6_b4\n")
    described = module("engine_info", {"engine_options": {"blcr": {"path": str(tmp_path)}}})["engines"]["blcr"]
    assert (described["path"], described["version"]) == (str(tmp_path), "0.8.6_b4")


@pytest.mark.parametrize("options, why", [
    ({"criu": {"path": "criu"}}, "the configuration of criu names 'criu', which is not an absolute path; correct engine_options"),
    ({"blcr": {"stall": 3}}, "the configuration of blcr has unknown settings: engine_options.stall; correct engine_options"),
    ({"dmtcp": {}}, "engine_options has dictionaries for the engines criu, blcr, got: dmtcp"),
    ({"criu": []}, "engine_options has dictionaries for the engines criu, blcr, got: criu"),
])
def test_options_that_are_none(module, options, why):
    answer = module("engine_info", {"engine_options": options})
    assert (answer["failed"], answer["msg"]) == (True, "%s: %s" % (MACHINE.nodename, why))


@pytest.mark.root
def test_ordinary_user_may_ask(module, nobody, everyones_python):
    answer = module("engine_info", {}, python=everyones_python, user=nobody)
    assert (answer["kernel"], answer["changed"]) == (MACHINE.release, False)


@on_criu_kernel
@pytest.mark.parametrize("written, ids", [
    ({"keys": [{"id": "2026", "secret": "17" * 32}, {"id": "2025", "secret": "18" * 32}]}, ["2026", "2025"]),
    ({"keys": []}, []), (None, [])])
def test_ids_of_the_keys(module, tmp_path, written, ids):
    path = tmp_path / "manifest.key"
    if written:
        path.write_text(json.dumps(written))
        path.chmod(0o600)
    answer = module("engine_info", {"engine": "auto", "key_path": str(path)})
    assert answer["key_ids"] == ids
    assert "1717" not in json.dumps(answer)
