"""What plan.yml reports of a node's CRIU: also that it has another one than the variables ask for, which the role would replace."""
import hashlib
import json

import playbooks
import pytest
import yaml

ROLE = playbooks.TOP / "roles/criu"
PATH = "/opt/criu/current/sbin/criu"
OWN = {"path": PATH, "version": "4.1.1", "link": "/usr/sbin/criu", "program": "/usr/sbin/criu"}


def artifact(version="4.2.1", checksum="", prefix="/opt/criu", real="/opt/criu"):
    """Return what engine_info reports of an artifact (dict)."""
    known = "29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9" if version == "4.2.1" else ""
    digest = hashlib.sha256(json.dumps([version, checksum or known, prefix, ["NO_GNUTLS=1", "WERROR=0"]]).encode()).hexdigest()[:12]
    return {"path": PATH, "version": version, "link": "", "program": "%s/%s-debian13-x86_64-%s/sbin/criu" % (real, version, digest)}


MISSING = {"path": PATH, "version": "", "link": "", "program": ""}
NO_CRIU = "criu is not at %s on this node; run the role criu" % PATH
NOT_USED = "%s is not the one in use, %s is"
FROM = {"criu_source_checksum": "sha256:" + "1" * 64}
CASES = {
    "none": ({}, MISSING, [NO_CRIU]),
    "artifact that does not start": ({}, dict(artifact(), version=""), [NO_CRIU]),
    "own": ({}, OWN, []),
    "own, in a directory that is a link": ({}, dict(OWN, program="/usr/bin/criu"), []),
    "artifact": ({}, artifact(), []),
    "artifact, prefix is a link": ({}, artifact(real="/srv/criu"), []),
    "other version": ({"criu_version": "4.3"}, artifact(), [NOT_USED % ("CRIU 4.3", artifact()["program"])]),
    "other version, own": ({"criu_version": "4.3"}, OWN, []),
    "other source": (FROM, artifact(), [NOT_USED % ("CRIU 4.2.1", artifact()["program"])]),
    "that source": (FROM, artifact(checksum="1" * 64), []),
    "artifact for own": ({"criu_install_method": "artifact"}, OWN, [NOT_USED % ("CRIU 4.2.1", "/usr/sbin/criu")]),
    "own for artifact": ({"criu_install_method": "present"}, artifact(), [NOT_USED % ("/usr/sbin/criu", artifact()["program"])]),
    "package": ({"criu_install_method": "package"}, OWN, []),
    "other path": ({"criu_install_method": "present", "criu_path": "/srv/criu"}, OWN, [NOT_USED % ("/srv/criu", "/usr/sbin/criu")]),
}


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """What the role reports in each case (dict)."""
    defaults, internal = [yaml.safe_load((ROLE / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    tasks = yaml.safe_load((ROLE / "tasks/plan.yml").read_text()) + [{"ansible.builtin.set_fact": {"answer": "{{ criu_plan }}"}}]
    cases = {case: dict(defaults, **dict(given, criu_engine_info={"engines": {"criu": node}}))
             for case, (given, node, _why) in CASES.items()}
    return playbooks.answers(tmp_path_factory.mktemp("plan"), cases, tasks, internal)


@pytest.mark.parametrize("case", CASES)
def test_plan(plans, case):
    assert plans[case] == {"faults": CASES[case][2], "warnings": []}
