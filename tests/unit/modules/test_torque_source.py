"""torque_source: tells a genuine source from a changed one, and touches nothing."""

import os
import pathlib
import tarfile

import pytest

TARBALL = pathlib.Path(os.environ.get("TORQUE_SOURCE", pathlib.Path.home() / ".cache/ckpt-torque/sources/torque-6.1.3.tar.gz"))

FILES = {"configure.ac": "AC_INIT([torque], [6.1.2], [torqueusers@supercluster.org])\n", "src/resmom/a.c": "a\n", "src/server/b.c": ""}


@pytest.fixture
def tree(public_directory):
    """An unpacked source (pathlib.Path) that every user can read."""
    for name, text in FILES.items():
        (public_directory / name).parent.mkdir(parents=True, exist_ok=True)
        (public_directory / name).write_text(text)
    return public_directory


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
def test_source(module, tree, check):
    answer = module("torque_source", {"path": str(tree), "version": "6.1.2"}, check=check)
    assert answer == {"changed": False, "version": "6.1.2", "form": "tree", "genuine": None,
                      "digest": "f75af1d0638003cfb8b49318f7df878a9c9ea70b7bb55492a4cbd3574a851e50"}


def test_another_version(module, tree):
    answer = module("torque_source", {"path": str(tree), "version": "6.1.3"})
    assert answer["failed"] is True
    assert answer["msg"] == ("%s holds TORQUE 6.1.2, but 6.1.3 was asked for; name the source of 6.1.3 or ask for 6.1.2; "
                             "nothing was changed" % tree)


UNREADABLE = ("cannot read the source: %s: %s; name the directory that it was unpacked to, and become a user who can read it; "
              "nothing was changed")


def test_no_directory(module, tree):
    answer = module("torque_source", {"path": str(tree / "missing")})
    assert answer["failed"] is True
    assert answer["msg"] == UNREADABLE % (tree / "missing", "No such file or directory")


@pytest.mark.root
@pytest.mark.parametrize("name", ["src/resmom", "src/resmom/a.c"])
def test_unreadable(module, tree, nobody, everyones_python, name):
    mode = (tree / name).stat().st_mode
    (tree / name).chmod(0)
    answer = module("torque_source", {"path": str(tree)}, python=everyones_python, user=nobody)
    (tree / name).chmod(mode)
    assert answer["failed"] is True
    assert answer["msg"] == UNREADABLE % (tree / name, "Permission denied")


def test_path_must_be_given(module):
    answer = module("torque_source", {})
    assert (answer["failed"], answer["msg"]) == (True, "missing required arguments: path")


@pytest.mark.skipif(not TARBALL.is_file(), reason="there is no TORQUE source; put torque-6.1.3.tar.gz where TORQUE_SOURCE says")
def test_real_source(module, tmp_path):
    with tarfile.open(TARBALL) as archive:
        archive.extractall(tmp_path)
    (root,) = tmp_path.iterdir()
    answer = module("torque_source", {"path": str(root)})
    assert answer["genuine"] is True
    for name in ("src/resmom/checkpoint.c", "configure.ac", "src/include/site_job_attr_def.ht", "src/resmom/test/allocation/Makefile.am"):
        changed = root / name
        text = changed.read_bytes()
        changed.write_bytes(text + b"\n")
        assert module("torque_source", {"path": str(root)})["genuine"] is False, name
        changed.write_bytes(text)
