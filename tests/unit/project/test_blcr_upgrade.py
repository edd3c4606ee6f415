"""An upgrade of BLCR: plan.yml reports that it is due, and one that was cut off is continued, as the link is switched last."""
import playbooks
import pytest
import yaml

from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact

ROLE = playbooks.TOP / "roles/blcr"
NEW, OLD = "0.8.6_b4-el7-x86_64-new", "0.8.6_b4-el7-x86_64-old"
READY = {"loaded": ["blcr", "blcr_imports"], "outdated": False, "findable": True, "dkms": []}
FRESH = dict(READY, loaded=[], outdated=None)
DKMS = dict(READY, dkms=["0.8.6_b4"])
HERE = {"key": NEW, "installed": True, "current": NEW}
CUT_OFF = dict(HERE, current=OLD)  # the artifact is unpacked, and perhaps more was done
PLAIN, BY_DKMS = {}, {"blcr_install_method": "dkms"}
CASES = {  # variables, node, artifact; whether modules are installed, loaded ones replaced; what is removed from DKMS
    "ready": (PLAIN, READY, HERE, False, False, []),
    "cut off": (PLAIN, READY, CUT_OFF, True, True, []),
    "cut off, build ids are not known": (PLAIN, dict(READY, outdated=None), CUT_OFF, True, True, []),
    "first installation": (PLAIN, dict(FRESH, findable=False), {"key": NEW, "installed": False, "current": ""}, True, False, []),
    "first installation, cut off": (PLAIN, FRESH, dict(CUT_OFF, current=""), True, False, []),
    "other modules loaded": (PLAIN, dict(READY, outdated=True), HERE, False, True, []),
    "DKMS, ready": (BY_DKMS, DKMS, HERE, False, False, []),
    "DKMS, cut off": (BY_DKMS, DKMS, CUT_OFF, True, True, ["0.8.6_b4"]),
    "DKMS, before the version is there": (BY_DKMS, dict(DKMS, dkms=["0.8.5"]), CUT_OFF, True, True, ["0.8.5"]),
    "DKMS, removed by hand": (BY_DKMS, READY, HERE, True, True, []),
    "DKMS, also an older one": (BY_DKMS, dict(DKMS, dkms=["0.8.5", "0.8.6_b4"]), HERE, False, False, ["0.8.5"]),
}


def read_tasks(name):
    """Return the tasks of a file of the role by their names (dict)."""
    return {task["name"]: task for task in yaml.safe_load((ROLE / "tasks" / (name + ".yml")).read_text())}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the role does in each case (dict)."""
    plain, dkms = read_tasks("plain")["Install the modules for this kernel"], read_tasks("dkms")
    fact = {
        "installs": "{{ (%s) if blcr_install_method == 'plain' else (%s) }}" % (
            plain["when"], dkms["Build the modules for this kernel with DKMS"]["when"]),
        "replaces": "{{ __blcr_replaces }}", "removes": dkms["Remove outdated builds of BLCR from DKMS"]["loop"]}
    defaults, internal = [yaml.safe_load((ROLE / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    cases = {case: dict(defaults, **dict(given, __blcr_node=node, __blcr_artifact=wanted))
             for case, (given, node, wanted, *_done) in CASES.items()}
    unchanged = {"changed": False}
    return playbooks.answers(tmp_path_factory.mktemp("upgrade"), cases, [{"ansible.builtin.set_fact": {"answer": fact}}],
                             dict(internal, __blcr_dkms_files=unchanged, __blcr_plain_ones=unchanged))


@pytest.mark.parametrize("case", CASES)
def test_what_is_done(answers, case):
    installs, replaces, removes = CASES[case][3:]
    assert answers[case] == {"installs": installs, "replaces": replaces, "removes": removes}


def test_link_is_switched_when_the_modules_are_loaded():
    assert read_tasks("install")["Install BLCR's artifact"]["ckpt.torque.torque_artifact"]["switch"] is False
    tasks = list(read_tasks("present"))
    last = ["Install BLCR's library and commands", "Install BLCR's modules", "Load BLCR's modules", "Switch to BLCR's artifact",
            "Prove the engine by a round trip"]
    assert tasks[-len(last):] == last


def test_plan_compares_the_artifact(tmp_path):
    """Other options make another artifact, which the node has or has not, in use or not."""
    name = "0.8.6_b4-%s-BUILD" % artifact.read_platform()[0]
    prefixes = {case: tmp_path / case for case in ("used", "unused", "none")}
    for case in ("used", "unused"):
        (prefixes[case] / name).mkdir(parents=True)
        (prefixes[case] / name / "ckpt-torque.json").write_text("{}")
        (prefixes[case] / "current").symlink_to(name if case == "used" else "0.8.5")
    defaults, internal = [yaml.safe_load((ROLE / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    cases = {case: dict(defaults, blcr_prefix=str(prefix), blcr_cache=str(tmp_path)) for case, prefix in prefixes.items()}
    tasks = list(read_tasks("plan").values())[1:] + [{"ansible.builtin.set_fact": {"answer": "{{ blcr_plan.faults }}"}}]
    node = dict(READY, build="BUILD", kernel="3.10.0", kernels_without=[], cannot_load="")
    assert playbooks.answers(tmp_path, cases, tasks, dict(internal, __blcr_node=node)) == {
        "used": [], "unused": ["BLCR %s is not the one in use" % name], "none": ["BLCR %s is not installed" % name]}
