"""installed_files: a directory that holds exactly the named files, and a module that says exactly what it does."""

import hashlib
import importlib.util
import os
import shutil
import stat
import sys

import pytest

REFUSAL = ("path %s would be emptied of everything else; name a directory of its own, at least two levels deep; "
           "nothing was changed")


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def everything(root):
    """Return what is beneath root: {path: (type and mode, uid, gid, time of change, content or target)}."""
    entries = {}
    for directory, subdirectories, names in os.walk(root):
        for path in [directory] + [os.path.join(directory, name) for name in subdirectories + names]:
            status = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    content = stream.read()
            entries[path] = (oct(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns, status.st_ctime_ns, content)
    return entries


def would_do(planned):
    """Return what the module answers (dict) when it does what it has planned in check mode."""
    assert planned["complete"] is not planned["changed"]
    return dict(planned, complete=True)


# the module

RUN = "#!/bin/sh\nexec \"$@\"\n"
PACKAGE = {"__init__.py": "", "main.py": "VALUE = '\u00fc'\n", "engines/__init__.py": "", "engines/criu.py": "NAME = 'criu'\n"}


class Hooks:
    """The module called with paths in a directory of its own."""

    def __init__(self, module, top):
        self.module, self.top = module, top
        self.root, self.config = top / "lib" / "hooks", top / "etc" / "hooks.json"
        (top / "lib").mkdir(mode=0o755)

    def __call__(self, check=False, diff=False, umask=0o022, **changed):
        arguments = {
            "path": str(self.root), "package": "package", "contents": PACKAGE, "python": sys.executable, "executables": ["run"],
            "files": {"run": RUN, "README": "read me\n", str(self.config): "{}\n"},
        }
        return self.module("installed_files", dict(arguments, **changed), check=check, diff=diff, umask=umask)


@pytest.fixture
def hooks(tmp_path, module):
    """The module, nothing installed yet: hooks(check=False, diff=False, **arguments) returns its answer."""
    return Hooks(module, tmp_path)


@pytest.fixture(scope="module")
def sample(tmp_path_factory, module):
    """A directory (pathlib.Path) with everything installed."""
    first = Hooks(module, tmp_path_factory.mktemp("sample"))
    assert first()["changed"] is True
    return first.top


@pytest.fixture
def installed(hooks, sample):
    """The module with everything installed: hooks, with a copy of the sample."""
    shutil.copytree(sample, hooks.top, symlinks=True, dirs_exist_ok=True)
    return hooks


def paths(hooks):
    return sorted([str(hooks.config)] + [str(hooks.root / name) for name in ("README", "run")] +
                  [str(hooks.root / "package" / name) for name in PACKAGE])


@pytest.mark.root
def test_first_run_installs_and_second_changes_nothing(hooks):
    first = hooks()
    assert (first["changed"], first["written"], first["removed"], first["complete"]) == (True, paths(hooks), [], True)
    assert (hooks.root / "package" / "main.py").read_bytes() == b"VALUE = '\xc3\xbc'\n"
    assert hooks.config.read_text() == "{}\n"
    for path in paths(hooks):
        status = os.lstat(path)
        assert (oct(mode(path)), status.st_uid, status.st_gid) == ("0o755" if path.endswith("/run") else "0o644", 0, 0), path
    for path in (hooks.root, hooks.root / "package", hooks.root / "package" / "engines", hooks.config.parent):
        assert oct(mode(path)) == "0o755", path
    for name in PACKAGE:
        assert os.path.exists(importlib.util.cache_from_source(str(hooks.root / "package" / name))), name
    assert not (hooks.root / "__pycache__").exists()

    before = everything(hooks.root.parents[1])
    second = hooks(diff=True)
    assert (second["changed"], second["written"], second["removed"], second["diff"]) == (False, [], [], [])
    assert everything(hooks.root.parents[1]) == before


@pytest.mark.root
@pytest.mark.parametrize("ending", ["/", "//"])
def test_slash_at_the_end_changes_nothing(installed, ending):
    second = installed(path=str(installed.root) + ending)
    assert (second["changed"], second["written"], second["removed"]) == (False, [], [])


@pytest.mark.root
def test_strays_are_removed(installed):
    strays = ["old", "package/engines/blcr.py", "package/other", "package/main"]
    (installed.root / "old").write_text("old\n")
    (installed.root / "package" / "engines" / "blcr.py").write_text("")
    (installed.root / "package" / "other" / "deep").mkdir(parents=True)
    (installed.root / "package" / "other" / "deep" / "file").write_text("")
    (installed.root / "package" / "main").symlink_to(installed.root.parent)
    beside = installed.config.parent / "site.json"
    beside.write_text("the site's own\n")
    answer = installed()
    assert (answer["changed"], answer["written"]) == (True, [])
    assert answer["removed"] == sorted(str(installed.root / name) for name in strays)
    assert not [name for name in strays if os.path.lexists(installed.root / name)]
    assert installed.root.parent.is_dir()
    assert beside.read_text() == "the site's own\n"
    assert installed()["changed"] is False


@pytest.mark.root
def test_file_no_longer_wanted_goes_with_its_compiled_one(installed):
    compiled = importlib.util.cache_from_source(str(installed.root / "package" / "main.py"))
    answer = installed(contents={name: text for name, text in PACKAGE.items() if name != "main.py"})
    assert answer["removed"] == sorted([compiled, str(installed.root / "package" / "main.py")])
    assert not os.path.exists(compiled)


@pytest.mark.root
@pytest.mark.parametrize("name, drift", [("run", 0o777), ("run", 0o644), ("package/main.py", 0o666), ("README", 0o600)])
def test_mode_of_a_file_is_repaired(installed, name, drift):
    before = mode(installed.root / name)
    (installed.root / name).chmod(drift)
    answer = installed()
    assert (answer["changed"], answer["written"], answer["removed"]) == (True, [str(installed.root / name)], [])
    assert mode(installed.root / name) == before
    assert installed()["changed"] is False


@pytest.mark.root
@pytest.mark.parametrize("name", [".", "package", "package/engines"])
def test_mode_and_owner_of_a_directory_are_repaired(installed, name):
    (installed.root / name).chmod(0o777)
    os.chown(installed.root / name, 1, 1)
    planned = installed(check=True)
    assert mode(installed.root / name) == 0o777
    answer = installed()
    assert (answer["changed"], answer["written"], answer["removed"]) == (True, [], [])
    assert would_do(planned) == answer
    status = os.stat(installed.root / name)
    assert (mode(installed.root / name), status.st_uid, status.st_gid) == (0o755, 0, 0)
    assert installed()["changed"] is False


@pytest.mark.root
def test_owner_of_a_file_is_repaired(installed):
    os.chown(installed.root / "run", 1, 1)
    assert installed()["written"] == [str(installed.root / "run")]
    assert (os.stat(installed.root / "run").st_uid, os.stat(installed.root / "run").st_gid, mode(installed.root / "run")) == (0, 0, 0o755)


@pytest.mark.root
@pytest.mark.parametrize("name", ["run", "package"])
@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "file"])
def test_something_else_in_the_place(installed, name, kind):
    path = installed.root / name
    if name == "run":
        path.unlink()
    else:
        path.rename(installed.root.parent / "away")
    {"directory": lambda: (path / "deep").mkdir(parents=True), "link": lambda: path.symlink_to("/etc"),
     "fifo": lambda: os.mkfifo(path), "file": lambda: path.write_text("")}[kind]()
    answer = installed()
    assert answer["changed"] is True
    assert (installed.root / "run").read_text() == RUN
    assert (installed.root / "package" / "main.py").read_text() == PACKAGE["main.py"]
    assert not path.is_symlink()
    assert installed()["changed"] is False


