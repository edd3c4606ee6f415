"""torque_patch: a series goes into a tree wholly or not at all, and a second run finds it there."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
import yaml

PATCH = """\
Why this is so.

--- a/src/a.c
+++ b/src/a.c
@@ -1,3 +1,4 @@
 one
-two
+two \xe9
+and a half
 three
--- /dev/null
+++ b/src/new.h
@@ -0,0 +1 @@
+new
--- a/src/gone.h
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""

SERIES = [
    {"name": "first", "purpose": "to test", "cures": ["D1"], "proof": "test",
     "variants": [{"from": "6.1", "below": "7", "file": "first.patch"}]},
    {"name": "theirs", "upstream": [{"from": "2.5.5"}], "variants": [{"file": "theirs.patch"}]},
    {"name": "old", "variants": [{"below": "2.5", "file": "old.patch"}]},
]

pytestmark = pytest.mark.skipif(shutil.which("patch") is None, reason="GNU patch is not installed")


@pytest.fixture
def source(module, tmp_path):
    """The module on a small tree: source(**arguments) returns its answer."""
    tree, patches = tmp_path / "tree", tmp_path / "patches"
    (tree / "src").mkdir(parents=True)
    patches.mkdir()
    (tree / "src" / "a.c").write_bytes(b"one\ntwo\nthree\n")
    (tree / "src" / "gone.h").write_text("gone\n")
    (patches / "first.patch").write_bytes(PATCH.encode("utf-8"))

    def call(check=False, diff=False, **more):
        arguments = dict({"path": str(tree), "version": "6.1.3", "directory": str(patches), "series": SERIES}, **more)
        return module("torque_patch", arguments, check=check, diff=diff)
    call.tree, call.patches = tree, patches
    return call


def everything(root):
    """Return what is in a tree: {path: (content, mode, time of change)}."""
    return {str(path.relative_to(root)): (path.is_file() and path.read_bytes(), path.stat().st_mode, path.stat().st_ctime_ns)
            for path in [pathlib.Path(root), *pathlib.Path(root).rglob("*")]}


def states(answer):
    return {row["name"]: row["state"] for row in answer["series"]}


def test_series(source):
    answer = source(diff=True)
    assert answer["changed"] is True
    assert answer["series"] == [
        {"name": "first", "state": "applied", "file": "first.patch"},
        {"name": "theirs", "state": "already upstream", "file": None},
        {"name": "old", "state": "not applicable", "file": None},
    ]
    assert answer["files"] == ["src/a.c", "src/gone.h", "src/new.h"]
    assert answer["diff"] == [
        {"before_header": "src/a.c", "after_header": "src/a.c", "before": "one\ntwo\nthree\n",
         "after": "one\ntwo \xe9\nand a half\nthree\n"},
        {"before_header": "src/gone.h", "after_header": "src/gone.h", "before": "gone\n", "after": ""},
        {"before_header": "src/new.h", "after_header": "src/new.h", "before": "", "after": "new\n"},
    ]
    assert (source.tree / "src" / "a.c").read_bytes() == b"one\ntwo \xc3\xa9\nand a half\nthree\n"
    assert sorted(everything(source.tree)) == [".", "src", "src/a.c", "src/new.h"]

    before = everything(source.tree)
    second = source(diff=True)
    assert (second["changed"], second["files"], second["diff"]) == (False, [], [])
    assert states(second) == {"first": "already applied", "theirs": "already upstream", "old": "not applicable"}
    assert second["digest"] == answer["digest"]
    assert everything(source.tree) == before


def test_check_mode(source):
    before = everything(source.tree)
    planned = source(check=True, diff=True)
    assert everything(source.tree) == before
    assert planned == source(diff=True)
    assert source(check=True)["changed"] is False


def test_nothing_for_this_version(source):
    answer = source(version="4.2.10")
    assert (answer["changed"], answer["files"]) == (False, [])
    assert states(answer)["first"] == "not applicable"


def test_numbers_of_yaml_are_versions(source):
    assert states(source(version=6.1))["first"] == "applied"


SITE = {"name": "site", "variants": [{"file": "/controller/site.patch"}]}


def test_patch_that_does_not_fit_changes_nothing(source):
    (source.patches / "site.patch").write_text("--- a/src/a.c\n+++ b/src/a.c\n@@ -1 +1 @@\n-ONE\n+eins\n")
    before = everything(source.tree)
    for check in (True, False):
        answer = source(series=SERIES + [SITE], check=check)
        assert answer["failed"] is True
        assert answer["msg"] == (
            "patch site (/controller/site.patch) does not fit this TORQUE 6.1.3: hunk 1 of src/a.c fails at line 1; unpack the source "
            "afresh, or name a variant for this version; nothing was changed")
    assert everything(source.tree) == before


