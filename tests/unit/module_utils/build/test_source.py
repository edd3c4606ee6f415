"""What an unpacked source is: version, form, and a digest that is what sha256sum would say."""

import os
import re
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.build import source
from ansible_collections.ckpt.torque.plugins.module_utils.build.source import SourceError

CONFIGURE_AC = "dnl AC_INIT([other], [1.0])\nAC_INIT([torque], [%s], [torqueusers@supercluster.org])\nAM_INIT_AUTOMAKE\n"


@pytest.fixture
def tree(tmp_path):
    """Make a tree: tree(files) with texts by path returns its root (str)."""
    def make(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return str(tmp_path)
    return make


FILES = {"configure.ac": CONFIGURE_AC % "6.1.3", "src/resmom/mom_main.c": "main\n", "src/server/pbsd_main.c": "server\n"}


@pytest.mark.parametrize("name, text, version", [
    ("configure.ac", CONFIGURE_AC % "6.1.3.h5", "6.1.3.h5"),
    ("configure.ac", "AC_INIT(torque, 2.4.8, bugs)\n", "2.4.8"),
    ("configure.ac", "AC_INIT([torque],[2.5.13])\n", "2.5.13"),
    ("configure.ac", "AC_INIT([slurm], [2.5.13])\n", ""),
    ("configure.in", "AC_INIT(src)\nAM_INIT_AUTOMAKE(torque, 2.1.11)\n", "2.1.11"),
    ("configure", "PACKAGE_NAME='torque'\nPACKAGE_STRING='torque 4.2.10'\n", "4.2.10"),
    ("README", "AC_INIT([torque], [2.5.13])\n", ""),
])
def test_version_of(tree, name, text, version):
    assert source.read_version(tree({name: text, "src/resmom/a.c": "", "src/server/a.c": ""})) == version


@pytest.mark.parametrize("missing", ["src/resmom/mom_main.c", "src/server/pbsd_main.c"])
def test_version_of_what_has_no_daemons(tree, missing):
    assert source.read_version(tree({name: text for name, text in FILES.items() if name != missing})) == ""


@pytest.mark.parametrize("names, form", [
    (["configure", "Makefile.in"], "release"), (["configure"], "tree"), (["Makefile.in"], "tree"), ([], "tree")])
def test_form_of(tree, names, form):
    assert source.find_form(tree(dict.fromkeys(names, ""))) == form


def by_sha256sum(root):
    """Return the digest (str) that the module's documentation promises."""
    script = """cd "$1"; find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"""
    return subprocess.run(["sh", "-c", script, "sh", root], stdout=subprocess.PIPE, check=True).stdout.decode().split()[0]


SOURCES = dict(FILES, **{
    "src/a.h": "a", "src/B.cpp": "b\n", "src/testing/x.c": "t", "contrib/a name": "",
    "src/lib/Lib-a/x.hpp": "", "src/lib/Lib.a/x.c": "x", "src/lib/Lib_a/x.c": "y",
})


def test_digest_is_what_sha256sum_says(tree):
    root = tree(SOURCES)
    assert source.compute_digest(root) == by_sha256sum(root)


@pytest.mark.parametrize("name", [
    "src/include/pbs_config.h", "src/include/site_job_attr_def.h", "src/resmom/test/x/test_x.c", "src/Makefile.am", "src/x.cc",
    "src/parse.y", "configure", "configure.ac", "m4/evil.m4", "contrib/x.c", "buildutils/install-sh", ".hidden", "src/new.c", "src/a.h",
])
def test_each_file_counts(tree, name):
    before = source.compute_digest(tree(SOURCES))
    root = tree({name: "new\n"})
    assert source.compute_digest(root) != before
    assert source.compute_digest(root) == by_sha256sum(root)


def test_names_count(tree, tmp_path):
    before = source.compute_digest(tree(SOURCES))
    (tmp_path / "src" / "a.h").rename(tmp_path / "src" / "b.h")
    assert source.compute_digest(str(tmp_path)) != before


def test_modes_and_empty_directories_do_not_count(tree, tmp_path):
    before = source.compute_digest(tree(SOURCES))
    (tmp_path / "m4").mkdir()
    (tmp_path / "src" / "a.h").chmod(0o755)
    assert source.compute_digest(str(tmp_path)) == before


def test_links_count(tree, tmp_path):
    seen = {source.compute_digest(tree(SOURCES))}
    for name, target in (("link.c", "a.h"), ("directory", "lib"), ("other", "/etc/passwd"), ("nowhere", "nowhere")):
        (tmp_path / "src" / name).symlink_to(target)
        seen.add(source.compute_digest(str(tmp_path)))
    assert len(seen) == 5


def test_what_is_no_file(tree, tmp_path):
    root = tree(SOURCES)
    os.mkfifo(tmp_path / "src" / "pipe.c")
    with pytest.raises(SourceError) as caught:
        source.examine(root)
    assert str(caught.value) == "%s/src/pipe.c is neither a file nor a link, which no TORQUE source has; unpack the source anew" % root


def test_known_digests():
    assert list(source.KNOWN) == ["2.4.8", "2.5.3", "2.5.13", "4.2.8", "4.2.10", "5.1.3", "6.0.4", "6.1.3", "6.1.3.h5"]
    every = list(source.KNOWN.values())
    assert [digest for digest in every if not re.match("[0-9a-f]{64}$", digest)] == []
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("version, known, genuine", [
    ("6.1.3", {"6.1.3": "same"}, True), ("6.1.3", {"6.1.3": "other"}, False), ("6.1.3", {"6.1.2": "same"}, None),
])
def test_genuine(tree, monkeypatch, version, known, genuine):
    root = tree(SOURCES)
    digest = source.compute_digest(root)
    monkeypatch.setattr(source, "KNOWN", {key: digest if value == "same" else "1" * 64 for key, value in known.items()})
    for wanted in (version, None):
        assert source.examine(root, wanted) == {"version": version, "form": "tree", "digest": digest, "genuine": genuine}


def test_another_version(tree):
    root = tree(FILES)
    with pytest.raises(SourceError) as caught:
        source.examine(root, "6.1.2")
    assert str(caught.value) == "%s holds TORQUE 6.1.3, but 6.1.2 was asked for; name the source of 6.1.2 or ask for 6.1.3" % root


NO_TREE = "%s is not a TORQUE source tree, which has src/resmom, src/server and a configure.ac that names torque; name %s"


def test_no_tree(tree, tmp_path):
    root = tree({"README": ""})
    with pytest.raises(SourceError) as caught:
        source.examine(root)
    assert str(caught.value) == NO_TREE % (root, "the directory that the source was unpacked to")


def test_tree_one_level_deeper(tree):
    root = tree({"README": "", "torque-6.1.3/configure.ac": CONFIGURE_AC % "6.1.3", "torque-6.1.3/src/resmom/a.c": "",
                 "torque-6.1.3/src/server/a.c": ""})
    with pytest.raises(SourceError) as caught:
        source.examine(root)
    assert str(caught.value) == NO_TREE % (root, root + "/torque-6.1.3")