@pytest.mark.root
def test_link_to_the_same_package_in_its_place(installed):
    (installed.root / "package").rename(installed.root.parent / "away")
    (installed.root / "package").symlink_to(installed.root.parent / "away")
    assert installed()["changed"] is True
    assert (installed.root / "package" / "main.py").exists()


@pytest.mark.root
def test_check_mode_of_the_first_run(hooks):
    before = everything(hooks.root.parents[1])
    planned = hooks(check=True, diff=True)
    assert everything(hooks.root.parents[1]) == before
    assert planned["changed"] is True
    assert would_do(planned) == hooks(diff=True)
    assert hooks(check=True)["changed"] is False


@pytest.mark.root
def test_check_mode_of_a_change(installed):
    (installed.root / "stray").write_text("")
    (installed.root / "run").chmod(0o777)
    installed.config.write_text("{\"other\": 1}\n")
    before = everything(installed.root.parents[1])
    planned = installed(check=True, diff=True)
    assert everything(installed.root.parents[1]) == before
    assert (planned["changed"], planned["removed"]) == (True, [str(installed.root / "stray")])
    assert planned["written"] == sorted([str(installed.config), str(installed.root / "run")])
    assert would_do(planned) == installed(diff=True)
    assert installed(check=True)["complete"]


@pytest.mark.root
def test_diff(hooks):
    """Fresh hosts fit on a page; what a run changes in a configuration is shown in full."""
    key = hooks.config.parent / "key"
    new = ["%s: %d files are new or differ, 0 do not belong there\n" % (hooks.root, len(PACKAGE) + 2),
           "%s: new, 1 lines\n" % hooks.config, "%s: new, 1 lines\n" % key]
    secrets = {str(key): "17\n"}
    assert hooks(diff=True, secrets=secrets)["diff"] == [{"prepared": "".join(new)}]
    hooks.config.write_text("{\"old\": 1}\n")
    (hooks.root / "run").write_text("")
    assert hooks(diff=True, secrets={str(key): "18\n"})["diff"] == [
        {"prepared": "%s: 1 files are new or differ, 0 do not belong there\n" % hooks.root},
        {"before_header": str(hooks.config), "after_header": str(hooks.config), "before": "{\"old\": 1}\n", "after": "{}\n"},
        {"before_header": str(key), "after_header": str(key), "before": "(secret)\n", "after": "(another secret)\n"}]
    assert "diff" not in hooks()


