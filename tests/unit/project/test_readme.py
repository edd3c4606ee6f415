"""The README lists what the collection has."""
import re

from paths import TOP

README = (TOP / "README.md").read_text()


def find_rows(pattern):
    return re.findall(r"^\| " + pattern + r" \|", README, re.MULTILINE)


def test_modules():
    assert find_rows(r"`([a-z_]+)`") == sorted(path.stem for path in (TOP / "plugins/modules").glob("*.py"))


def test_roles():
    assert sorted(find_rows(r"\[([a-z_]+)\]\(roles/[a-z_]+/README\.md\)")) == sorted(path.name for path in (TOP / "roles").iterdir())


def test_playbooks():
    assert sorted(find_rows(r"`ckpt\.torque\.([a-z]+)`")) == sorted(path.stem for path in (TOP / "playbooks").glob("*.yml"))


def test_parts_of_make_test():
    parts, = re.findall(r"^PARTS = (.*)$", (TOP / "tests/run.py").read_text(), re.MULTILINE)
    named, = re.findall(r"^`make test` runs ([a-z, ]*) \(\[", README, re.MULTILINE)
    assert re.split(", | and ", named) == re.findall("[a-z]+", parts)
    table = (TOP / "CONTRIBUTING.md").read_text().split("\n## The parts of make test\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `make ([a-z]+)` \|", table, re.MULTILINE)) == sorted(re.findall("[a-z]+", parts))