def test_site_patch_on_top_of_the_series(source):
    source()
    (source.patches / "site.patch").write_text("--- a/src/new.h\n+++ b/src/new.h\n@@ -1 +1 @@\n-new\n+newer\n")
    assert states(source(series=SERIES + [SITE])) == {
        "first": "already applied", "theirs": "already upstream", "old": "not applicable", "site": "applied"}
    assert (source.tree / "src" / "new.h").read_text() == "newer\n"
    assert source(series=SERIES + [SITE])["changed"] is False


@pytest.mark.parametrize("text, reason", [
    ("--- a/../victim\n+++ b/../victim\n@@ -1 +1 @@\n-x\n+y\n", ": line 1 names no file in the tree: --- a/../victim; correct the file"),
    ("--- a/link/victim\n+++ b/link/victim\n@@ -1 +1 @@\n-x\n+y\n",
     " would change what is not the tree's own: link/victim is a link or no regular file"),
], ids=["dots", "link"])
def test_outside_of_the_tree(source, tmp_path, text, reason):
    (tmp_path / "victim").write_text("x\n")
    (source.tree / "link").symlink_to("..")
    (source.patches / "site.patch").write_text(text)
    answer = source(series=[SITE])
    assert answer["failed"] is True
    assert answer["msg"] == "patch site (/controller/site.patch)%s; nothing was changed" % reason
    assert (tmp_path / "victim").read_text() == "x\n"


@pytest.mark.parametrize("series, message", [
    ([{"variants": []}], "missing required arguments: name found in series"),
    ([{"name": "x", "variants": [{"from": "6"}]}], "missing required arguments: file found in series -> variants"),
])
def test_series_that_lacks_something(source, series, message):
    answer = source(series=series)
    assert (answer["failed"], answer["msg"]) == (True, message)


def test_what_must_be_given(module):
    answer = module("torque_patch", {})
    assert (answer["failed"], answer["msg"]) == (True, "missing required arguments: directory, path, series, version")


def test_no_tree(source, tmp_path):
    missing = tmp_path / "missing"
    answer = source(path=str(missing))
    assert answer["failed"] is True
    assert answer["msg"] == "there is no directory %s; name the one that the source was unpacked to; nothing was changed" % missing


def test_no_version(source):
    answer = source(version="latest")
    assert answer["failed"] is True
    assert answer["msg"] == "'latest' is not a version; name one such as 6.1.3 or 6.1.3.h5; nothing was changed"


@pytest.mark.root
def test_tree_of_somebody_else(source, module, public_directory, nobody, everyones_python):
    tree, patches = public_directory / "tree", public_directory / "patches"
    shutil.copytree(str(source.tree), str(tree))
    shutil.copytree(str(source.patches), str(patches))
    arguments = {"path": str(tree), "version": "6.1.3", "directory": str(patches), "series": SERIES}
    answer = module("torque_patch", arguments, python=everyones_python, user=nobody)
    assert answer["failed"] is True
    assert answer["msg"].startswith("cannot patch %s: %s/.ckpt-torque-" % (tree, tree))
    assert answer["msg"].endswith(": Permission denied; become a user who can write there, or free some space; nothing was changed")


def test_patch_is_not_installed(source, repository):
    """In a process of its own that cannot find the program: the module looks beyond its PATH."""
    program = ("import runpy, ansible.module_utils.basic as basic\n"
               "basic.AnsibleModule.get_bin_path = lambda *_arguments, **_more: None\n"
               "runpy.run_module('ansible_collections.ckpt.torque.plugins.modules.torque_patch', run_name='__main__')\n")
    arguments = {"path": str(source.tree), "version": "6.1.3", "directory": str(source.patches), "series": SERIES}
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode(),
                          stdout=subprocess.PIPE, check=False, env=dict(os.environ, PYTHONPATH=str(repository / ".cache" / "checkout")))
    assert json.loads(done.stdout)["msg"] == "GNU patch is not installed; install the package patch; nothing was changed"


# the collection's own series

def test_real_series(module, repository, tmp_path):
    """Each patch of the collection is in its file, applies to 6.1.3 where a source is at hand, and is known again."""
    patches = repository / "roles" / "torque_build" / "files" / "patches"
    tarball = pathlib.Path(os.environ.get("TORQUE_SOURCE", pathlib.Path.home() / ".cache/ckpt-torque/sources/torque-6.1.3.tar.gz"))
    if not tarball.is_file() or not (patches / "series.yml").is_file():
        pytest.skip("there is no TORQUE 6.1.3 source; put torque-6.1.3.tar.gz where TORQUE_SOURCE says")
    with tarfile.open(str(tarball)) as archive:
        archive.extractall(str(tmp_path))
    (tree,) = tmp_path.iterdir()
    series = yaml.safe_load((patches / "series.yml").read_text())
    arguments = {"path": str(tree), "version": "6.1.3", "directory": str(patches), "series": series}
    first = module("torque_patch", arguments)
    assert set(states(first).values()) <= {"applied", "already upstream", "not applicable"}
    assert "applied" in states(first).values()
    second = module("torque_patch", arguments)
    assert states(second) == {name: state.replace("applied", "already applied") for name, state in states(first).items()}
    assert second["changed"] is False