@pytest.mark.root
def test_digests_are_sufficient_where_nothing_differs(installed):
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in PACKAGE.items()}
    answer = installed(contents={}, digests=digests)
    assert (answer["changed"], answer["complete"], answer.get("contents_needed")) == (False, True, None)


@pytest.mark.root
@pytest.mark.parametrize("name", ["main.py", "__init__.py"])
@pytest.mark.parametrize("drift", ["text", "missing", "empty"])
def test_texts_are_asked_for_where_a_digest_differs(installed, tmp_path, name, drift):
    """Nothing is touched before they are here. Check mode does without them."""
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in PACKAGE.items()}
    path = installed.root / "package" / name
    if drift == "missing":
        path.unlink()
    else:
        path.write_text("other\n" if drift == "text" or name == "__init__.py" else "")
    installed.config.write_text("")
    before = everything(tmp_path)
    planned = installed(contents={}, digests=digests, check=True, diff=True)
    asked = installed(contents={}, digests=digests)
    assert (asked["changed"], asked["contents_needed"]) == (False, True)
    assert everything(tmp_path) == before
    assert planned["written"] == sorted([str(installed.config), str(path)])
    assert would_do(planned) == installed(digests=digests, diff=True)
    assert path.read_text() == PACKAGE[name]
    assert installed(contents={}, digests=digests)["changed"] is False


@pytest.mark.root
@pytest.mark.parametrize("path", ["/", "//", "///", "/usr", "/usr/", "/usr//", "usr/lib/hooks", "./lib/hooks"])
def test_path_that_would_be_emptied_is_refused(hooks, path):
    """In check mode, so that a module that forgets to refuse does no harm to the system under test."""
    answer = hooks(path=path, files={str(hooks.config): "{}\n"}, check=True)
    assert (answer.get("failed"), answer.get("msg")) == (True, REFUSAL % path)


@pytest.mark.root
def test_empty_path_is_refused(hooks):
    answer = hooks(path="", files={str(hooks.config): "{}\n"}, check=True)
    assert (answer.get("failed"), answer.get("msg")) == (True, REFUSAL % "")


