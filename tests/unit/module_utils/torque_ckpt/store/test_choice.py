"""Which image a job is restarted from, when pbs_mom names one that is gone, or not the newest."""
import json
import mmap  # noqa: F401 pylint: disable=unused-import; by root: users may not be able to read this interpreter
import os
import re
from collections import namedtuple

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import seal
from torque_ckpt.store import choice, incarnation, location
from torque_ckpt.system import privilege
from torque_ckpt.torque import contract

pytestmark = pytest.mark.root

Job = namedtuple("Job", "call user")

CREATED = "[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z"


@pytest.fixture
def publish(site, free_pid):
    """Return a function that makes image number (int) with this generation (int, default number) by this life (str)."""
    def make(number, life="a", generation=None, held=False):
        site.publish("ckpt.12.head.%d" % number, free_pid, [free_pid], generation=generation or number, incarnation=life, held=held)
        return os.path.join(site.directory, "ckpt.12.head.%d" % number)
    return make


@pytest.fixture
def life(site):
    """Return a function that notes in the job's directory which life (str) continues from which image (int)."""
    def note(name, generation):
        path = os.path.join(site.directory, ".incarnation.12.head")
        with open(path, "w") as stream:
            json.dump({"id": name, "job_id": "12.head", "uid": site.user.uid, "node": "node1", "started": 1.5, "generation": generation,
                       "process": [], "key": "first", "mac": ""}, stream)
        os.chown(path, site.user.uid, -1)
    return note


@pytest.fixture
def choose(site):
    """Return a function that says which number (int) is taken when this one is named, and why."""
    def ask(number):
        call = contract.parse_restart(site.arguments(name="ckpt.12.head.%d" % number))

        def work():
            directory = location.open_job_directory({"path": site.store, "id": "main"}, site.directory)
            life = incarnation.read_incarnation(directory, call.job_id)
            chosen, reason = choice.choose(Job(call, site.user), directory, life, seal.ask_to_verify)
            return [int(chosen.name.rpartition(".")[2]), reason]
        return privilege.as_user(site.user, work, answer=seal.build_answer(seal.load_keys(site.key), call, site.user))
    return ask


def test_named_one_is_the_newest(publish, life, choose):
    life("a", 0)
    publish(1)
    publish(2)
    assert choose(2) == [2, ""]


def test_there_is_none(choose, site):
    assert choose(2) == [2, ""]


def test_newer_one_of_the_same_life(publish, life, choose):
    """The node failed before pbs_server heard of it."""
    life("a", 0)
    for number in (1, 2, 3):
        publish(number)
    number, reason = choose(1)
    assert number == 3
    assert re.fullmatch("restarted from image ckpt.12.head.3 of %s, newer than ckpt.12.head.1, of which the server knew" % CREATED, reason)


@pytest.mark.parametrize("held", [True, None], ids=["held", "older hooks"])
def test_older_one_that_somebody_chose(publish, life, choose, held):
    """The job was held after the newest: the server knew it."""
    life("a", 0)
    publish(1)
    publish(2)
    publish(3, held=held)
    assert choose(1) == [1, ""]


def test_named_one_was_pruned(publish, life, choose):
    life("a", 0)
    for number in (2, 3):
        publish(number)
    number, reason = choose(1)
    assert number == 3
    assert re.fullmatch("restarted from image ckpt.12.head.3 of %s, because ckpt.12.head.1 is gone" % CREATED, reason)


def test_older_one_is_called_so(publish, life, choose):
    life("a", 0)
    publish(1)
    publish(2)
    number, reason = choose(5)
    assert number == 2
    assert re.fullmatch("restarted from image ckpt.12.head.2 of %s, because ckpt.12.head.5 is gone; it is older: what the job did since is "
                        "done again" % CREATED, reason)


@pytest.mark.parametrize("named", [1, 9], ids=["there", "gone"])
def test_what_another_life_made_meanwhile(publish, life, choose, named):
    """B continues from image 1; A, cut off, made 2 and 3."""
    for number in (1, 2, 3):
        publish(number, "a")
    life("b", 1)
    assert choose(named)[0] == 1
    publish(4, "b")
    assert choose(named)[0] == 4


def test_life_that_was_on_this_node_before(publish, life, choose):
    """In a store of the node's own: A was cut off here and made 6; B, elsewhere, made 5, which was fetched."""
    life("a", 0)
    publish(4, "a")
    publish(5, "b")
    publish(6, "a")
    assert choose(5) == [5, ""]


def test_images_of_hooks_without_incarnations(publish, choose):
    publish(1, "")
    publish(2, "")
    assert choose(9)[0] == 2


@pytest.mark.parametrize("named", [1, 9], ids=["there", "gone"])
def test_newest_is_not_whole(publish, life, choose, named):
    """By its sizes, by its content, by its seal; a link is none."""
    life("a", 0)
    paths = {number: publish(number) for number in (1, 2, 3, 4)}
    os.truncate(paths[4] + "/pages.img", 1)
    with open(paths[3] + "/pages.img", "r+b") as stream:
        stream.write(b"MEMORY")
    with open(paths[2] + "/manifest.json", "r+") as stream:
        text = stream.read().replace('"frozen_seconds": 0.5', '"frozen_seconds": 0.7')
        stream.seek(0)
        stream.write(text)
    os.symlink(paths[1], os.path.join(os.path.dirname(paths[1]), "ckpt.12.head.7"))
    assert choose(named)[0] == 1


def test_named_one_is_damaged(publish, life, choose):
    """Perhaps this node alone cannot read it; its owner may move it away."""
    life("a", 0)
    publish(1)
    os.unlink(publish(2) + "/manifest.json")
    assert choose(2) == [2, ""]


def test_image_with_two_names(publish, life, choose, site):
    """As one that could not be restarted, and was held again, has."""
    life("a", 0)
    publish(1, generation=1)
    publish(2, generation=1)
    assert choose(1) == [1, ""]
    assert choose(2) == [2, ""]


def test_key_that_this_node_lacks(publish, life, choose, site):
    life("a", 0)
    publish(1)
    with open(site.key, "w") as stream:
        json.dump({"keys": [{"id": "second", "secret": "18" * 32}]}, stream)
    with pytest.raises(HookError) as caught:
        choose(9)
    assert caught.value.code == errors.TEMPORARY
    assert str(caught.value).startswith("image %s/ckpt.12.head.1 was sealed with the key 'first', which this node does not have; "
                                        % site.directory)
