"""Whether BLCR can be built for a node and loaded there: decided from files that a node has."""
import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.engine import blcr_kernel

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

    def read(changed=(), tree="", system_map=""):
        for name, text in dict(files, **dict(changed)).items():
            if text is not None:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return blcr_kernel.read_kernel_build(RELEASE, tree and str(tmp_path / tree), system_map and str(tmp_path / system_map),
                                             str(tmp_path))
    return read


def test_node_that_has_everything(node, tmp_path):
    kernel = node()
    assert kernel == {
        "kernel": RELEASE, "tree": "%s/lib/modules/%s/build" % (tmp_path, RELEASE), "tree_release": RELEASE,
        "system_map": "%s/boot/System.map-%s" % (tmp_path, RELEASE), "signed_only": "", "loaded": [], "can_load": True,
        "loading_disabled": False, "same_addresses": True}
    assert blcr_kernel.find_load_fault(kernel, "0.8.6_b4") == blcr_kernel.find_build_fault(kernel) == ""


@pytest.mark.parametrize("changed, sentence", [
    ({"proc/self/status": CUT}, "root's bounding set lacks CAP_SYS_MODULE, as in a container, so that no kernel module can be loaded; load "
     "BLCR on the host that runs the container, or set checkpoint_engine to criu"),
    ({"proc/sys/kernel/modules_disabled": "1\n"}, "the loading of kernel modules is forbidden until the next boot (kernel.modules_disabled "
     "is 1); boot the node without that"),
    ({"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}, "the kernel takes signed modules only (lockdown integrity), "
     "and those of BLCR are not signed; name a key that the kernel trusts in blcr_signing_key, switch that off (secure boot, lockdown) or "
     "set checkpoint_engine to criu"),
    ({"sys/kernel/security/lockdown": "[none] integrity\n", "sys/module/module/parameters/sig_enforce": "Y\n"},
     "the kernel takes signed modules only (module.sig_enforce), and those of BLCR are not signed; name a key that the kernel "
     "trusts in blcr_signing_key, switch that off (secure boot, lockdown) or set checkpoint_engine to criu"),
    ({"sys/kernel/security/lockdown": "[none] integrity\n", "sys/module/module/parameters/sig_enforce": "N\n"}, ""),
])
def test_node_that_may_not_load(node, changed, sentence):
    assert blcr_kernel.find_load_fault(node(changed), "0.8.6_b4") == sentence


def test_loaded_modules_need_no_leave(node):
    both = "blcr 1 0 - Live 0x0\nblcr_imports 1 1 blcr, Live 0x0\n"
    assert node({"proc/modules": both})["loaded"] == ["blcr", "blcr_imports"]
    assert blcr_kernel.find_load_fault(node({"proc/modules": both, "proc/self/status": CUT}), "0.8.6_b4") == ""
    assert blcr_kernel.find_load_fault(node({"proc/modules": both.split("\n", 1)[1], "proc/self/status": CUT}), "0.8.6_b4") != ""


@pytest.mark.parametrize("version, release, sentence", [
    ("0.8.5", "3.10.108", "BLCR 0.8.5 knows kernels up to 3.7, this node runs 3.10.108; set blcr_version to 0.8.6_b4"),
    ("0.8.5", "3.7.10", ""), ("0.8.6_b4", "3.17.0", ""), ("0.8.7", "3.18.1", ""),
    ("0.8.6_b4", "3.18.1", "BLCR 0.8.6_b4 knows kernels up to 3.17, this node runs 3.18.1; set checkpoint_engine to criu or auto"),
])
def test_version_and_kernel(node, version, release, sentence):
    assert blcr_kernel.find_load_fault(dict(node(), kernel=release), version) == sentence


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
    assert blcr_kernel.find_build_fault(node(changed)) == sentence.format(RELEASE, tmp_path)


def test_what_the_site_names_counts(node, tmp_path):
    kernel = node({"usr/src/linux/include/linux/utsrelease.h": '#define UTS_RELEASE "%s"\n' % RELEASE, "usr/src/linux/System.map": KALLSYMS,
                  MAP: None}, tree="usr/src/linux")
    assert (kernel["tree_release"], kernel["system_map"]) == (RELEASE, str(tmp_path / "usr/src/linux/System.map"))
    assert node({"etc/map": ""}, system_map="etc/map")["system_map"] == str(tmp_path / "etc/map")
    assert node(system_map="nowhere")["system_map"] == ""


# -- what is there of it ------------------------------------------------------

BOTH = "extra/blcr/blcr.ko: extra/blcr/blcr_imports.ko\nextra/blcr/blcr_imports.ko:\nkernel/fs/ext4.ko:\n"


@pytest.fixture
def kernels(tmp_path):
    """A function that installs a kernel: its release, what its modules.dep says, and the modules' files (dict, name: bytes)."""
    def install(release, dependencies, files=()):
        top = tmp_path / "lib/modules" / release
        (top / "extra/blcr").mkdir(parents=True)
        (top / "modules.dep").write_text(dependencies)
        for name, content in dict(files).items():
            (top / "extra/blcr" / name).write_bytes(content)
        return str(tmp_path)
    return install


FILES = {"blcr.ko": b"\x7fELF one", "blcr_imports.ko": b"\x7fELF two"}


def test_modules_that_modprobe_finds(kernels):
    root = kernels(RELEASE, BOTH, FILES)
    top = "%s/lib/modules/%s/extra/blcr/" % (root, RELEASE)
    assert blcr_kernel.list_module_files(RELEASE, root) == {"blcr_imports": top + "blcr_imports.ko", "blcr": top + "blcr.ko"}
    assert blcr_kernel.list_module_files("4.0", root) == {}


@pytest.mark.parametrize("dependencies, files", [
    (BOTH, {"blcr.ko": b""}), ("kernel/fs/ext4.ko:\n", FILES), (BOTH.replace("/blcr_imports", "/blcr_other"), FILES)])
def test_modules_that_modprobe_does_not_find(kernels, dependencies, files):
    root = kernels(RELEASE, dependencies, files)
    assert len(blcr_kernel.list_module_files(RELEASE, root)) < 2
    assert blcr_kernel.list_kernels_without_modules("4.0", root) == [RELEASE]


def test_kernels_without_it(kernels, tmp_path):
    kernels("3.10.1", "")
    kernels("3.10.2", BOTH, FILES)
    kernels("3.10.0", "")
    (tmp_path / "lib/modules/3.9.removed").mkdir()
    assert blcr_kernel.list_kernels_without_modules("3.10.2", str(tmp_path)) == ["3.10.0", "3.10.1"]
    assert blcr_kernel.list_kernels_without_modules("3.10.1", str(tmp_path)) == ["3.10.0"]
    assert blcr_kernel.list_kernels_without_modules("3.10.1", str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("ids, wanted", [
    ({"blcr": b"one", "blcr_imports": b"two"}, False), ({"blcr": b"one", "blcr_imports": b"three"}, True), ({"blcr": b"one"}, False),
    ({}, None)])
def test_modules_that_are_loaded_are_those(kernels, tmp_path, ids, wanted):
    root = kernels(RELEASE, BOTH, FILES)
    for name, build_id in ids.items():
        (tmp_path / "sys/module" / name / "notes").mkdir(parents=True)
        (tmp_path / "sys/module" / name / "notes/.note.gnu.build-id").write_bytes(build_id)
    assert blcr_kernel.is_outdated(blcr_kernel.list_module_files(RELEASE, root), root) is wanted


def test_compressed_modules_cannot_be_compared(kernels, tmp_path):
    root = kernels(RELEASE, BOTH, {"blcr.ko": b"\xfd7zXZ", "blcr_imports.ko": b"\xfd7zXZ"})
    (tmp_path / "sys/module/blcr/notes").mkdir(parents=True)
    (tmp_path / "sys/module/blcr/notes/.note.gnu.build-id").write_bytes(b"one")
    assert blcr_kernel.is_outdated(blcr_kernel.list_module_files(RELEASE, root), root) is None


def test_users(tmp_path):
    for pid, maps, environment in ((10, "7f00 r-xp 0 08:01 7 /opt/blcr/x/lib/libcr_run.so.0.5.5\n", b"A=1\0PBS_JOBID=7.head\0"),
                                   (9, "7f00 r-xp 0 08:01 7 /opt/blcr/x/lib/libcr.so.0\n", b"A_PBS_JOBID=7\0"),
                                   (11, "7f00 r-xp 0 08:01 7 /usr/lib/libcrypt.so.1\n", b"PBS_JOBID=8.head\0")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "maps").write_text(maps)
        (tmp_path / "proc" / str(pid) / "environ").write_bytes(environment)
    assert blcr_kernel.list_users(str(tmp_path)) == [{"pid": 9, "job": ""}, {"pid": 10, "job": "7.head"}]


def test_who_may_use_it(tmp_path):
    assert blcr_kernel.read_ctrl(str(tmp_path)) == {}
    (tmp_path / "proc/checkpoint").mkdir(parents=True)
    (tmp_path / "proc/checkpoint/ctrl").touch()
    (tmp_path / "proc/checkpoint/ctrl").chmod(0o660)
    ctrl = blcr_kernel.read_ctrl(str(tmp_path))
    assert ctrl["mode"] == "0660" and ctrl["group"]


def test_what_nodes_have_in_common(tmp_path):
    none = blcr_kernel.read_common_facts(str(tmp_path))
    assert none == {"libc": "none", "loader": "none", "locales": "none", "nscd": "does not run", "randomize_va_space": "", "vdso": ""}
    for name, text in {"proc/self/maps": "7f00-7f01 r-xp 0 08:01 7   /lib64/libc-2.17.so\n7f00 r-xp 0 08:01 7 /lib64/libcrypt-2.17.so\n"
                                         "7f02-7f03 r-xp 0 08:01 7   /lib64/ld-2.17.so\n",
                       "lib64/libc-2.17.so": "c", "lib64/ld-2.17.so": "l", "usr/lib/locale/locale-archive": "a",
                       "run/nscd/socket": "", "proc/sys/kernel/randomize_va_space": "2\n",
                       "proc/sys/abi/vsyscall32": "1\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    facts = blcr_kernel.read_common_facts(str(tmp_path))
    assert len({facts[name] for name in ("libc", "loader", "locales")} - {"none"}) == 3
    assert (facts["nscd"], facts["randomize_va_space"], facts["vdso"]) == ("runs", "2", "1")
    here = blcr_kernel.read_common_facts()
    assert "none" not in (here["libc"], here["loader"])


@pytest.mark.parametrize("files, wanted", [
    ({}, False), ({"etc/prelink.cache": ""}, True), ({"usr/sbin/prelink": "", "etc/sysconfig/prelink": "A=1\nPRELINKING=yes\n"}, True),
    ({"usr/sbin/prelink": "", "etc/default/prelink": "PRELINKING=no\n"}, False), ({"etc/sysconfig/prelink": "PRELINKING=yes\n"}, False),
    ({"usr/sbin/prelink": "", "etc/default/prelink": "PRELINKING=\"yes\"\n"}, True)])
def test_prelink(tmp_path, files, wanted):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert blcr_kernel.uses_prelink(str(tmp_path)) is wanted


def test_where_boot_is_told(tmp_path):
    assert blcr_kernel.get_boot_file(str(tmp_path)) == "/etc/sysconfig/modules/ckpt-torque-blcr.modules"
    (tmp_path / "etc/modules-load.d").mkdir(parents=True)
    assert blcr_kernel.get_boot_file(str(tmp_path)) == "/etc/modules-load.d/ckpt-torque-blcr.conf"


def test_what_dkms_has(tmp_path):
    assert blcr_kernel.list_dkms_versions(str(tmp_path)) == []
    (tmp_path / "var/lib/dkms/blcr/0.8.5").mkdir(parents=True)
    (tmp_path / "var/lib/dkms/blcr/0.8.5/source").symlink_to("/usr/src/blcr-0.8.5")
    (tmp_path / "var/lib/dkms/blcr/0.8.6_b4").mkdir()
    assert blcr_kernel.list_dkms_versions(str(tmp_path)) == ["0.8.5"]


def test_signed_modules_are_for_the_kernel_to_judge(node):
    kernel = node({"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"})
    assert blcr_kernel.find_load_fault(kernel, "0.8.6_b4", signed=True) == ""
