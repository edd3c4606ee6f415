import os
import stat

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import output

ME = os.getuid()


@pytest.fixture
def home(tmp_path):
    """A MOM's home (pathlib.Path) with spool, mom_priv and an image."""
    home = tmp_path.resolve()
    for name in ("spool", "mom_priv", "image"):
        (home / name).mkdir()
    return home


@pytest.fixture
def image(home):
    descriptor = os.open(str(home / "image"), os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def leader(keep):
    """Return a function that starts a process with these files (paths or None) as stdout and stderr; returns its pid."""
    def start(out, err):
        def work():
            for number, path in ((1, out), (2, err)):
                if path is None:
                    os.close(number)
                elif path == out and number == 2:
                    os.dup2(1, 2)
                else:
                    os.dup2(os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        return keep(work)
    return start


def raised(work):
    with pytest.raises(HookError) as caught:
        work()
    return caught.value.code, str(caught.value)


# Which files are in the spool

def test_both_files(home, leader):
    out, err = home / "spool" / "12.head.OU", home / "spool" / "12.head.ER"
    assert output.find_output_files(leader(out, err), str(home / "spool")) == [str(out), str(err)]


def test_joined_files_are_one(home, leader):
    out = home / "spool" / "12.head.OU"
    assert output.find_output_files(leader(out, out), str(home / "spool")) == [str(out)]


def test_only_what_is_in_the_spool_itself(home, leader):
    """Kept in the home directory, or under its final name: it stays where it is."""
    (home / "spool" / "deeper").mkdir()
    assert output.find_output_files(leader(home / "job.o12", home / "spool" / "deeper" / "x"), str(home / "spool")) == []


def test_closed_and_special_files(home, leader):
    os.mkfifo(str(home / "spool" / "12.head.OU"))
    keep = os.open(str(home / "spool" / "12.head.OU"), os.O_RDWR)
    assert output.find_output_files(leader(home / "spool" / "12.head.OU", None), str(home / "spool")) == []
    os.close(keep)


def test_removed_file_is_the_engines(home, leader):
    out = home / "spool" / "12.head.OU"
    pid = leader(out, "/dev/null")
    out.unlink()
    assert output.find_output_files(pid, str(home / "spool")) == []


def test_another_file_in_a_removed_ones_place(home, leader):
    out = home / "spool" / "12.head.OU"
    pid = leader(out, "/dev/null")
    out.rename(home / "spool" / "moved")
    assert output.find_output_files(pid, str(home / "spool")) == [str(home / "spool" / "moved")]
    (home / "spool" / "moved").unlink()
    (home / "spool" / "moved (deleted)").write_text("another's")
    assert output.find_output_files(pid, str(home / "spool")) == []


def test_no_such_leader(home, free_pid):
    assert output.find_output_files(free_pid, str(home / "spool")) == []


def test_spool_is_beside_mom_priv(home, monkeypatch):
    monkeypatch.chdir(str(home / "mom_priv"))
    assert output.get_spool_directory() == str(home / "spool")


# Into the image

def test_saved_files(home, image):
    out, err = home / "spool" / "12.head.OU", home / "spool" / "12.head.ER"
    out.write_bytes(b"x" * ((1 << 20) + 7))
    err.write_bytes(b"oops\n")
    err.chmod(0o640)
    out.chmod(0o600)
    assert output.save_output_files(image, output.open_output_files([str(out), str(err)], ME)) == [
        {"name": "stdout", "path": str(out), "mode": 0o600}, {"name": "stderr", "path": str(err), "mode": 0o640}]
    assert (home / "image" / "stdout").read_bytes() == out.read_bytes()
    assert (home / "image" / "stderr").read_bytes() == b"oops\n"
    assert stat.S_IMODE((home / "image" / "stderr").stat().st_mode) == 0o600


def test_only_what_was_written_up_to_the_image(home, image):
    out = home / "spool" / "12.head.OU"
    out.write_bytes(b"before")
    opened = output.open_output_files([str(out)], ME)
    with out.open("ab") as stream:
        stream.write(b" after")
    output.save_output_files(image, opened)
    assert (home / "image" / "stdout").read_bytes() == b"before"


def test_empty_file(home, image):
    out = home / "spool" / "12.head.OU"
    out.write_bytes(b"")
    saved = output.save_output_files(image, output.open_output_files([str(out)], ME))
    assert (home / "image" / "stdout").read_bytes() == b""
    out.write_bytes(b"of another run")
    output.restore_output_files(image, saved, ME)
    assert out.read_bytes() == b""


def test_file_that_has_become_shorter(home, image):
    out = home / "spool" / "12.head.OU"
    out.write_bytes(b"before")
    opened = output.open_output_files([str(out)], ME)
    os.truncate(str(out), 2)
    output.save_output_files(image, opened)
    assert (home / "image" / "stdout").read_bytes() == b"be"


def test_file_that_the_job_has_just_removed(home, image):
    assert output.save_output_files(image, output.open_output_files([str(home / "spool" / "gone")], ME)) == []


def test_link_in_the_spool_is_not_followed(home):
    (home / "secret").write_text("secret")
    link = home / "spool" / "12.head.OU"
    link.symlink_to(home / "secret")
    assert raised(lambda: output.open_output_files([str(link)], ME)) == (
        errors.CANNOT_WRITE, "cannot read the job's output %s: Too many levels of symbolic links; the job keeps running; see to that file"
                             % link)


def test_output_that_the_store_does_not_take(home, image):
    out = home / "spool" / "12.head.OU"
    out.write_text("x")
    (home / "image" / "stdout").write_text("in the way")
    assert raised(lambda: output.save_output_files(image, output.open_output_files([str(out)], ME))) == (
        errors.CANNOT_WRITE, "cannot copy the job's output %s into the image: File exists; the job keeps running; see to the rights on it, "
                             "and to the space and the quota in the store" % out)


# And back

@pytest.fixture
def saved(home):
    (home / "image" / "stdout").write_bytes(b"line 1\nline 2\n")
    return [{"name": "stdout", "path": str(home / "spool" / "12.head.OU"), "mode": 0o644}]


def content(home):
    path = home / "spool" / "12.head.OU"
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


def test_put_back_into_the_empty_file_of_pbs_mom(home, image, saved):
    (home / "spool" / "12.head.OU").write_bytes(b"")
    (home / "spool" / "12.head.OU").chmod(0o600)
    output.restore_output_files(image, saved, ME)
    assert content(home) == (b"line 1\nline 2\n", 0o644)


def test_put_back_over_more(home, image, saved):
    """On the same node, or after a checkpoint that let the job go on."""
    (home / "spool" / "12.head.OU").write_bytes(b"line 1\nline 2\nline 3\n" * 9)
    output.restore_output_files(image, saved, ME)
    assert content(home) == (b"line 1\nline 2\n", 0o644)


def test_put_back_where_there_is_nothing(home, image, saved):
    output.restore_output_files(image, saved, ME)
    assert content(home) == (b"line 1\nline 2\n", 0o644)


def test_nothing_to_put_back(home, image):
    output.restore_output_files(image, [], ME)
    assert os.listdir(str(home / "spool")) == []


def strange(path):
    return (errors.REFUSED, "the job's output %s is not a plain file of the job's owner; remove it and try again; image kept" % path)


def test_put_back_into_no_file_of_another(home, image, saved):
    path = home / "spool" / "12.head.OU"
    path.write_bytes(b"another's")
    assert raised(lambda: output.restore_output_files(image, saved, ME + 1)) == strange(path)
    assert path.read_bytes() == b"another's"


def test_put_back_into_no_file_with_another_name(home, image, saved):
    path = home / "spool" / "12.head.OU"
    (home / "precious").write_bytes(b"precious")
    os.link(str(home / "precious"), str(path))
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == strange(path)
    assert (home / "precious").read_bytes() == b"precious"


def test_put_back_into_no_pipe(home, image, saved):
    path = home / "spool" / "12.head.OU"
    os.mkfifo(str(path))
    keep = os.open(str(path), os.O_RDWR)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == strange(path)
    os.close(keep)


@pytest.mark.parametrize("target", ["precious", "nonexistent"])
def test_put_back_through_no_link(home, image, saved, target):
    path = home / "spool" / "12.head.OU"
    (home / "precious").write_bytes(b"precious")
    path.symlink_to(home / target)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.SYSTEM, "cannot put back the job's output %s: Too many levels of symbolic links; see to that file system, or restart the "
                       "job on another node; image kept" % path)
    assert (home / "precious").read_bytes() == b"precious"
    assert not (home / "nonexistent").exists()


def test_put_back_without_a_spool(home, image, saved):
    (home / "spool").rmdir()
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.SYSTEM, "cannot put back the job's output %s: No such file or directory; see to that file system, or restart the job on "
                       "another node; image kept" % saved[0]["path"])


def test_no_room_is_temporary(home, image, saved, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(output.os, "write", full)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.TEMPORARY, "cannot put back the job's output %s: No space left on device; see to that file system, or restart the job on "
                          "another node; image kept" % saved[0]["path"])
