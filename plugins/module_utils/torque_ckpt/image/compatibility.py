"""Whether an image from one node can be restarted on another: the description of a node, for the manifest, and the comparison."""
import os
import re

from ..engines import registry
from ..errors import HookError, REFUSED
from . import schema
from .schema import Field

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

# Features that x86 programs use and depend on once they have detected them. /proc/cpuinfo lists mitigations and the like as well.
_X86 = frozenset(re.findall(r"\S+", """
    cx16 cx8 cmov mmx fxsr sse sse2 pni ssse3 sse4_1 sse4_2 sse4a popcnt lahf_lm abm movbe rdrand rdseed aes vaes pclmulqdq vpclmulqdq gfni
    sha_ni sha512 sm3 sm4 xsave xsaveopt xsavec xgetbv1 avx avx2 f16c fma fma4 xop tbm bmi1 bmi2 adx rtm hle avx_vnni avx_ifma
    avx_vnni_int8 avx_vnni_int16 avx_ne_convert avx512f avx512cd avx512er avx512pf avx512dq avx512bw avx512vl avx512ifma avx512vbmi
    avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_4vnniw avx512_4fmaps avx512_bf16 avx512_fp16 avx512_vp2intersect
    amx_tile amx_bf16 amx_int8 amx_fp16 fsgsbase rdpid waitpkg movdiri movdir64b clflushopt clwb clzero serialize cldemote
"""))


def read_cpu_features(path: str = "/proc/cpuinfo") -> "list[str]":
    """Return the features (sorted) of this node's CPUs that a program may rely on."""
    with open(path) as stream:
        for line in stream:
            name, _colon, words = line.partition(":")
            if name.strip() == "flags":
                return sorted(_X86.intersection(words.split()))
            if name.strip() == "Features":  # ARM lists nothing else
                return sorted(words.split())
    return []


NODE = ("node", "kernel", "kernel_version", "arch", "libc", "cpu")
"""The fields of a manifest that say on what node the image was written: what describe_node() returns."""

RECORD = tuple(field for field in schema.FIELDS if field.name in NODE) + (
    Field("engine", None, "The engine of the node.", (
        Field("name", schema.TEXT, "Its name in the registry of engines."),
        Field("version", schema.TEXT, "The version that passed the round trip of level L1, or is installed; empty if none is known."))),
    Field("stores", schema.TEXT, "The ids of its stores.", many=True),
    Field("compressors", schema.TEXT, "The programs by which it can decompress an image; not in older records.", many=True, optional=True),
)
"""The record of a node that the role checkpoint_hooks writes, for torque-ckpt (cli/node_records.py)."""

RECORD_TYPES = {field.name: list if field.many else dict if field.fields else str for field in RECORD if not field.optional}
"""The fields that a record must have, with their types in JSON."""


def describe_node() -> "dict[str, Any]":
    """Return a description of this node: node, kernel, kernel_version, arch, libc (str), cpu (list of str)."""
    machine = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return {"node": machine.nodename, "kernel": machine.release, "kernel_version": machine.version, "arch": machine.machine,
            "libc": libc, "cpu": read_cpu_features()}


def find_incompatibility(manifest: dict, node: dict) -> str:
    """Return why an image cannot be restarted on a node, empty if it can.

    :param manifest: the image's manifest
    :param node: the node, from describe_node() or of that form
    """
    if manifest["arch"] != node["arch"]:
        return "is for %s, this node is %s" % (manifest["arch"], node["arch"])
    missing = sorted(set(manifest["cpu"]) - set(node["cpu"]))
    if missing:
        return "was written on a CPU with %s, which this node's CPU lacks" % " ".join(missing)
    engine = registry.find_entry(manifest["engine"]["name"])  # None for an engine that these hooks do not know, which is refused elsewhere
    return engine.load().find_difference(manifest, node) if engine else ""


def check_node(manifest: dict, image_path: str) -> None:
    """Check that an image can be restarted on this node.

    :param manifest: its manifest
    :param image_path: its path, for the sentence
    :raises HookError: REFUSED if it cannot
    """
    reason = find_incompatibility(manifest, describe_node())
    if reason:
        raise HookError(REFUSED, "image %s %s; restart it on a node like %s; image kept" % (image_path, reason, manifest["node"]))