@pytest.mark.root
def test_refusal_changes_nothing(installed, tmp_path):
    (installed.root / "stray").write_text("")
    before = everything(tmp_path)
    answer = installed(path=os.path.relpath(installed.root, "/"))
    assert (answer["failed"], answer["msg"]) == (True, REFUSAL % os.path.relpath(installed.root, "/"))
    assert everything(tmp_path) == before


@pytest.mark.root
@pytest.mark.parametrize("path", ["//srv", "/srv/.", "/./srv", "/srv/../srv", "/srv/.."])
def test_shallow_path_in_disguise_is_refused(hooks, path):
    answer = hooks(path=path, check=True)  # check mode: today it would go through with it
    assert (answer.get("failed"), answer.get("msg")) == (True, REFUSAL % path)


@pytest.mark.root
@pytest.mark.parametrize("python", ["/nonexistent/python3", "/etc/passwd", "python3"])
def test_missing_interpreter(hooks, tmp_path, python):
    before = everything(tmp_path)
    answer = hooks(python=python)
    assert answer["failed"] is True
    assert answer["msg"] == ("%s cannot be executed on this node; install Python 3.6 or newer or set checkpoint_hooks_python; "
                             "nothing was changed" % python)
    assert everything(tmp_path) == before


@pytest.mark.root
def test_directory_that_holds_something_else(hooks, tmp_path):
    """A typing error must not empty a directory that was there before."""
    hooks.root.mkdir(parents=True)
    (hooks.root / "precious").write_text("data\n")
    before = everything(tmp_path)
    answer = hooks()
    assert (answer["failed"], answer["msg"]) == (
        True, "path %s holds other files, which would be removed; name a directory of its own; nothing was changed" % hooks.root)
    assert everything(tmp_path) == before


@pytest.mark.root
@pytest.mark.parametrize("left", [["README"], ["README", "run"], [".ckpt-torque-x1"], ["README", ".ckpt-torque-x1"]], ids=",".join)
def test_first_installation_that_was_cut_off_is_continued(hooks, left):
    """Files are written one by one, the package's last."""
    hooks.root.mkdir(parents=True)
    for name in left:
        (hooks.root / name).write_text("half")
    answer = hooks()
    assert (answer.get("failed"), answer.get("msg")) == (None, None)
    assert answer["removed"] == [str(hooks.root / name) for name in left if name.startswith(".")]
    assert answer["written"] == paths(hooks)
    assert sorted(os.listdir(hooks.root)) == ["README", "package", "run"]
    assert hooks()["changed"] is False


@pytest.mark.root
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_is_no_draft_in_spite_of_its_name(hooks, tmp_path, kind):
    hooks.root.mkdir(parents=True)
    draft = hooks.root / ".ckpt-torque-x1"
    draft.mkdir() if kind == "directory" else draft.symlink_to(tmp_path)
    before = everything(tmp_path)
    answer = hooks()
    assert (answer["failed"], answer["msg"]) == (
        True, "path %s holds other files, which would be removed; name a directory of its own; nothing was changed" % hooks.root)
    assert everything(tmp_path) == before


def test_interpreter_that_is_a_directory(hooks, tmp_path):
    before = everything(tmp_path)
    assert hooks(python="/usr")["failed"] is True
    assert everything(tmp_path) == before


@pytest.mark.root
def test_place_that_cannot_be_written(hooks):
    hooks.root.parent.joinpath("file").write_text("")
    path = str(hooks.root.parent / "file" / "hooks")
    answer = hooks(path=path)
    assert answer["failed"] is True
    assert answer["msg"] == "cannot install the files: [Errno 20] Not a directory: '%s'" % path


@pytest.mark.root
def test_directories_do_not_depend_on_the_umask(hooks):
    """The hooks run as users: each directory on the way must let them in, also the configuration's."""
    above = hooks.root.parent / "site"
    path = above / "hooks"
    hooks(path=str(path), umask=0o077)
    directories = [above, path, path / "package", path / "package" / "engines", path / "package" / "__pycache__", hooks.config.parent]
    assert [(str(entry), oct(mode(entry))) for entry in directories] == [(str(entry), "0o755") for entry in directories]


