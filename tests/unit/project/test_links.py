"""Every relative link in the documentation leads to a file that exists and, if it has an anchor, to a heading of that file."""
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted([path for path in (TOP / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")) if path.exists()]
               + list(TOP.glob("docs/**/*.md")) + list(TOP.glob("roles/*/README.md")) + list(TOP.glob("examples/**/*.md")))

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)


def find_anchors(text):
    """Return the anchors (set of str) that a Markdown renderer gives to the headings of a text.

    :param text: a page (str)
    """
    anchors = set()
    for title in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = stem = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while anchor in anchors:
            number += 1
            anchor = "%s-%d" % (stem, number)
        anchors.add(anchor)
    return anchors


def find_links(text):
    """Return the targets (list of str) of all links of a text that leave no host: those without a scheme, code left out."""
    text = CODE.sub("``", FENCE.sub("", text))
    return [target for target in LINK.findall(text) if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def find_faults(page, text, top=TOP):
    """Yield a sentence for each link of a page that leads nowhere.

    :param page: the page (pathlib.Path), beneath which its links start
    :param text: its content (str)
    :param top: the collection (pathlib.Path); nothing outside of it is published
    """
    for target in find_links(text):
        name, _mark, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if top not in [path, *path.parents]:
            yield "%s: %s leaves the collection" % (page.relative_to(top), target)
        elif path != page and not path.exists():
            yield "%s: %s does not exist" % (page.relative_to(top), target)
        elif anchor and anchor not in find_anchors(text if path == page else path.read_text()):
            yield "%s: %s has no such heading" % (page.relative_to(top), target)


def test_pages_have_links():
    names = {str(path.relative_to(TOP)) for path in PAGES}
    assert {"README.md", "docs/install.md", "docs/reference/security.md", "roles/criu/README.md"} <= names
    assert sum(len(find_links(path.read_text())) for path in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_links_lead_somewhere(page):
    assert list(find_faults(page, page.read_text())) == []


def test_each_page_of_the_documentation_is_reached_from_the_readme():
    """A page that a tool generates may also be named, in code, in the README of its directory."""
    reached, waiting = set(), [TOP / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / target.partition("#")[0]).resolve() for target in find_links(page.read_text())]
        if page.name == "README.md":
            targets += [page.parent / name for name in re.findall(r"`([\w-]+\.md)`", page.read_text())]
        waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert sorted(str(page.relative_to(TOP)) for page in set(PAGES) - reached) == []


@pytest.mark.parametrize("text, faults", [
    ("[a](other.md) [b](other.md#a-heading-with-code) [c](#here)\n# Here\n", []),
    ("[a](missing.md)", ["page.md: missing.md does not exist"]),
    ("[a](other.md#missing)", ["page.md: other.md#missing has no such heading"]),
    ("[a](#missing)", ["page.md: #missing has no such heading"]),
    ("[a](../outside.md)", ["page.md: ../outside.md leaves the collection"]),
    ("# Twice\n# Twice\n[a](#twice-1) [b](#twice-2)", ["page.md: #twice-2 has no such heading"]),
    ("[`code`](missing.md)", ["page.md: missing.md does not exist"]),
    ("`[a](missing.md)`\n```\n[a](missing.md)\n# Comment\n```\n[b](#comment)", ["page.md: #comment has no such heading"]),
    ("[a](https://example.org/missing.md) [b](mailto:a@example.org)", []),
])
def test_link_that_leads_nowhere_is_found(tmp_path, text, faults):
    (tmp_path / "other.md").write_text("# A heading, with `code`\n")
    assert list(find_faults(tmp_path / "page.md", text, tmp_path)) == faults
