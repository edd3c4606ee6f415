"""artifact: which platform a host is."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact


@pytest.mark.parametrize("release, redhat, system", [
    ('PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nNAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n', "", ("debian13", "Debian")),
    ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n', "", ("ubuntu22", "Debian")),
    ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n', "Rocky Linux release 9.4\n", ("rocky9", "RedHat")),
    ('ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="7"\n', "CentOS Linux release 7.9.2009 (Core)\n", ("centos7", "RedHat")),
    ("ID=fedora\nVERSION_ID=40\n", "", ("fedora40", "RedHat")),
    ("ID='rhel'\nVERSION_ID='8.10'\n", "", ("rhel8", "RedHat")),
    ('ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.5"\n', "", ("sles15", "")),
    ("ID=debian\n", "", ("debian", "Debian")),
    ("", "CentOS release 6.10 (Final)\n", ("rhel6", "RedHat")),
    ("", "something else\n", ("rhel", "RedHat")),
    ("", "", ("linux", "")),
    ("# nothing\n", "", ("linux", "")),
])
def test_identify_system(release, redhat, system):
    assert artifact.identify_system(release, redhat) == system
