import os

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import compatibility

HERE = {"node": "node1", "arch": "x86_64", "cpu": ["avx", "sse2"], "libc": "glibc 2.41", "kernel": "3.10.108", "kernel_version": "#4 SMP"}
CRIU, BLCR = {"engine": {"name": "criu", "version": "4.2.1"}}, {"engine": {"name": "blcr", "version": "0.8.6_b4"}}


def test_features_of_x86_without_what_only_the_kernel_does(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu vme sse2 avx2 pti ibrs avx retpoline\nbugs\t\t: spectre_v1\n")
    assert compatibility.read_cpu_features(str(path)) == ["avx", "avx2", "sse2"]


def test_features_of_arm(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert compatibility.read_cpu_features(str(path)) == ["asimd", "fp", "sve"]


def test_cpu_that_says_nothing(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\n")
    assert compatibility.read_cpu_features(str(tmp_path / "cpuinfo")) == []


def test_this_node():
    here = compatibility.describe_node()
    assert (here["node"], here["kernel"], here["kernel_version"], here["arch"]) == (
        os.uname().nodename, os.uname().release, os.uname().version, os.uname().machine)
    assert here["libc"].startswith("glibc ")
    assert here["cpu"] == compatibility.read_cpu_features()
    assert os.uname().machine != "x86_64" or "sse2" in here["cpu"]
    compatibility.check_node(dict(here, **CRIU), "/shown")


@pytest.mark.parametrize("change, why", [
    ({}, ""), ({"cpu": []}, ""), ({"cpu": ["sse2"]}, ""), ({"libc": "glibc 2.17"}, ""),
    ({"kernel": "3.10.0"}, ""), ({"kernel_version": "#5 SMP"}, ""), (BLCR, ""),
    (dict(BLCR, kernel="3.10.0-514.el7"), "was written by BLCR on kernel 3.10.0-514.el7 (#4 SMP), this node has 3.10.108 (#4 SMP)"),
    (dict(BLCR, kernel_version="#5 SMP"), "was written by BLCR on kernel 3.10.108 (#5 SMP), this node has 3.10.108 (#4 SMP)"),
    ({"arch": "aarch64"}, "is for aarch64, this node is x86_64"),
    ({"cpu": ["avx", "avx512f", "amx_tile"]}, "was written on a CPU with amx_tile avx512f, which this node's CPU lacks"),
])
def test_image_of_another_node(change, why):
    assert compatibility.find_incompatibility(dict(HERE, **dict(CRIU, **change)), HERE) == why


def test_sentence():
    with pytest.raises(HookError) as caught:
        compatibility.check_node(dict(compatibility.describe_node(), arch="vax", node="node7", **CRIU), "/shown")
    assert (caught.value.code, str(caught.value)) == (
        errors.REFUSED, "image /shown is for vax, this node is %s; restart it on a node like node7; image kept" % os.uname().machine)
