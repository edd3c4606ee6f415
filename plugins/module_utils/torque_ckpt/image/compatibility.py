"""Whether a process that ran on one node can go on on another: what a node is, for the manifest, and the comparison."""
import os
import re

from ..engines import registry
from ..errors import HookError, REFUSED
from . import schema
from .schema import Field

# What programs of x86 use and cannot do without once they have seen it. /proc/cpuinfo lists mitigations and the like as well.
_X86 = frozenset(re.findall(r"\S+", """
    cx16 cx8 cmov mmx fxsr sse sse2 pni ssse3 sse4_1 sse4_2 sse4a popcnt lahf_lm abm movbe rdrand rdseed aes vaes pclmulqdq vpclmulqdq gfni
    sha_ni sha512 sm3 sm4 xsave xsaveopt xsavec xgetbv1 avx avx2 f16c fma fma4 xop tbm bmi1 bmi2 adx rtm hle avx_vnni avx_ifma
    avx_vnni_int8 avx_vnni_int16 avx_ne_convert avx512f avx512cd avx512er avx512pf avx512dq avx512bw avx512vl avx512ifma avx512vbmi
    avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_4vnniw avx512_4fmaps avx512_bf16 avx512_fp16 avx512_vp2intersect
    amx_tile amx_bf16 amx_int8 amx_fp16 fsgsbase rdpid waitpkg movdiri movdir64b clflushopt clwb clzero serialize cldemote
"""))


def cpu_features(path="/proc/cpuinfo"):
    """Return the features (sorted list of str) of this node's CPUs that a program may rely on."""
    with open(path) as stream:
        for line in stream:
            name, _colon, words = line.partition(":")
            if name.strip() == "flags":
                return sorted(_X86.intersection(words.split()))
            if name.strip() == "Features":  # ARM lists nothing else
                return sorted(words.split())
    return []


NODE = ("node", "kernel", "kernel_version", "arch", "libc", "cpu")
"""The fields of a manifest that say on what node the image was written: what node() returns."""

RECORD = tuple(field for field in schema.FIELDS if field.name in NODE) + (
    Field("engine", None, "The engine of the node.", (
        Field("name", schema.TEXT, "Its name in the registry of engines."),
        Field("version", schema.TEXT, "The version that passed the round trip of level L1, or is installed; empty if none is known."))),
    Field("stores", schema.TEXT, "The ids of its stores.", many=True),
    Field("compressors", schema.TEXT, "The programs by which it can decompress an image; not in older records.", many=True, optional=True),
)
"""What the role checkpoint_hooks notes of a node, for torque-ckpt (cli/node_records.py)."""

RECORD_TYPES = {field.name: list if field.many else dict if field.fields else str for field in RECORD if not field.optional}
"""What a record must have, as JSON has it."""


def node():
    """Return what this node is: node, kernel, kernel_version, arch, libc (str), cpu (list of str)."""
    machine = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return {"node": machine.nodename, "kernel": machine.release, "kernel_version": machine.version, "arch": machine.machine,
            "libc": libc, "cpu": cpu_features()}


def lacks(found, here):
    """Return why an image cannot go on on a node (str), empty when it can.

    :param found: the image's manifest (dict)
    :param here: the node, from node() or of that form (dict)
    """
    if found["arch"] != here["arch"]:
        return "is for %s, this node is %s" % (found["arch"], here["arch"])
    missing = sorted(set(found["cpu"]) - set(here["cpu"]))
    if missing:
        return "was made on a CPU with %s, which this node's CPU lacks" % " ".join(missing)
    engine = registry.find_entry(found["engine"]["name"])  # None for one that no node of these hooks has, which is refused for that
    return engine.load().find_difference(found, here) if engine else ""


def check(found, shown):
    """Prove that an image can go on on this node.

    :param found: its manifest (dict)
    :param shown: its path, for the sentence (str)
    :raises HookError: REFUSED when it cannot
    """
    why = lacks(found, node())
    if why:
        raise HookError(REFUSED, "image %s %s; restart it on a node like %s; image kept" % (shown, why, found["node"]))
