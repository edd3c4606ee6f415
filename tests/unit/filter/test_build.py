"""What a version of TORQUE is built with."""
import hashlib

import pytest
from ansible_collections.ckpt.torque.plugins.filter import build

OLD, NEW = {"from": "2.4.0", "below": "2.6", "file": "a-2.4.patch"}, {"from": "6.1.0", "below": "6.1.3.h4", "file": "a.patch"}
SERIES = [{"name": "a", "variants": [OLD, NEW]}, {"name": "b", "variants": [{"from": "2.0", "below": "7", "file": "/site/b.patch"}]}]


@pytest.mark.parametrize("version, entries", [
    ("2.3.9", []), ("2.4.0", [OLD]), ("2.5.13", [OLD]), ("2.6", []), (2.5, [OLD]), ("4.2.10", []),
    ("6.1.0", [NEW]), ("6.1.3.h3", [NEW]), ("6.1.3.h4", [])])
def test_ranges(version, entries):
    assert build.for_version([OLD, NEW], version) == entries


def test_patches():
    both = [{"name": "a", "file": "a.patch"}, {"name": "b", "file": "/site/b.patch"}]
    assert build.patches_for_version(SERIES, "6.1.3", []) == both
    assert build.patches_for_version(SERIES, "6.1.3", ["a"]) == both[1:]
    assert build.patches_for_version(SERIES, "4.2.10", []) == both[1:]
    assert build.patch_digests(both, ["one", "two"]) == [
        {"name": "a", "digest": hashlib.sha256(b"one").hexdigest()}, {"name": "b", "digest": hashlib.sha256(b"two").hexdigest()}]
    assert build.patch_digests([], []) == []


def test_options_that_the_role_sets():
    settled = [{"option": "with(out)?-pam", "by": "set torque_build_pam_enabled"}]
    assert build.settled_options(["--with-pam=/lib", "--without-pam", "--with-pamela", "--x"], settled) == [
        "--with-pam=/lib in torque_build_options: set torque_build_pam_enabled",
        "--without-pam in torque_build_options: set torque_build_pam_enabled"]
