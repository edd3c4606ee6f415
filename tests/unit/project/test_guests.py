"""guests.py: what it refuses before it starts a machine."""
import os
import pathlib
import subprocess
import sys

import pytest

SHARED = pathlib.Path(__file__).resolve().parents[3] / "molecule/shared"
sys.path.insert(0, str(SHARED))

import guests  # noqa: E402
from hosts import Failure  # noqa: E402


@pytest.mark.parametrize("arguments", [[], ["up"], ["start", "x"], ["up", "X"], ["up", "x", "y"], ["up", "../x"]])
def test_usage(arguments):
    done = subprocess.run([sys.executable, str(SHARED / "guests.py")] + arguments, stderr=subprocess.PIPE, universal_newlines=True,
                          check=False)
    assert (done.returncode, done.stderr.strip()) == (2, guests.__doc__.strip())


def test_tree_without_a_kernel(monkeypatch, tmp_path):
    monkeypatch.setattr(guests, "KERNEL", str(tmp_path))
    with pytest.raises(Failure) as caught:
        guests.kernel_disk()
    assert str(caught.value) == ("%s is no kernel tree that was compiled: there is no arch/x86/boot/bzImage; compile it, or correct "
                                 "CKPT_TORQUE_GUEST_KERNEL" % tmp_path)


@pytest.mark.parametrize("boot, sentence", [
    ("debian", "CKPT_TORQUE_GUEST_BOOT is debian, but the guests have one kernel; name the other one in CKPT_TORQUE_GUEST_KERNEL"),
    ("update", "CKPT_TORQUE_GUEST_BOOT is update, but the guests have one kernel; name the other one in CKPT_TORQUE_GUEST_UPDATE"),
    ("Update", "CKPT_TORQUE_GUEST_BOOT is 'Update'; make it debian or update, or leave it out"),
])
def test_kernel_that_the_guests_do_not_have(monkeypatch, boot, sentence):
    monkeypatch.setattr(guests, "BOOT", boot)
    with pytest.raises(Failure) as caught:
        guests.up("x")
    assert str(caught.value) == sentence


def test_machine_that_is_not_there(tmp_path):
    """A process id that somebody else has by now is not the machine's."""
    assert guests.running(tmp_path) is None
    (tmp_path / "pid").write_text("%d\n" % os.getpid())
    assert guests.running(tmp_path) is None
    (tmp_path / "pid").write_text("nonsense")
    assert guests.running(tmp_path) is None


@pytest.mark.root
def test_tree_with_file_systems_that_a_killed_build_has_left(tmp_path):
    """They are unmounted; what is in them stays."""
    other, tree = tmp_path / "other", tmp_path / "guest/tree"
    for path in (other, tree / "dev/pts"):
        path.mkdir(parents=True)
    (other / "file").write_text("kept")
    subprocess.run(["mount", "--bind", str(other), str(tree / "dev")], check=True)
    (other / "pts").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(tree / "dev/pts")], check=True)
    guests.remove_tree(tmp_path / "guest")
    assert not (tmp_path / "guest").exists()
    assert (other / "file").read_text() == "kept"
