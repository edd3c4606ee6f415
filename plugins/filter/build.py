# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a version of TORQUE is built with."""
from __future__ import annotations

import hashlib
import re

from ansible.module_utils.compat.version import LooseVersion


def for_version(entries: list[dict], version: str) -> list[dict]:
    """Return the entries whose range, "from" on and below "below", contains the version.

    :param version: torque_build_version
    """
    wanted = LooseVersion(str(version))  # a number in YAML, without quotes
    return [entry for entry in entries if LooseVersion(entry["from"]) <= wanted < LooseVersion(entry["below"])]


def patches_for_version(series: list[dict], version: str, excluded: list[str]) -> list[dict]:
    """Return the patches for a version in their order ("name", "file").

    :param series: of series.yml: patches with their variants
    :param version: torque_build_version
    :param excluded: torque_build_patches_excluded
    """
    return [{"name": patch["name"], "file": variant["file"]}
            for patch in series if patch["name"] not in excluded for variant in for_version(patch["variants"], version)]


def patch_digests(patches: list[dict], texts: list[str]) -> list[dict]:
    """Return the patches with the sha256 of their text ("name", "digest").

    :param patches: of patches_for_version
    :param texts: content of their files
    """
    return [{"name": patch["name"], "digest": hashlib.sha256(text.encode()).hexdigest()} for patch, text in zip(patches, texts)]


def settled_options(options: list[str], settled: list[dict]) -> list[str]:
    """Return which options of configure the role sets itself, as sentences.

    :param options: torque_build_options
    :param settled: what the role sets: "option" (regular expression), "by" (what to do instead)
    """
    return ["%s in torque_build_options: %s" % (option, entry["by"]) for option in options for entry in settled
            if re.match("--?(%s)(=|$)" % entry["option"], option)]


class FilterModule:

    def filters(self) -> dict:
        return {"for_version": for_version, "patches_for_version": patches_for_version, "patch_digests": patch_digests,
                "settled_options": settled_options}
