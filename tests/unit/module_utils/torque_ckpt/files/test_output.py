import os
import stat

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.files import output

ME = os.getuid()


@pytest.fixture
def place(tmp_path):
    """A MOM's home (pathlib.Path) with spool, mom_priv and an image."""
    home = tmp_path.resolve()
    for name in ("spool", "mom_priv", "image"):
        (home / name).mkdir()
    return home


@pytest.fixture
def image(place):
    descriptor = os.open(str(place / "image"), os.O_RDONLY)
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

def test_both_files(place, leader):
    out, err = place / "spool" / "12.head.OU", place / "spool" / "12.head.ER"
    assert output.find_output_files(leader(out, err), str(place / "spool")) == [str(out), str(err)]


def test_joined_files_are_one(place, leader):
    out = place / "spool" / "12.head.OU"
    assert output.find_output_files(leader(out, out), str(place / "spool")) == [str(out)]


def test_only_what_is_in_the_spool_itself(place, leader):
    """Kept in the home directory, or under its final name: it stays where it is."""
    (place / "spool" / "deeper").mkdir()
    assert output.find_output_files(leader(place / "job.o12", place / "spool" / "deeper" / "x"), str(place / "spool")) == []


def test_closed_and_special_files(place, leader):
    os.mkfifo(str(place / "spool" / "12.head.OU"))
    keep = os.open(str(place / "spool" / "12.head.OU"), os.O_RDWR)
    assert output.find_output_files(leader(place / "spool" / "12.head.OU", None), str(place / "spool")) == []
    os.close(keep)


def test_removed_file_is_the_engines(place, leader):
    out = place / "spool" / "12.head.OU"
    pid = leader(out, "/dev/null")
    out.unlink()
    assert output.find_output_files(pid, str(place / "spool")) == []


def test_another_file_in_a_removed_ones_place(place, leader):
    out = place / "spool" / "12.head.OU"
    pid = leader(out, "/dev/null")
    out.rename(place / "spool" / "moved")
    assert output.find_output_files(pid, str(place / "spool")) == [str(place / "spool" / "moved")]
    (place / "spool" / "moved").unlink()
    (place / "spool" / "moved (deleted)").write_text("another's")
    assert output.find_output_files(pid, str(place / "spool")) == []


def test_no_such_leader(place, free_pid):
    assert output.find_output_files(free_pid, str(place / "spool")) == []


def test_spool_is_beside_mom_priv(place, monkeypatch):
    monkeypatch.chdir(str(place / "mom_priv"))
    assert output.get_spool_directory() == str(place / "spool")


# Into the image

def test_saved_files(place, image):
    out, err = place / "spool" / "12.head.OU", place / "spool" / "12.head.ER"
    out.write_bytes(b"x" * ((1 << 20) + 7))
    err.write_bytes(b"oops\n")
    err.chmod(0o640)
    out.chmod(0o600)
    assert output.save_output_files(image, output.open_output_files([str(out), str(err)], ME)) == [
        {"name": "stdout", "path": str(out), "mode": 0o600}, {"name": "stderr", "path": str(err), "mode": 0o640}]
    assert (place / "image" / "stdout").read_bytes() == out.read_bytes()
    assert (place / "image" / "stderr").read_bytes() == b"oops\n"
    assert stat.S_IMODE((place / "image" / "stderr").stat().st_mode) == 0o600


def test_only_what_was_written_up_to_the_image(place, image):
    out = place / "spool" / "12.head.OU"
    out.write_bytes(b"before")
    found = output.open_output_files([str(out)], ME)
    with out.open("ab") as stream:
        stream.write(b" after")
    output.save_output_files(image, found)
    assert (place / "image" / "stdout").read_bytes() == b"before"


def test_empty_file(place, image):
    out = place / "spool" / "12.head.OU"
    out.write_bytes(b"")
    saved = output.save_output_files(image, output.open_output_files([str(out)], ME))
    assert (place / "image" / "stdout").read_bytes() == b""
    out.write_bytes(b"of another run")
    output.restore_output_files(image, saved, ME)
    assert out.read_bytes() == b""


def test_file_that_has_become_shorter(place, image):
    out = place / "spool" / "12.head.OU"
    out.write_bytes(b"before")
    found = output.open_output_files([str(out)], ME)
    os.truncate(str(out), 2)
    output.save_output_files(image, found)
    assert (place / "image" / "stdout").read_bytes() == b"be"


