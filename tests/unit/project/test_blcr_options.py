"""The options of the role blcr that make another artifact, and the packages that they need. Nothing is built."""
import pathlib

import playbooks
import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
PLAIN = ["gcc", "make", "perl", "libc6-dev", "autoconf", "automake", "libtool"]
CASES = {
    "default": {},
    "said": {"blcr_multilib_enabled": "false"},  # as text, from the command line
    "multilib": {"blcr_multilib_enabled": "true"},
    "options": {"blcr_options": ["--enable-debug"]},
    "signed": {"blcr_signing_key": "/key", "blcr_signing_certificate": __file__},
    "dkms": {"blcr_install": "dkms"},
    "packages": {"blcr_packages": ["tcc"], "blcr_multilib_enabled": True},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the role makes of each case: {case: {digest, packages}}, in one run of ansible-playbook."""
    defaults, internal = [yaml.safe_load((TOP / "roles/blcr" / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    fact = {"ansible.builtin.set_fact": {"answer": {"digest": "{{ __blcr_digest }}", "packages": "{{ __blcr_packages }}"}}}
    cases = {case: dict(defaults, **variables) for case, variables in CASES.items()}
    return playbooks.answers(tmp_path_factory.mktemp("options"), cases, [fact], dict(
        internal, __blcr_node={"build": "BUILD"}, __blcr_artifact={"family": "Debian"}))


def test_what_makes_another_artifact(found):
    digests = {case: answer["digest"] for case, answer in found.items()}
    assert digests["default"] == digests["said"] == "BUILD"
    assert digests["dkms"] == "commands"
    assert digests["packages"] == digests["multilib"]
    others = [digests[case] for case in ("multilib", "options", "signed")]
    assert len(set(others)) == 3 and all(digest.startswith("BUILD-") for digest in others)


def test_packages(found):
    packages = {case: answer["packages"] for case, answer in found.items()}
    assert packages["default"] == packages["said"] == packages["dkms"] == PLAIN
    assert packages["multilib"] == PLAIN + ["gcc-multilib"]
    assert packages["packages"] == ["tcc"]
