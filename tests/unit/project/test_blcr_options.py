"""The options of the role blcr that make another artifact, and the packages that they need. Nothing is built."""
import pathlib

import playbooks
import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
PLAIN = ["gcc", "make", "perl", "libc6-dev", "autoconf", "automake", "libtool"]
CASES = {
    "default": {},
    "text": {"blcr_multilib_enabled": "false"},  # as text, from the command line
    "multilib": {"blcr_multilib_enabled": "true"},
    "options": {"blcr_options": ["--enable-debug"]},
    "signed": {"blcr_signing_key": "/key", "blcr_signing_certificate": __file__},
    "dkms": {"blcr_install_method": "dkms"},
    "packages": {"blcr_packages": ["tcc"], "blcr_multilib_enabled": True},
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the role makes of each case: {case: {digest, packages}}, in one run of ansible-playbook."""
    defaults, internal = [yaml.safe_load((TOP / "roles/blcr" / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    fact = {"ansible.builtin.set_fact": {"answer": {"digest": "{{ __blcr_digest }}", "packages": "{{ __blcr_packages }}"}}}
    cases = {case: dict(defaults, **variables) for case, variables in CASES.items()}
    return playbooks.answers(tmp_path_factory.mktemp("options"), cases, [fact], dict(
        internal, __blcr_node={"build": "BUILD"}, __blcr_artifact={"family": "Debian"}))


def test_what_makes_another_artifact(answers):
    digests = {case: answer["digest"] for case, answer in answers.items()}
    assert digests["default"] == digests["text"] == "BUILD"
    assert digests["dkms"] == "commands"
    assert digests["packages"] == digests["multilib"]
    others = [digests[case] for case in ("multilib", "options", "signed")]
    assert len(set(others)) == 3 and all(digest.startswith("BUILD-") for digest in others)


def test_packages(answers):
    packages = {case: answer["packages"] for case, answer in answers.items()}
    assert packages["default"] == packages["text"] == packages["dkms"] == PLAIN
    assert packages["multilib"] == PLAIN + ["gcc-multilib"]
    assert packages["packages"] == ["tcc"]


ADDRESS = "http://mirror.example.org/blcr.tar.gz"
REFUSED = ("case%d: blcr_source " + ADDRESS + " is an address, what comes from there becomes part of the kernel, and "
           "blcr_source_checksum %s; download it once, check it, and set blcr_source_checksum to what sha256sum prints; "
           "nothing was changed.")
NOT_ONE = "is %s, not sha256: and 64 hexadecimal digits"
SOURCES = {
    "file": ({"blcr_source": "/srv/blcr.tar.gz"}, None),
    "none": ({}, None),
    "checksum": ({"blcr_source": ADDRESS, "blcr_source_checksum": "sha256:" + "0" * 64}, None),
    "no checksum": ({"blcr_source": ADDRESS}, "is not set"),
    "https": ({"blcr_source": "https" + ADDRESS[4:]}, "is not set"),
    "broken in any case": ({"blcr_source": ADDRESS, "blcr_source_checksum": "md5:" + "0" * 32}, NOT_ONE % ("md5:" + "0" * 32)),
    "elsewhere": ({"blcr_source": ADDRESS, "blcr_source_checksum": "sha256:http://x/y"}, NOT_ONE % "sha256:http://x/y"),
}


def test_what_is_downloaded_needs_a_checksum(tmp_path):
    """It is the first thing that the role looks at: nothing was changed."""
    preflight = yaml.safe_load((TOP / "roles/blcr/tasks/preflight.yml").read_text())
    defaults = yaml.safe_load((TOP / "roles/blcr/defaults/main.yml").read_text())
    tasks = [dict(preflight[0], register="result", ignore_errors=True),
             {"ansible.builtin.set_fact": {"answer": {"failed": "{{ result is failed }}", "msg": "{{ result.msg | default('') }}"}}}]
    refusals = playbooks.answers(tmp_path, {case: dict(defaults, **variables) for case, (variables, _why) in SOURCES.items()}, tasks, {})
    for number, (case, (variables, why)) in enumerate(SOURCES.items()):
        assert refusals[case]["failed"] is (why is not None), case
        if why:
            assert refusals[case]["msg"] == (REFUSED % (number, why)).replace(ADDRESS, variables["blcr_source"])
