"""The page of messages has the sentences of the code, and what the troubleshooting quotes is among them."""
import ast
import importlib.util
import re
import sys

import pytest

from paths import TOP

sys.path.append(str(TOP / "tools"))
SPEC = importlib.util.spec_from_file_location("reference_docs", TOP / "tools/reference_docs.py")
reference_docs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reference_docs)
sentences = reference_docs.sentences

PACKAGE = TOP / "plugins/module_utils/torque_ckpt"
ABOVE = (
    "checkpoint: ", "restart: ", "run: ", "copy: ",  # pbs_mom called a hook in another way
    "OUTPUT ", "the restored tree did not end", "the tree ended at", "the tree's exit status",  # the engine restored something else
    "ACTION_SCRIPT failed", "the part of the hook that runs as root has ended",  # the part that failed reports why
    "the manifest to be sealed", "the part of the hook that runs as USER returned nothing",  # somebody changed a hook's process
    "SENTENCE (attempt")
"""What sentences begin with whose advice is that of their code."""


@pytest.fixture(scope="module")
def listed():
    return reference_docs.list_sentences()


@pytest.fixture(scope="module")
def texts(listed):
    return [sentence.text for sentence in listed]


def write_package(top, text):
    """Write a package of two files (top: pathlib.Path), the second with this text (str); return its sentences."""
    (top / "errors.py").write_text("DATA = 65\nSYSTEM = 71\nTEMPORARY = 75\n")
    (top / "room.py").write_text(text)
    return sentences.Package(top).list_sentences((), ())


def test_page_is_current():
    assert (TOP / "docs/reference/messages.md").read_text() == reference_docs.messages(), "run make docs"


def test_each_file_that_fails_is_on_the_page(listed):
    named = {sentence.room for sentence in listed}
    for path in PACKAGE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(sentences.name_of(node.func) == "HookError" for node in calls):
            assert str(path.relative_to(PACKAGE)) in named


@pytest.mark.parametrize("code, text", [
    ("NO_USER", "user USER is not known on this node; compare the account database with the other nodes"),
    ("DATA", "image IMAGE is damaged: NAME has another content than was written; take an older image"),  # a helper and what calls it
    ("TEMPORARY", "cannot put back WHERE: REASON; see to that file system, or restart the job on another node; image kept"),
    ("SYSTEM", "cannot put back WHERE: REASON; see to that file system, or restart the job on another node; image kept"),
    ("REFUSED", "process PID (NAME) is traced by process PID (NAME); ENGINE cannot checkpoint that; the job keeps running; end the "
                "debugger, or checkpoint the job when it has ended[; torque-ckpt check JOB lists NUMBER more]"),
    ("AROUND", "SENTENCE (attempt NUMBER of LIMIT)"),
])
def test_sentence_is_listed(listed, code, text):
    assert (code, text) in {(sentence.code, sentence.text) for sentence in listed}


def test_sentences_have_nothing_of_the_code_left(texts):
    assert not [text for text in texts if "\0" in text or re.search(r"%[sdr]|\bNone\b|\(\)|: ;", text)]


def test_what_the_trees_do_not_show_is_there():
    places = {"hooks": TOP / "roles/checkpoint_hooks/templates/entry.py.j2"}
    for _code, text, room in sentences.UNSEEN:
        source = re.sub(r'"\s+"', "", places.get(room, PACKAGE / room).read_text())
        assert all(part in source for part in re.split(r"\b[A-Z]{3,}\b|; ", text))


@pytest.mark.parametrize("text, wanted", [
    ('raise HookError(DATA, "it is %s of %d: %s" % (quote_name(job.job_id), size, error.strerror))',
     {("DATA", "it is JOB of SIZE: REASON")}),
    ('raise HookError(errors.DATA, "one; " + "two")', {("DATA", "one; two")}),
    ('raise HookError(DATA if x else SYSTEM, "one")', {("DATA", "one"), ("SYSTEM", "one")}),
    ('raise HookError(DATA, "it is %s" % ("big" if x else "small"))', {("DATA", "it is big"), ("DATA", "it is small")}),
    ('raise HookError(DATA, "it is big%s" % (" and red" if x else ""))', {("DATA", "it is big[ and red]")}),
    ('LIMIT = 1 << 4\nraise HookError(DATA, "it has more than %d%%" % LIMIT)', {("DATA", "it has more than 16%")}),
    ('def fail(code, why):\n    return HookError(code, "it %s" % why)\nfail(DATA, "is big")\nfail(SYSTEM, "has %d" % size)\n',
     {("DATA", "it is big"), ("SYSTEM", "it has SIZE")}),
    ("raise HookError(DATA, error.sentence)", set()),
])
def test_sentence_of_an_expression(tmp_path, text, wanted):
    assert {(sentence.code, sentence.text) for sentence in write_package(tmp_path, text)} == wanted


@pytest.mark.parametrize("text, parts", [
    ("image IMAGE is damaged; take an older image", ("image IMAGE is damaged", "take an older image")),
    ("it failed; the job keeps running", ("it failed; the job keeps running", "")),
])
def test_split_sentence(text, parts):
    assert reference_docs.split_sentence(text) == parts


def test_cures_of_single_sentences_are_used(texts):
    for words in reference_docs.OWN_CURES:
        found = [text for text in texts if text.startswith(words)]
        assert found, words
        assert not any(reference_docs.split_sentence(text)[1] for text in found), words


def test_sentence_says_what_to_do(listed):
    general = {cause for cause, cure, _files in reference_docs.message_rows(listed) if cure == "*as above*"}
    assert {cause for cause in general if not cause.startswith(ABOVE)} == set()
    assert {words for words in ABOVE if not any(cause.startswith(words) for cause in general)} == set()


def list_comments(page):
    """Return the comments (list of str) that tables of a page (str) name; what is in backticks is TORQUE's."""
    tables = re.findall(r"^\| comment \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    cells = [row.split(" | ")[0].strip("| ") for rows in tables for row in rows.splitlines()]
    return [cell for cell in cells if not cell.startswith("`")]


def test_what_the_troubleshooting_quotes_is_said(texts):
    comments = list_comments((TOP / "docs/troubleshooting.md").read_text())
    assert len(comments) > 12
    stale = []
    for comment in comments:
        parts = [re.escape(part.strip()) for part in comment.split("...")]
        pattern = re.compile(".*".join(parts))
        if not any(map(pattern.search, texts)):
            stale.append(comment)
    assert not stale


def test_stale_quotation_is_found(texts):
    assert list_comments("| comment | cause |\n|---|---|\n| it is ... | x |\n| `theirs` | y |\n") == ["it is ..."]
    assert not any("it was never said" in text for text in texts)
