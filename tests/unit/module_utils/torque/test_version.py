"""version: which release of TORQUE is newer."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError, parse_version


@pytest.mark.parametrize("versions", [
    ["2.4.8", "2.4.12", "2.5", "2.5.0", "2.5.3", "2.5.13", "4.2.10", "6.0.4", "6.1.3", "6.1.3.h1", "6.1.3.h1a", "6.1.3.h5", "6.1.3.h10",
     "6.1.3.1", "6.1.3.1.h1", "6.1.10", "10.0"]])
def test_order(versions):
    falling = versions[::-1]
    assert sorted(falling, key=parse_version) == versions
    assert len({tuple(parse_version(version)) for version in versions}) == len(versions)


def test_order_does_not_mind_capitals():
    assert parse_version("6.1.3.H5") == parse_version("6.1.3.h5")


@pytest.mark.parametrize("version", ["", "latest", "v6.1.3", "6.1.3;id", "6.1.3 ", "6/1"])
def test_order_of_what_is_no_version(version):
    with pytest.raises(VersionError) as caught:
        parse_version(version)
    assert str(caught.value) == "'%s' is not a version; name one such as 6.1.3 or 6.1.3.h5" % version
