"""Whether BLCR can be built for a node and loaded there: decided from files that a node has."""
import pytest

from ansible_collections.ckpt.torque.plugins.module_utils import blcr

RELEASE = "3.10.0-514.el7.x86_64"
KALLSYMS = "ffffffff81000000 T _text\nffffffff816a1000 R sys_call_table\nffffffff819b8480 D init_task\nffffffffa0000000 t x [ext4]\n"
HEADERS, MAP = "lib/modules/%s/build/include/generated/utsrelease.h" % RELEASE, "boot/System.map-" + RELEASE
FULL, CUT = "CapBnd:\t0000001fffffffff\n", "CapBnd:\t0000001ffffeffff\n"


@pytest.fixture
def node(tmp_path):
    """A function that lays a node's files (dict, by path) beneath a directory and looks at them."""
    files = {
        "proc/kallsyms": KALLSYMS, "proc/self/status": FULL, "proc/modules": "ext4 1 0 - Live 0x0\n",
        "proc/sys/kernel/modules_disabled": "0\n", MAP: KALLSYMS, HEADERS: '#define UTS_RELEASE "%s"\n' % RELEASE,
    }

    def look(changed=(), tree="", system_map=""):
        for name, text in dict(files, **dict(changed)).items():
            if text is not None:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return blcr.look(RELEASE, tree and str(tmp_path / tree), system_map and str(tmp_path / system_map), str(tmp_path))
    return look


def test_node_that_has_everything(node, tmp_path):
    found = node()
    assert found == {
        "kernel": RELEASE, "tree": "%s/lib/modules/%s/build" % (tmp_path, RELEASE), "tree_release": RELEASE,
        "system_map": "%s/boot/System.map-%s" % (tmp_path, RELEASE), "signed_only": "", "loaded": [], "can_load": True,
        "loading_disabled": False, "same_addresses": True}
    assert blcr.cannot_load(found, "0.8.6_b4") == blcr.cannot_build(found) == ""


@pytest.mark.parametrize("changed, sentence", [
    ({"proc/self/status": CUT}, "root's bounding set lacks CAP_SYS_MODULE, as in a container, so that no kernel module can be loaded; load "
     "BLCR on the host that runs the container, or set checkpoint_engine to criu"),
    ({"proc/sys/kernel/modules_disabled": "1\n"}, "the loading of kernel modules is forbidden until the next boot (kernel.modules_disabled "
     "is 1); boot the node without that"),
    ({"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "the kernel takes signed modules only (lockdown integrity), "
     "and those of BLCR are not signed; switch that off (secure boot, lockdown) or set checkpoint_engine to criu"),
    ({"sys/kernel/security/lockdown": "[none] integrity\n", "sys/module/module/parameters/sig_enforce": "Y\n"},
     "the kernel takes signed modules only (module.sig_enforce), and those of BLCR are not signed; switch that off (secure boot, lockdown) "
     "or set checkpoint_engine to criu"),
    ({"sys/kernel/security/lockdown": "[none] integrity\n", "sys/module/module/parameters/sig_enforce": "N\n"}, ""),
])
def test_node_that_may_not_load(node, changed, sentence):
    assert blcr.cannot_load(node(changed), "0.8.6_b4") == sentence


def test_loaded_modules_need_no_leave(node):
    both = "blcr 1 0 - Live 0x0\nblcr_imports 1 1 blcr, Live 0x0\n"
    assert node({"proc/modules": both})["loaded"] == ["blcr", "blcr_imports"]
    assert blcr.cannot_load(node({"proc/modules": both, "proc/self/status": CUT}), "0.8.6_b4") == ""
    assert blcr.cannot_load(node({"proc/modules": both.split("\n", 1)[1], "proc/self/status": CUT}), "0.8.6_b4") != ""


@pytest.mark.parametrize("version, release, sentence", [
    ("0.8.5", "3.10.108", "BLCR 0.8.5 knows kernels up to 3.7, this node runs 3.10.108; set blcr_version to 0.8.6_b4"),
    ("0.8.5", "3.7.10", ""), ("0.8.6_b4", "3.17.0", ""), ("0.8.7", "3.18.1", ""),
    ("0.8.6_b4", "3.18.1", "BLCR 0.8.6_b4 knows kernels up to 3.17, this node runs 3.18.1; set checkpoint_engine to criu or auto"),
])
def test_version_and_kernel(node, version, release, sentence):
    assert blcr.cannot_load(dict(node(), kernel=release), version) == sentence


@pytest.mark.parametrize("changed, sentence", [
    ({HEADERS: None}, "there are no headers of kernel {0} at {1}/lib/modules/{0}/build; install kernel-devel-{0} or linux-headers-{0}, or "
     "name the tree in which it was compiled in blcr_kernel_tree"),
    ({HEADERS: '#define UTS_RELEASE "3.10.108"\n'}, "{1}/lib/modules/{0}/build is of kernel 3.10.108, this node runs {0}; boot that one, "
     "or correct blcr_kernel_tree"),
    ({MAP: None}, "there is no symbol table of kernel {0}; name its System.map in blcr_system_map"),
    ({MAP: KALLSYMS.replace("819b8480", "81ab8480")}, "{1}/boot/System.map-{0} is not of the running kernel: it has "
     "other addresses; name the System.map of this very build in blcr_system_map, and boot with nokaslr where the kernel moves itself"),
    ({"proc/kallsyms": "0000000000000000 T init_task\n"}, ""),  # as for those who may not know
    ({MAP: None, "lib/modules/%s/System.map" % RELEASE: KALLSYMS}, ""),
])
def test_node_for_which_nothing_can_be_built(node, tmp_path, changed, sentence):
    assert blcr.cannot_build(node(changed)) == sentence.format(RELEASE, tmp_path)


def test_what_the_site_names_counts(node, tmp_path):
    found = node({"usr/src/linux/include/linux/utsrelease.h": '#define UTS_RELEASE "%s"\n' % RELEASE, "usr/src/linux/System.map": KALLSYMS,
                  MAP: None}, tree="usr/src/linux")
    assert (found["tree_release"], found["system_map"]) == (RELEASE, str(tmp_path / "usr/src/linux/System.map"))
    assert node({"etc/map": ""}, system_map="etc/map")["system_map"] == str(tmp_path / "etc/map")
    assert node(system_map="nowhere")["system_map"] == ""