@pytest.mark.root
def test_directory_of_compiled_files_that_others_can_write_is_repaired(installed):
    """Whoever can write there decides what root's hooks execute."""
    compiled = installed.root / "package" / "__pycache__"
    compiled.chmod(0o777)
    assert installed()["changed"] is True
    assert mode(compiled) == 0o755


@pytest.mark.root
def test_package_that_cannot_be_compiled(hooks):
    answer = hooks(contents={"__init__.py": "def\n"})
    assert answer["failed"] is True
    assert answer["rc"] == 1
    assert "SyntaxError" in answer["stdout"]


@pytest.mark.root
def test_package_that_could_not_be_compiled_fails_again(hooks):
    hooks(contents={"__init__.py": "def\n"})
    assert hooks(contents={"__init__.py": "def\n"}).get("failed") is True


# without a package

@pytest.fixture
def plain(tmp_path, module):
    """The module without a path: plain(files, **arguments) returns its answer."""
    def call(files, check=False, diff=False, **more):
        arguments = dict(more, files={str(tmp_path / name): text for name, text in files.items()})
        return module("installed_files", arguments, check=check, diff=diff)
    return call


@pytest.mark.root
def test_files_without_a_package(plain, tmp_path):
    """What is beside them is nobody's business, and no interpreter is needed."""
    (tmp_path / "etc").mkdir(mode=0o700)
    (tmp_path / "etc" / "beside").write_text("the site's own\n")
    files = {"etc/one": "1\n", "etc/program": "#!/bin/sh\n", "new/deep/two": "2\n"}
    more = {"executables": [str(tmp_path / "etc" / "program")], "python": "/nonexistent/python3"}
    before = everything(tmp_path)
    planned = plain(files, check=True, diff=True, **more)
    assert everything(tmp_path) == before
    first = plain(files, diff=True, **more)
    assert would_do(planned) == first
    assert (first["changed"], first["written"], first["removed"]) == (True, sorted(str(tmp_path / name) for name in files), [])
    for name, text in files.items():
        assert (tmp_path / name).read_text() == text
        assert oct(mode(tmp_path / name)) == ("0o755" if name == "etc/program" else "0o644"), name
    assert (tmp_path / "etc" / "beside").read_text() == "the site's own\n"
    assert oct(mode(tmp_path / "etc")) == "0o700"

    before = everything(tmp_path)
    second = plain(files, diff=True, **more)
    assert (second["changed"], second["written"], second["diff"]) == (False, [], [])
    assert everything(tmp_path) == before


@pytest.mark.root
def test_one_of_several_files_is_repaired(plain, tmp_path):
    files = {"one": "1\n", "two": "2\n"}
    plain(files)
    (tmp_path / "one").chmod(0o666)
    assert plain(files)["written"] == [str(tmp_path / "one")]
    assert (oct(mode(tmp_path / "one")), plain(files)["changed"]) == ("0o644", False)


@pytest.mark.root
def test_relative_files_need_a_path(module, tmp_path):
    answer = module("installed_files", {"files": {"run": "", "./etc/config": "", str(tmp_path / "file"): ""}})
    assert answer["failed"] is True
    assert answer["msg"] == "./etc/config, run is not an absolute path; name it in full or name a path; nothing was changed"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [{"path": "/srv/a/b"}, {"package": "package"}], ids=["path", "package"])
def test_path_and_package_go_together(module, arguments):
    answer = module("installed_files", arguments, check=True)
    assert answer["failed"] is True
    assert answer["msg"] == "parameters are required together: path, package"


@pytest.mark.root
def test_directories_that_another_program_creates_are_named_while_they_are_missing(module, tmp_path):
    (tmp_path / "file").write_text("")
    paths = [str(tmp_path), str(tmp_path / "spool"), str(tmp_path / "file")]
    answer = module("installed_files", {"files": {}, "directories": paths})
    assert (answer["changed"], answer["missing"]) == (False, paths[1:])
    assert not (tmp_path / "spool").exists()


@pytest.mark.root
def test_diff_counts_what_is_removed(installed):
    (installed.root / "stray").write_text("stray\n")
    assert installed(diff=True, check=True)["diff"] == [
        {"prepared": "%s: 0 files are new or differ, 1 do not belong there\n" % installed.root}]
