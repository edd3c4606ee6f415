"""docs/architecture.md has the rooms of test_rooms.py, what each may import, and files that exist."""
import importlib.util
import re

import pytest
from paths import MODULE_UTILS, TOP

SPEC = importlib.util.spec_from_file_location("test_rooms", TOP / "tests/unit/project/test_rooms.py")
test_rooms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(test_rooms)
PAGE = (TOP / "docs/architecture.md").read_text()
PACKAGE = MODULE_UTILS / "torque_ckpt"


def read_section(title):
    return PAGE.split("\n## %s\n" % title)[1].split("\n## ")[0]


def read_rooms(title):
    """Return {room: (what is in it, set of the rooms that it may import)} of a section's table."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|(.*)\|$", read_section(title), re.MULTILINE)
    return {name: (about, set(re.findall(r"`(\w+)`", imported))) for name, about, imported in rows}


@pytest.mark.parametrize("title, arrows", [
    ("The rooms of torque_ckpt", {room: others for room, others in test_rooms.ARROWS.items() if room not in test_rooms.GROUND}),
    ("The rooms of module_utils", test_rooms.MODULE_ARROWS)])
def test_rooms_and_what_they_may_import(title, arrows):
    assert {name: imported for name, (_about, imported) in read_rooms(title).items()} == arrows


def test_files_that_all_may_import():
    named, = re.findall(r"^All rooms may import the files (.*)\.$", read_section("The rooms of torque_ckpt"), re.MULTILINE)
    assert {name + ".py" for name in test_rooms.GROUND} == set(re.findall(r"`([\w.]+)`", named))


@pytest.mark.parametrize("title, top", [("The rooms of torque_ckpt", PACKAGE), ("The rooms of module_utils", MODULE_UTILS)])
def test_files_of_the_rooms_exist(title, top):
    for room, (about, _imported) in read_rooms(title).items():
        for name in re.findall(r"`([\w/]+\.py)`", about):
            assert any((place / name).exists() for place in (top / room, top)), (room, name)


def test_paths_of_the_arrows_exist():
    for path in re.findall(r"`([\w/*]+/[\w*]*(?:\.\w+)?)`", read_section("The drawing") + read_section("Everything else")):
        assert list(TOP.glob(path)) or list(PACKAGE.glob(path)), path


def test_every_arrow_is_explained():
    drawing, text = read_section("The drawing").split("\n```")[1:3]
    arrows = sorted(re.findall(r"\b[CRU]\d\b", drawing))
    assert sorted(set(arrows)) == sorted(set(re.findall(r"^\| ([CRU]\d) \|", text, re.MULTILINE)))
    assert max(map(len, drawing.splitlines())) <= 120
