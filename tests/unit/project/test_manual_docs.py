"""The manual page for users is made of the page for users, docs/users.md, and a terminal of 80 columns shows it."""
import re

import manual_docs
import pytest
from paths import TOP

MANUAL = TOP / "roles/checkpoint_hooks/files/ckpt-torque.7"
USERS = (TOP / "docs/users.md").read_text()


def test_page_is_current():
    assert MANUAL.read_text() == manual_docs.manual(), "run make docs"


def test_each_section_is_in_it():
    sections = re.findall("^## (.*)", USERS, re.MULTILINE)
    assert re.findall("^.SH (.*)", MANUAL.read_text(), re.MULTILINE) == [
        "NAME", "DESCRIPTION", *[name.upper().replace("-", "\\-") for name in sections], "SEE ALSO"]


def test_no_markdown_and_no_path_of_a_page_is_left():
    _made, text = MANUAL.read_text().split("\n", 1)
    assert re.findall(r"\]\(|`|\*\*|\|---|\S+\.md\b", text) == []


def test_code_fits_into_a_terminal():
    """man wraps no code. It indents it by 11 columns."""
    code = "\n".join(re.findall(r"^\.nf\n(.*?)^\.fi$", MANUAL.read_text(), re.MULTILINE | re.DOTALL))
    shown = re.sub(r"\\[-&e]|\\\(..", "-", code)
    assert shown.count("$ ") > 5 and [line for line in shown.splitlines() if len(line) > 80 - 11] == []


@pytest.mark.parametrize("text, wanted", [
    ("a *b* **c** `d -e`", [".PP", r"a \fIb\fR \fBc\fR \fBd \-e\fR"]),
    ("**a `b` c**", [".PP", r"\fBa b c\fR"]),
    ("it's `\\n`, `~`, `^` \"x\"", [".PP", r"it\(aqs \fB\en\fR, \fB\(ti\fR, \fB\(ha\fR \(dqx\(dq"]),
    (".profile\n.bashrc", [".PP", r"\&.profile .bashrc"]),
    ("[the *text*](operate.md#x) and [below](#there)", [".PP", r"the \fItext\fR and below"]),
    ("[parallel-jobs.md](parallel-jobs.md#mpi-on-one-node)", [".PP", r"\(dqParallel jobs\(dq"]),
    ("[reference/torque-ckpt.md](reference/torque-ckpt.md)", [".PP", r"torque\-ckpt(1)"]),
    ("[a](https://example.org/b) <https://example.org/>", [".PP", "a (https://example.org/b) https://example.org/"]),
    ("```\n$ a\n\n.b\n```", [".PP", ".RS 4", ".nf", "$ a\n\n\\&.b", ".fi", ".RE"]),
    ("- a\n- b\n\n  c", [r".IP \(bu 2", "a", r".IP \(bu 2", "b", ".RS 2", ".PP", "c", ".RE"]),
    ("### Not `shouted`", [".SS Not shouted"]),
    ("|x|y|\n|---|---|\n|`-a`, b `c`|d `e`|\n|f|.g|", [".TP", r".B \-a, b c", r"d \fBe\fR", ".TP", ".B f", r"\&.g"]),
    ("|x|y|z|\n|---|---|---|\n|a|b|c|", [".TP", ".B a", "y: b", ".br", "z: c"]),
])
def test_form(text, wanted):
    assert manual_docs.convert("# Title\n\nabout\n\n- [A](#a)\n\n## A `b` [c](x)\n\n%s\n" % text) == [".PP", "about", ".SH A B C", *wanted]


@pytest.mark.parametrize("text, kind", [("1. a", "ordered_list"), ("![a](b.png)", "image"), ("> a", "blockquote"), ("<br>", "html_block")])
def test_what_has_no_form_is_refused(text, kind):
    with pytest.raises(ValueError, match="^docs/users.md: %s has no form in a manual page$" % kind):
        manual_docs.convert("# Title\n\nabout\n\n## A\n\n%s\n" % text)


def test_no_paragraph_is_begun_after_a_heading():
    """Nothing is wrong with it, but mandoc warns."""
    assert not re.search(r"^\.S[HS] .*\n\.PP$", MANUAL.read_text(), re.MULTILINE)
