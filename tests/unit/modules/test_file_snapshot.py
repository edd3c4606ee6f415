"""file_snapshot: an open snapshot and a previous one, whatever is interrupted."""

import os

import pytest

HOST = os.uname().nodename
NAME = "file_snapshot"


@pytest.fixture
def host(module, tmp_path):
    """The module for one file: host(state, ...) returns its answer; host.text() and host.write() are of the file."""
    return Host(module, tmp_path)


class Host:

    def __init__(self, module, top):
        self.module, self.path, self.directory = module, top / "config", top / "state" / "snapshots"
        self.write("first\n")

    def __call__(self, state, check=False, **changed):
        arguments = {"state": state, "directory": str(self.directory)}
        if state == "open":
            arguments.update(paths=[str(self.path)], change="update")
        return self.module(NAME, dict(arguments, **changed), check=check)

    def write(self, text):
        self.path.write_text(text)

    def text(self):
        return self.path.read_text()

    def kept(self):
        return sorted(os.listdir(self.directory)) if self.directory.exists() else []


def done(changed, was_open, change="", **more):
    answer = dict({"changed": changed, "was_open": was_open, "change": change}, **more)
    return dict(answer, links={}) if "paths" in answer else answer


def test_change_that_proves_good(host):
    assert host("open") == done(True, False)
    assert (host.kept(), oct(os.stat(host.directory).st_mode)) == (["open.tar"], "0o40700")
    host.write("second\n")
    assert host("closed") == done(True, True, "update")
    assert (host.kept(), host.text()) == (["previous.tar"], "second\n")
    assert host("closed") == done(False, False)


def test_change_that_changed_nothing_keeps_the_previous_snapshot(host):
    host("open")
    host.write("second\n")
    host("closed")
    host("open")
    assert host("closed") == done(True, True, "update")
    assert host.kept() == ["previous.tar"]
    host("open", change="rollback")
    host("previous")
    assert host.text() == "first\n"


def test_change_that_fails(host):
    host("open")
    host.write("second\n")
    assert host("restored") == done(True, True, "update", paths=[str(host.path)])
    assert (host.kept(), host.text()) == ([], "first\n")
    assert host("restored") == done(False, False, paths=[])


def test_change_that_failed_before_it_began(host):
    host("open")
    assert host("restored") == done(True, True, "update", paths=[])
    assert host.kept() == []


def test_interrupted_change_keeps_what_was_before_it(host):
    host("open")
    host.write("half\n")
    assert host("open", change="another") == done(False, True, "update")
    host.write("second\n")
    host("restored")
    assert host.text() == "first\n"


def test_snapshot_of_a_change_that_ended_otherwise_is_replaced(host):
    host("open")
    host.write("second\n")
    assert host("open", check=True, renew=True) == done(True, True, "update")
    assert host("open", change="another", renew=True) == done(True, True, "update")
    host.write("third\n")
    assert host("restored") == done(True, True, "another", paths=[str(host.path)])
    assert (host.kept(), host.text()) == ([], "second\n")


def test_previous_and_back(host):
    host("open")
    host.write("second\n")
    host("closed")
    for text in ("first\n", "second\n", "first\n"):
        host("open", change="rollback")
        assert host("previous") == done(True, True, "rollback", paths=[str(host.path)])
        assert host.text() == text
        host("closed")


def test_rollback_that_fails(host):
    host("open")
    host.write("second\n")
    host("closed")
    host("open", change="rollback")
    host("previous")
    assert host("restored")["paths"] == [str(host.path)]
    assert (host.text(), host.kept()) == ("second\n", ["previous.tar"])


def test_where_links_would_lead_again(host, tmp_path):
    """Of two links the one that has changed since, and no file."""
    links = [tmp_path / "current", tmp_path / "other"]
    for link in links:
        link.symlink_to("first")
    host("open", paths=[str(host.path)] + [str(link) for link in links])
    host.write("second\n")
    links[0].unlink()
    links[0].symlink_to("second")
    for check in (True, False):
        assert host("restored", check=check)["links"] == {str(links[0]): "first"}
        assert os.readlink(links[0]) == ("second" if check else "first")


@pytest.mark.parametrize("state", ["open", "closed", "restored", "previous"])
def test_check_mode_changes_nothing(host, state):
    host("open")
    host.write("second\n")
    host("closed")
    if state in ("closed", "restored"):
        host("open")
        host.write("third\n")
    before = host.text(), host.kept()
    answer = host(state, check=True)
    assert answer["changed"] is True
    assert answer.get("paths", [str(host.path)]) == [str(host.path)]
    assert (host.text(), host.kept()) == before


@pytest.mark.parametrize("arguments, sentence", [
    ({"state": "open", "paths": ["config"]}, "%s: config is not an absolute path; name it in full; nothing was changed" % HOST),
    ({"state": "closed", "directory": "snapshots"}, "%s: snapshots is not an absolute path; name it in full; nothing was changed" % HOST),
    ({"state": "open", "paths": []}, "%s: paths is empty; name the files to keep; nothing was changed" % HOST),
    ({"state": "undone"}, "value of state must be one of: open, closed, restored, previous, got: undone"),
])
def test_refusals(host, arguments, sentence):
    answer = host.module(NAME, dict({"directory": str(host.directory)}, **arguments))
    assert (answer["failed"], answer["msg"], host.kept()) == (True, sentence, [])


def test_previous_snapshot_is_missing(host):
    answer = host("previous")
    assert answer["msg"] == ("%s: there is no previous snapshot in %s; ckpt.torque.update takes one before it changes a node; nothing was "
                             "changed" % (HOST, host.directory))
    assert host.kept() == []


def test_previous_without_an_open_one(host):
    host("open")
    host.write("second\n")
    host("closed")
    assert host("previous")["msg"] == ("%s: no snapshot is open in %s, so that this could not be undone; take one first (state=open); "
                                       "nothing was changed" % (HOST, host.directory))


def test_damaged_snapshot(host):
    host("open")
    (host.directory / "open.tar").write_text("")
    for state in ("restored", "open"):
        what = "keep the files" if state == "open" else "put the files back"
        assert host(state)["msg"] == ("%s: cannot %s: %s/open.tar is no whole snapshot (empty file); correct the cause and run this again, "
                                      "which continues" % (HOST, what, host.directory))
    assert host.text() == "first\n"
