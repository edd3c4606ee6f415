"""docs/reference/security.md names the tests that show what it says: each of them is there."""
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", (TOP / "docs/reference/security.md").read_text())))


def test_tests_are_named():
    assert len(NAMED) > 40


@pytest.mark.parametrize("file, name", NAMED)
def test_named_test_is_there(file, name):
    paths = [path for path in (TOP / "tests").rglob(file) if re.search(r"^def %s\(" % name, path.read_text(), re.MULTILINE)]
    assert paths, "docs/reference/security.md names %s::%s, which is not there" % (file, name)
