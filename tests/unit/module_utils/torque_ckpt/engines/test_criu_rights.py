"""What a core image would give to its thread. The images are built here; those of the real CRIU are read by every test of real hooks."""
import os

import pytest
from core_images import core_image, credentials, framed, message

from torque_ckpt.engines import criu, criu_rights, criu_wire
from torque_ckpt.system import privilege

ME = privilege.find_user("nobody")
GROUPS = set(os.getgrouplist(ME.name, ME.gid))
CHECKPOINT_RESTORE = (0, 1 << (privilege.CAP_CHECKPOINT_RESTORE - 32))


def excess(data):
    return criu_rights.find_excess(data, ME.uid, GROUPS)


def test_image_of_an_ordinary_thread():
    assert excess(core_image(ME)) == ""


@pytest.mark.parametrize("change, wanted", [
    ({"effective": CHECKPOINT_RESTORE}, "effective capabilities 0x10000000000"),
    ({"permitted": CHECKPOINT_RESTORE}, "permitted capabilities 0x10000000000"),
    ({"inheritable": CHECKPOINT_RESTORE}, "inheritable capabilities 0x10000000000"),
    ({"ambient": CHECKPOINT_RESTORE}, "ambient capabilities 0x10000000000"),
    ({"effective": (1 << 19, 0)}, "effective capabilities 0x80000"),
    ({"effective": (0, 0, 1)}, "effective capabilities 0x10000000000000000"),
    ({"effective": (1 << 32, 0)}, "effective capabilities 0x100000000"),  # as a C program reads it none; not as CRIU writes it either
    ({"uid": 0}, "uid 0"), ({"euid": 0}, "euid 0"), ({"suid": 0}, "suid 0"), ({"fsuid": 0}, "fsuid 0"),
    ({"euid": ME.uid + (1 << 32)}, "euid %d" % (ME.uid + (1 << 32))),
    ({"gid": 0}, "gid 0"), ({"egid": 0}, "egid 0"), ({"sgid": 0}, "sgid 0"), ({"fsgid": 0}, "fsgid 0"),
    ({"groups": sorted(GROUPS) + [0]}, "group 0"),
])
def test_image_that_gives_more_than_its_owner_has(change, wanted):
    assert excess(core_image(ME, **change)) == wanted


def test_bounding_set_and_absent_sets_give_nothing():
    assert excess(core_image(ME, bounding=(0, 0))) == ""
    assert excess(core_image(ME, inheritable=(), permitted=(), effective=(), ambient=(), groups=())) == ""


def thread(*fields):
    return (5, message((1, 0), (2, 0), *fields))


GOOD = (10, message(*credentials(ME)))


@pytest.mark.parametrize("state", [2, 6])
def test_process_that_has_ended_has_no_credentials(state):
    assert excess(framed(message((1, 1), (3, message((1, state)))))) == ""


@pytest.mark.parametrize("entry, why", [
    ([(1, 1), (3, message((1, 1)))], "it has no credentials"),  # CRIU would leave it its own
    ([(1, 1)], "it has no credentials"),
    ([(1, 1), (3, message((1, 6))), thread()], "it has no credentials"),
    ([(1, 1), (3, message((1, 1))), thread(GOOD), thread(GOOD)], "field 5 is there 2 times or of another kind"),
    ([(1, 1), thread(GOOD, GOOD)], "field 10 is there 2 times or of another kind"),
    ([(1, 1), (5, 7)], "field 5 is there 1 times or of another kind"),
    ([(1, 1), (3, message((1, 2), (1, 1)))], "field 1 is there 2 times or of another kind"),
    ([thread((10, message(*credentials(ME)[1:])))], "its credentials lack a field"),
    ([thread((10, message(*credentials(ME) + [(9, b"\1")])))], "its credentials have a field of another kind"),  # packed
    ([thread((10, message(*credentials(ME) + [(1, b"\0\0\0\0")])))], "its credentials have a field of another kind"),
    ([(0, 1), thread(GOOD)], "it has a field 0"),
    ([(1 << 29, 1), thread(GOOD)], "it has a field 536870912"),
])
def test_image_that_is_not_as_criu_writes_it(entry, why):
    with pytest.raises(criu_wire.Unreadable) as caught:
        excess(framed(message(*entry)))
    assert str(caught.value) == why


@pytest.mark.parametrize("data, why", [
    (b"", "it has 0 bytes"), (b"12345678901", "it has 11 bytes"), (bytes(12), "it is not one entry of a core image"),
    (core_image(ME) + b"x", "it is not one entry of a core image"), (core_image(ME)[:-1], "it is not one entry of a core image"),
    (core_image(ME) * 2, "it is not one entry of a core image"),
    (framed(b"\x08"), "a number in it does not end"), (framed(b"\x08" + b"\xff" * 11), "a number in it does not end"),
    (framed(b"\x2a\x7f"), "a field in it does not end"), (framed(b"\x29" + b"1234567"), "a field in it does not end"),
    (framed(b"\x0b"), "it has a field of kind 3"), (framed(b"\x0f"), "it has a field of kind 7"),
    (framed(b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "a field in it does not end"),
])
def test_data_that_is_no_image(data, why):
    with pytest.raises(criu_wire.Unreadable) as caught:
        excess(data)
    assert str(caught.value) == why


def test_every_bit_that_is_turned_over_is_read_or_refused():
    """Nothing but a sentence comes of it."""
    good = core_image(ME)
    for position in range(8 * len(good)):
        data = bytearray(good)
        data[position // 8] ^= 1 << position % 8
        try:
            assert isinstance(excess(bytes(data)), str)
        except criu_wire.Unreadable:
            pass


# The engine

@pytest.mark.parametrize("name, data, wanted", [
    ("core-7.img", core_image(ME, ambient=CHECKPOINT_RESTORE), "core-7.img has ambient capabilities 0x10000000000"),
    ("core-7.img", b"x", "core-7.img is not as CRIU writes it: it has 1 bytes"),
    ("core-7.img", bytes(criu_rights.LARGEST + 1), "core-7.img is not as CRIU writes it: it has more than 1048576 bytes"),
    ("creds-7.img", b"", "creds-7.img is of a CRIU that these hooks do not know"),
    ("core-7.img", core_image(ME), ""), ("core-x.img", b"x", ""), ("score-7.img", b"x", ""),
])
@pytest.mark.root
def test_engine_reads_every_core_image(open_directory, name, data, wanted):
    for number, content in ((6, core_image(ME)), (8, core_image(ME))):
        with open("%s/core-%d.img" % (open_directory, number), "wb") as stream:
            stream.write(content)
    with open(os.path.join(open_directory, name), "wb") as stream:
        stream.write(data)
    os.chmod(open_directory, 0o755)
    directory = os.open(open_directory, os.O_RDONLY)
    try:
        assert privilege.as_user(ME, lambda: criu.Criu.find_excess(object.__new__(criu.Criu), directory)) == wanted
    finally:
        os.close(directory)