def test_file_that_the_job_has_just_removed(place, image):
    assert output.save_output_files(image, output.open_output_files([str(place / "spool" / "gone")], ME)) == []


def test_link_in_the_spool_is_not_followed(place):
    (place / "secret").write_text("secret")
    link = place / "spool" / "12.head.OU"
    link.symlink_to(place / "secret")
    assert raised(lambda: output.open_output_files([str(link)], ME)) == (
        errors.CANNOT_WRITE, "cannot read the job's output %s: Too many levels of symbolic links" % link)


def test_output_that_the_store_does_not_take(place, image):
    out = place / "spool" / "12.head.OU"
    out.write_text("x")
    (place / "image" / "stdout").write_text("in the way")
    assert raised(lambda: output.save_output_files(image, output.open_output_files([str(out)], ME))) == (
        errors.CANNOT_WRITE, "cannot copy the job's output %s into the image: File exists" % out)


# And back

@pytest.fixture
def saved(place):
    (place / "image" / "stdout").write_bytes(b"line 1\nline 2\n")
    return [{"name": "stdout", "path": str(place / "spool" / "12.head.OU"), "mode": 0o644}]


def content(place):
    path = place / "spool" / "12.head.OU"
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


def test_put_back_into_the_empty_file_of_pbs_mom(place, image, saved):
    (place / "spool" / "12.head.OU").write_bytes(b"")
    (place / "spool" / "12.head.OU").chmod(0o600)
    output.restore_output_files(image, saved, ME)
    assert content(place) == (b"line 1\nline 2\n", 0o644)


def test_put_back_over_more(place, image, saved):
    """On the same node, or after a checkpoint that let the job go on."""
    (place / "spool" / "12.head.OU").write_bytes(b"line 1\nline 2\nline 3\n" * 9)
    output.restore_output_files(image, saved, ME)
    assert content(place) == (b"line 1\nline 2\n", 0o644)


def test_put_back_where_there_is_nothing(place, image, saved):
    output.restore_output_files(image, saved, ME)
    assert content(place) == (b"line 1\nline 2\n", 0o644)


def test_nothing_to_put_back(place, image):
    output.restore_output_files(image, [], ME)
    assert os.listdir(str(place / "spool")) == []


def strange(path):
    return (errors.REFUSED, "the job's output %s is not a plain file of the job's owner; remove it and try again; image kept" % path)


def test_put_back_into_no_file_of_another(place, image, saved):
    path = place / "spool" / "12.head.OU"
    path.write_bytes(b"another's")
    assert raised(lambda: output.restore_output_files(image, saved, ME + 1)) == strange(path)
    assert path.read_bytes() == b"another's"


def test_put_back_into_no_file_with_another_name(place, image, saved):
    path = place / "spool" / "12.head.OU"
    (place / "precious").write_bytes(b"precious")
    os.link(str(place / "precious"), str(path))
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == strange(path)
    assert (place / "precious").read_bytes() == b"precious"


def test_put_back_into_no_pipe(place, image, saved):
    path = place / "spool" / "12.head.OU"
    os.mkfifo(str(path))
    keep = os.open(str(path), os.O_RDWR)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == strange(path)
    os.close(keep)


@pytest.mark.parametrize("target", ["precious", "nonexistent"])
def test_put_back_through_no_link(place, image, saved, target):
    path = place / "spool" / "12.head.OU"
    (place / "precious").write_bytes(b"precious")
    path.symlink_to(place / target)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.SYSTEM, "cannot put back the job's output %s: Too many levels of symbolic links; image kept" % path)
    assert (place / "precious").read_bytes() == b"precious"
    assert not (place / "nonexistent").exists()


def test_put_back_without_a_spool(place, image, saved):
    (place / "spool").rmdir()
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.SYSTEM, "cannot put back the job's output %s: No such file or directory; image kept" % saved[0]["path"])


def test_no_room_is_temporary(place, image, saved, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(output.os, "write", full)
    assert raised(lambda: output.restore_output_files(image, saved, ME)) == (
        errors.TEMPORARY, "cannot put back the job's output %s: No space left on device; image kept" % saved[0]["path"])
