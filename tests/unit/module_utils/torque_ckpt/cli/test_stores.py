"""Which images torque-ckpt finds, and which one is meant: called as the program it is, by root and by users, on real stores."""
import os

import pytest

from torque_ckpt import errors
from torque_ckpt.store import location

pytestmark = pytest.mark.root


def test_list_is_sorted_by_job_and_generation(fleet):
    for job, generation in (("100.head", 1), ("12.head", 10), ("12.head", 9), ("3.head", 1)):
        fleet.image(job, generation=generation)
    assert [image["image"] for image in fleet.ask("list")["images"]] == [
        "ckpt.3.head.1001", "ckpt.12.head.1009", "ckpt.12.head.1010", "ckpt.100.head.1001"]


def test_list_finds_images_in_directories_of_users(fleet):
    fleet.image(inside=fleet.users_directory("nobody"))
    fleet.image("13.head", inside=fleet.users_directory("daemon"), user="daemon")
    assert [(image["job"], image["owner"]) for image in fleet.ask("list")["images"]] == [("12.head", "nobody"), ("13.head", "daemon")]


def test_user_sees_his_own_only(fleet):
    fleet.image()
    fleet.image("13.head", user="daemon")
    fleet.image("14.head", user="daemon", inside=fleet.users_directory("daemon"))
    answer = fleet.ask("list", user="daemon")
    assert [(image["job"], image["authentic"]) for image in answer["images"]] == [("13.head", None), ("14.head", None)]
    assert answer["problems"] == []


def test_user_of_a_store_that_he_cannot_list(fleet):
    fleet.image("13.head", user="daemon")
    fleet.image("14.head", user="daemon", inside=fleet.users_directory("daemon"))
    os.chmod(fleet.store, 0o711)
    assert [image["job"] for image in fleet.ask("list", user="daemon")["images"]] == ["14.head"]
    assert fleet.ask("show", "13.head", user="daemon")["image"]["state"] == "whole"


def test_without_a_key_nothing_is_called_authentic(fleet):
    """As on hosts where users log in."""
    fleet.image()
    os.unlink(fleet.settings["key_path"])
    answer = fleet.ask("list")
    assert ([image["authentic"] for image in answer["images"]], answer["problems"]) == ([None], [])


def test_key_that_others_can_read_is_not_used(fleet):
    fleet.image()
    os.chmod(fleet.settings["key_path"], 0o644)
    answer = fleet.ask("list", code=1)
    assert [image["authentic"] for image in answer["images"]] == [None]
    assert answer["problems"] == ["images cannot be authenticated: key file %s must be root's and readable by nobody else; "
                                  "run the role checkpoint_hooks on this node" % fleet.settings["key_path"]]


def test_store_that_is_not_mounted(fleet):
    os.unlink(os.path.join(fleet.store, location.MARKER))
    done = fleet.call("list")
    assert (done.returncode, done.stdout) == (1, "no images\n")
    assert done.stderr == ("torque-ckpt: store %s is not usable on this node: %s/.ckpt-torque-store: No such file or directory; "
                           "is it mounted?\n" % (fleet.store, fleet.store))


@pytest.mark.parametrize("what", ["12.head", "12", "ckpt.12.head.1001", "{path}", "{directory}"])
def test_ways_to_name_an_image(fleet, what):
    path = fleet.image()
    fleet.image("112.head")
    assert fleet.ask("show", what.format(path=path, directory=os.path.dirname(path)))["image"]["path"] == path


@pytest.mark.parametrize("what", ["13.head", "13", "ckpt.12.head.7", "/tmp/12.head.CK", "../x"])
def test_image_that_is_not_there(fleet, what):
    fleet.image()
    done = fleet.call("show", what)
    assert (done.returncode, done.stdout) == (errors.NO_INPUT, "")
    assert done.stderr == ("torque-ckpt: there is no image %s in the stores of this host (%s); see torque-ckpt list for those that there "
                           "are\n" % (ascii(what), fleet.store))


def test_image_of_somebody_else(fleet):
    path = fleet.image()
    for what in ("12.head", path):
        done = fleet.call("show", what, user="daemon")
        assert (done.returncode, done.stderr) == (errors.NO_INPUT, "torque-ckpt: there is no image '%s' in the stores of this host (%s) "
                                                  "that is yours; see torque-ckpt list for those that there are\n" % (what, fleet.store))


def test_number_of_two_jobs(fleet):
    fleet.image("12.head")
    fleet.image("12.tail")
    done = fleet.call("verify", "12")
    assert (done.returncode, done.stderr) == (errors.USAGE, "torque-ckpt: '12' means several jobs (12.head, 12.tail); name one in full\n")
