"""harms: what root does to an image in a directory of the user's gives him no file of root's."""

import os

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest.roundtrip import RoundTripError
from ansible_collections.ckpt.torque.plugins.module_utils.validation import harms

pytestmark = pytest.mark.root

HARM = harms.HARMS["foreign_file"]
REFUSAL = ("the largest file of the image, pages, cannot be given to root: it is not a regular file of uid %d with one name; nothing was "
           "changed; nothing but its job may change an image")


@pytest.fixture
def image(tmp_path, nobody):
    """An image of nobody's, beside a larger file of root's."""
    (tmp_path / "secret").write_text("root's own\n" * 100)
    (tmp_path / "image").mkdir()
    for name, size in (("manifest.json", 5000), ("pages", 400), ("core", 7)):
        (tmp_path / "image" / name).write_bytes(bytes(size))
        os.chown(tmp_path / "image" / name, nobody.pw_uid, nobody.pw_gid)
    return tmp_path / "image"


def read_owners(image):
    return {path.name: path.lstat().st_uid for path in list(image.iterdir()) + [image.parent / "secret"]}


def test_file_is_given_away_and_back(image, nobody):
    owners = {"manifest.json": nobody.pw_uid, "pages": nobody.pw_uid, "core": nobody.pw_uid, "secret": 0}
    given = HARM.inflict(str(image), nobody.pw_uid)
    assert read_owners(image) == dict(owners, pages=0)
    HARM.repair(str(image), nobody.pw_uid, given)
    assert read_owners(image) == owners


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["link", "second name"])
def test_nothing_else_is_given_away(image, nobody, make):
    other = image.parent / "other"  # a user's, which root would give back to the owner of the image
    other.write_bytes(bytes(9000))
    os.chown(other, 1, 1)
    (image / "pages").unlink()
    make(other, image / "pages")
    for name in ("core", "manifest.json"):
        (image / name).unlink()
    with pytest.raises(RoundTripError) as caught:
        HARM.inflict(str(image), nobody.pw_uid)
    assert str(caught.value) == REFUSAL % nobody.pw_uid
    assert other.stat().st_uid == 1


def test_link_in_the_place_of_the_image_is_not_followed(image, nobody):
    image.rename(image.parent / "real")
    image.symlink_to("real")
    with pytest.raises(OSError):
        HARM.inflict(str(image), nobody.pw_uid)
    assert (image.parent / "real" / "pages").stat().st_uid == nobody.pw_uid


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["link", "second name"])
def test_nothing_else_is_given_back(image, nobody, make):
    given = HARM.inflict(str(image), nobody.pw_uid)
    (image / "pages").rename(image.parent / "pages")
    make(image.parent / "secret", image / "pages")
    HARM.repair(str(image), nobody.pw_uid, given)
    assert (image.parent / "secret").stat().st_uid == 0


def test_file_that_is_exchanged_before_it_is_opened(image, nobody, monkeypatch):
    stat_files = harms._stat_files

    def exchange(directory):
        files = stat_files(directory)
        (image / "pages").unlink()
        os.link(image.parent / "secret", image / "pages")
        return files
    monkeypatch.setattr(harms, "_stat_files", exchange)
    with pytest.raises(RoundTripError) as caught:
        HARM.inflict(str(image), nobody.pw_uid)
    assert str(caught.value) == ("the file pages of the image was exchanged before root could change its owner; it was left as it is; "
                                 "nothing but its job may change an image")
