"""The units that roles install, as text."""
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
UNITS = sorted(TOP.glob("roles/*/templates/*.service.j2"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_its_own_programs(path):
    """They are in /bin of Debian 11, which is no link to /usr/bin everywhere."""
    assert not re.search("/usr/s?bin/systemd-", path.read_text())


@pytest.mark.parametrize("daemon", ["mom", "server"])
def test_environment_of_daemons_ends_its_line(daemon):
    """pbs_mom cuts the last character of what does not, and jobs look for their commands in /usr/bi; systemd-tmpfiles adds no newline."""
    paths = yaml.safe_load((TOP / "roles/torque_build/vars/main.yml").read_text())["torque_build_%s_paths" % daemon]
    assert [argument for _type, path, _mode, argument in paths if path == "/pbs_environment"] == [r"PATH=/bin:/usr/bin\n"]


@pytest.mark.parametrize("name", ["orphans", "node-down"])
def test_timer_has_twice_the_memory_that_one_users_images_may_take(name):
    text = (TOP / "roles/checkpoint_hooks/templates" / (name + ".service.j2")).read_text()
    survey = (TOP / "plugins/module_utils/torque_ckpt/store/catalog.py").read_text()
    assert re.search("^MEMORY = 512 << 20$", survey, re.MULTILINE)
    assert re.search("^MemoryMax=1G$", text, re.MULTILINE) and re.search("^TimeoutStartSec=1h$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["orphans", "node-down"])
def test_timer_may_prove_to_every_pbs_server_that_root_asks(name):
    """pbs_iff of TORQUE 2.x binds a port below 1024 if pbs_server has another name than the host."""
    text = (TOP / "roles/checkpoint_hooks/templates" / (name + ".service.j2")).read_text()
    rights, = re.findall("^CapabilityBoundingSet=(.*)$", text, re.MULTILINE)
    needed = "CAP_SETUID CAP_SETGID CAP_DAC_READ_SEARCH CAP_DAC_OVERRIDE CAP_KILL CAP_NET_BIND_SERVICE"
    assert sorted(rights.split()) == sorted(needed.split())
