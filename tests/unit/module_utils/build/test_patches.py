"""A patch series: what belongs to a version, what a diff may do, and what becomes of the tree."""

import difflib
import os
import re
import shutil
import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.build import patches
from ansible_collections.ckpt.torque.plugins.module_utils.build.patches import PatchError, Rejected, Section
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError

PROGRAM = shutil.which("patch")

needs_patch = pytest.mark.skipif(PROGRAM is None, reason="GNU patch is not installed")


def run(argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          env={"LC_ALL": "C"}, check=False)
    return done.returncode, done.stdout, done.stderr


# within, choose

@pytest.mark.parametrize("version, limits, expected", [
    ("6.1.3", {}, True),
    ("6.1.3", {"from": "6.1.3"}, True),
    ("6.1.3", {"from": "6.1.3.h1"}, False),
    ("6.1.3.h5", {"from": "6.1.3", "below": "6.1.4"}, True),
    ("6.1.3", {"below": "6.1.3"}, False),
    ("2.4.8", {"below": "2.5"}, True),
    ("2.5.13", {"from": "2.5.3", "below": "2.5.5"}, False),
    ("2.5.3", {"from": None, "below": None}, True),
])
def test_within(version, limits, expected):
    assert patches.within(version, limits) is expected


ENTRY = {"name": "migration", "upstream": [{"from": "2.4.13", "below": "2.5"}, {"from": "2.5.5"}],
         "variants": [{"below": "2.5", "file": "migration-2.4.patch"}, {"from": "2.5", "below": "9", "file": "migration-2.5.patch"}]}


@pytest.mark.parametrize("version, expected", [
    ("2.4.8", ("migration-2.4.patch", None)),
    ("2.4.13", (None, "already upstream")),
    ("2.5.3", ("migration-2.5.patch", None)),
    ("2.5.5", (None, "already upstream")),
    ("6.1.3.h5", (None, "already upstream")),
])
def test_choose(version, expected):
    assert patches.choose(ENTRY, version) == expected


@pytest.mark.parametrize("entry", [{"name": "x"}, {"name": "x", "variants": None, "upstream": None},
                                   {"name": "x", "variants": [{"from": "4", "file": "x-4.patch"}]}])
def test_choose_nothing(entry):
    assert patches.choose(entry, "2.5.3") == (None, "not applicable")


@pytest.mark.parametrize("entry, message", [
    ({"name": "x", "variants": [{"file": "a"}, {"from": "6", "file": "b"}]},
     "patch x has 2 variants for TORQUE 6.1.3 (a, b); let their ranges not overlap"),
    ({"name": "x", "variants": [{"from": "six", "file": "b"}]},
     "patch x: 'six' is not a version; name one such as 6.1.3 or 6.1.3.h5"),
    ({"name": "x", "upstream": [{"below": "all"}]},
     "patch x: 'all' is not a version; name one such as 6.1.3 or 6.1.3.h5"),
])
def test_choose_refuses(entry, message):
    with pytest.raises(PatchError) as caught:
        patches.choose(entry, "6.1.3")
    assert str(caught.value) == message


# sections_of

HUNK = "@@ -1,2 +1,2 @@ function\n one\n-two\n+TWO\n"


def test_sections():
    more = "@@ -9,2 +9,3 @@\n\n+++ b/no/header\n--- a/no/header\n+x\n"
    new = "@@ -0,0 +1 @@\n+text\n\\ No newline at end of file\n"
    gone = "@@ -1 +0,0 @@\n-\xff\x0c\n"
    git = "Why: words\ndiff --git a/src/a.c b/src/a.c\nindex 1..2 100644\n"
    text = (git + "--- a/src/a.c\t2018-01-01\n+++ b/src/a.c\n" + HUNK + more + "--- /dev/null\n+++ b/new.h\n" + new
            + "--- x/old.h\n+++ /dev/null\n" + gone)
    assert patches.sections_of(text) == [
        Section("src/a.c", "--- a\n+++ b\n" + HUNK + more),
        Section("new.h", "--- /dev/null\n+++ b\n" + new),
        Section("old.h", "--- a\n+++ /dev/null\n" + gone),
    ]


def header(old, new):
    return "--- %s\n+++ %s\n%s" % (old, new, HUNK)


@pytest.mark.parametrize("text, message", [
    ("", "it holds no unified diff"),
    ("*** a/x\n--- b/x\n", "it holds no unified diff"),
    ("--- a/x\n", "it holds no unified diff"),
    ("--- a/x\n" + HUNK, "line 2 is a hunk of no file"),
    ("words\n+++ b/x\n" + HUNK, "line 3 is a hunk of no file"),
    (HUNK, "line 1 is a hunk of no file"),
    (header("a/x", "b/x")[:-5], "the hunk at line 3 is not as long as it says"),
    (header("a/x", "b/x").replace(" one", "one"), "the hunk at line 3 is not as long as it says"),
    (header("a/x", "b/x").replace(" one\n", " one\nwords\n"), "the hunk at line 3 is not as long as it says"),
    (header("a/x", "b/y"), "line 1 names no file in the tree: --- a/x"),
    (header("/dev/null", "/dev/null"), "line 1 names no file in the tree: --- /dev/null"),
    (header("a/../x", "b/../x"), "line 1 names no file in the tree: --- a/../x"),
    (header("a/..", "b/.."), "line 1 names no file in the tree: --- a/.."),
    (header("/etc/passwd", "/etc/passwd"), "line 1 names no file in the tree: --- /etc/passwd"),
    (header("a//etc/passwd", "b//etc/passwd"), "line 1 names no file in the tree: --- a//etc/passwd"),
    (header("a/src/../../x", "b/src/../../x"), "line 1 names no file in the tree: --- a/src/../../x"),
    (header("a/./x", "b/./x"), "line 1 names no file in the tree: --- a/./x"),
    (header("x.c", "x.c"), "line 1 names no file in the tree: --- x.c"),
    (header("a/", "b/"), "line 1 names no file in the tree: --- a/"),
    (header('"a/x"', '"b/x"'), 'line 1 names no file in the tree: --- "a/x"'),
    (header("/dev/null", "b/../x"), "line 1 names no file in the tree: --- /dev/null"),
    (header("a/../x", "/dev/null"), "line 1 names no file in the tree: --- a/../x"),
    ("rename from x\nrename to y\n", "line 1 changes more than the text of a file: rename from x"),
    ("diff\ncopy from x\n", "line 2 changes more than the text of a file: copy from x"),
    ("similarity index 100%\n", "line 1 changes more than the text of a file: similarity index 100%"),
    ("GIT binary patch\n", "line 1 changes more than the text of a file: GIT binary patch"),
    ("new file mode 120000\n" + header("/dev/null", "b/x"), "line 1 changes more than the text of a file: new file mode 120000"),
    ("deleted file mode 120000\n", "line 1 changes more than the text of a file: deleted file mode 120000"),
    ("old mode 100644\n", "line 1 changes more than the text of a file: old mode 100644"),
    ("new mode 100755\n", "line 1 changes more than the text of a file: new mode 100755"),
])
def test_sections_refused(text, message):
    with pytest.raises(PatchError) as caught:
        patches.sections_of(text)
    assert str(caught.value) == message


# real

def test_real(tmp_path):
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / "src" / "a.c").write_text("")
    (tmp_path / "link").symlink_to("tree")
    for name in ("src/a.c", "src/new.c", "new/new.c"):
        assert patches.real(str(tmp_path / "link"), name) == str(tmp_path / "tree" / name)


@pytest.mark.parametrize("name", ["file", "dangling", "directory/x.c", "src/inside", "src"])
def test_real_follows_no_link(tmp_path, name):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("")
    (tmp_path / "src" / "inside").symlink_to("a.c")
    (tmp_path / "file").symlink_to("/etc/passwd")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "directory").symlink_to("/tmp")
    with pytest.raises(PatchError) as caught:
        patches.real(str(tmp_path), name)
    assert str(caught.value) == "%s is a link or no regular file" % name


# Applier

OLD = "".join("%d\n" % number for number in range(1, 31))


def changed(*numbers):
    """Return OLD (str) with lines in capitals, as it were."""
    return "".join("%d%s\n" % (number, "!" if number in numbers else "") for number in range(1, 31))


def diff(old, new, name="a.c"):
    """Return a patch (str) from one text to another, None for no file."""
    names = ["/dev/null" if text is None else "%s/%s" % (side, name) for side, text in (("a", old), ("b", new))]
    lines = [re.findall("[^\n]*\n|[^\n]+", text or "") for text in (old, new)]
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
                   for line in difflib.unified_diff(lines[0], lines[1], *names))


@pytest.fixture
def applier(tmp_path):
    (tmp_path / "scratch").mkdir()
    return patches.Applier(run, PROGRAM, str(tmp_path / "scratch"))


def only(text):
    (section,) = patches.sections_of(text)
    return section


@needs_patch
@pytest.mark.parametrize("old, new", [
    (OLD, changed(5)), (OLD, changed(5, 25)), (None, "new\n"), ("old\n", None), ("a\r\nb\r\n", "a\r\nc\r\n"),
    ("\xe9\xff\x0c\n", "\xe9\x00\n"), ("a", "b"), ("a\n", "a"),
], ids=["change", "two hunks", "new", "gone", "carriage returns", "bytes", "no line end", "line end gone"])
def test_apply_and_take_out(applier, old, new):
    section = only(diff(old, new))
    assert applier(old, section) == new
    assert applier(new, section, reverse=True) == old
    for text, reverse in ((new, False), (old, True)):
        with pytest.raises(Rejected):
            applier(text, section, reverse)


@needs_patch
def test_one_file_after_another(applier):
    assert applier(OLD, only(diff(OLD, changed(5)))) == changed(5)
    assert applier(None, only(diff(None, "new\n"))) == "new\n"


@needs_patch
def test_apply_at_another_line(applier):
    assert applier("more\n" * 7 + OLD, only(diff(OLD, changed(15)))) == "more\n" * 7 + changed(15)


@needs_patch
@pytest.mark.parametrize("text, patch, message", [
    (changed(14), diff(OLD, changed(15)), "hunk 1 of a.c fails at line 12"),
    (changed(12), diff(OLD, changed(15)), "hunk 1 of a.c fails at line 12"),
    (changed(24), diff(OLD, changed(5, 25)), "hunk 2 of a.c fails at line 22"),
    (changed(4, 24), diff(OLD, changed(5, 25)), "hunk 1 of a.c fails at line 2; hunk 2 of a.c fails at line 22"),
    (None, diff(OLD, changed(15)), "a.c is missing"),
    ("other\n", diff(None, "new\n"), "a.c is there already"),
])
def test_rejected(applier, text, patch, message):
    """No fuzz: not even the outermost line of context may differ."""
    with pytest.raises(Rejected) as caught:
        applier(text, only(patch))
    assert str(caught.value) == message


@needs_patch
def test_file_that_is_more_than_the_patch_removes(applier):
    with pytest.raises(Rejected) as caught:
        applier("old\nmore\n", only(diff("old\n", None)))
    assert "Not deleting file" in str(caught.value) or "hunk 1" in str(caught.value)


@pytest.mark.parametrize("error, message", [("patch: out of\n memory\n", "a.c: patch: out of memory"), ("", "a.c: patch exited 2")])
def test_patch_that_breaks(tmp_path, error, message):
    broken = patches.Applier(lambda argv: (2, "", error), "/usr/bin/patch", str(tmp_path))
    with pytest.raises(Rejected) as caught:
        broken(OLD, only(diff(OLD, changed(15))))
    assert str(caught.value) == message


# plan

@pytest.fixture
def site(tmp_path, applier):
    """A tree and patches: site.plan(series...) returns what patches.plan does."""
    class Site:
        tree = tmp_path / "tree"
        patches = tmp_path / "patches"

        def patch(self, name, *texts):
            (self.patches / (name + ".patch")).write_bytes("".join(texts).encode("latin-1"))

        def plan(self, *names, **more):
            series = [{"name": name, "variants": [{"file": "/elsewhere/%s.patch" % name}]} if isinstance(name, str) else name
                      for name in names]
            return patches.plan(str(self.tree), more.get("version", "6.1.3"), str(self.patches), series, applier)

        def put(self, *names):
            result, _digest, _before, after = self.plan(*names)
            for name, text in after.items():
                (self.tree / name).write_bytes(text.encode("latin-1"))
            return [row["state"] for row in result]
    Site.tree.mkdir()
    Site.patches.mkdir()
    (Site.tree / "a.c").write_text(OLD)
    (Site.tree / "b.c").write_text("b\n")
    return Site()


@needs_patch
def test_plan(site):
    site.patch("one", diff(OLD, changed(5)), diff("b\n", "B\n", "b.c"))
    site.patch("two", diff(changed(5), changed(5, 6)))
    result, digest, before, after = site.plan("one", {"name": "none"}, {"name": "theirs", "upstream": [{}]}, "two")
    assert result == [
        {"name": "one", "state": "applied", "file": "/elsewhere/one.patch"},
        {"name": "none", "state": "not applicable", "file": None},
        {"name": "theirs", "state": "already upstream", "file": None},
        {"name": "two", "state": "applied", "file": "/elsewhere/two.patch"},
    ]
    assert (before, after) == ({"a.c": OLD, "b.c": "b\n"}, {"a.c": changed(5, 6), "b.c": "B\n"})
    assert len(digest) == 64
    assert (site.tree / "a.c").read_text() == OLD


@needs_patch
def test_patches_on_the_same_lines_are_found_again(site):
    site.patch("one", diff(OLD, changed(5)))
    site.patch("two", diff(changed(5), changed(5, 6)))
    site.patch("three", diff(changed(5, 6), changed(6)))
    assert site.put("one", "two", "three") == ["applied"] * 3
    assert (site.tree / "a.c").read_text() == changed(6)
    result, _digest, before, after = site.plan("one", "two", "three")
    assert [row["state"] for row in result] == ["already applied"] * 3
    assert (before, after) == ({}, {})


@needs_patch
def test_sections_on_the_same_lines(site):
    site.patch("one", diff(OLD, changed(5)), diff(changed(5), changed(6)))
    assert site.put("one") == ["applied"]
    assert site.put("one") == ["already applied"]
    assert (site.tree / "a.c").read_text() == changed(6)


@needs_patch
def test_series_that_grew(site):
    site.patch("one", diff(OLD, changed(5)))
    site.patch("late", diff(changed(5), changed(5, 20)))
    site.patch("two", diff(changed(5), changed(5, 6)))
    site.put("one", "two")
    assert site.put("one", "late", "two") == ["already applied", "applied", "already applied"]
    assert (site.tree / "a.c").read_text() == changed(5, 6, 20)


@needs_patch
def test_half_of_a_patch_is_not_already_applied(site):
    site.patch("one", diff(OLD, changed(5)), diff("b\n", "B\n", "b.c"))
    (site.tree / "b.c").write_text("B\n")
    with pytest.raises(PatchError) as caught:
        site.plan("one")
    assert str(caught.value) == ("patch one (/elsewhere/one.patch) does not fit this TORQUE 6.1.3: hunk 1 of b.c fails at line 1; "
                                 "unpack the source afresh, or name a variant for this version")


@needs_patch
def test_digest_is_of_what_is_in_the_tree(site):
    site.patch("one", diff(OLD, changed(5)))
    site.patch("two", diff(OLD, changed(20)))
    digests = [site.plan(*names)[1] for names in (("one",), ("two",), ("one", "two"), ("two", "one"), ())]
    assert len(set(digests)) == 5
    assert site.plan("one", {"name": "none"})[1] == digests[0]
    site.put("one")
    assert site.plan("one")[1] == digests[0]
    site.patch("one", diff(OLD, changed(4)))
    (site.tree / "a.c").write_text(OLD)
    assert site.plan("one")[1] not in digests


@needs_patch
@pytest.mark.parametrize("texts, message", [
    ([diff(changed(14), changed(14, 15))],
     "patch one (/elsewhere/one.patch) does not fit this TORQUE 6.1.3: hunk 1 of a.c fails at line 12; unpack the source afresh, "
     "or name a variant for this version"),
    ([diff("x\n", "y\n", "c.c")],
     "patch one (/elsewhere/one.patch) does not fit this TORQUE 6.1.3: c.c is missing; unpack the source afresh, or name a variant "
     "for this version"),
    ([diff("x\n", "y\n", "../c.c")], "patch one (/elsewhere/one.patch): line 1 names no file in the tree: --- a/../c.c; correct the file"),
    ([diff("x\n", "y\n", "link.c")],
     "patch one (/elsewhere/one.patch) would change what is not the tree's own: link.c is a link or no regular file"),
], ids=["hunk", "missing", "outside", "link"])
def test_plan_refuses(site, texts, message):
    (site.tree / "link.c").symlink_to("a.c")
    site.patch("one", *texts)
    with pytest.raises(PatchError) as caught:
        site.plan("one")
    assert str(caught.value) == message


def test_missing_patch(site):
    with pytest.raises(PatchError) as caught:
        site.plan("one")
    assert str(caught.value) == "patch one: there is no file %s/one.patch; correct directory or the file of the variant" % site.patches


def test_patch_that_cannot_be_read(site):
    (site.patches / "one.patch").mkdir()
    with pytest.raises(PatchError) as caught:
        site.plan("one")
    assert str(caught.value) == "patch one: cannot read %s/one.patch: Is a directory" % site.patches


def test_names_are_unique(site):
    with pytest.raises(PatchError) as caught:
        site.plan({"name": "b"}, {"name": "a"}, {"name": "b"}, {"name": "a"})
    assert str(caught.value) == "the series names a, b more than once; give each patch a name of its own"


def test_version_is_one(site):
    with pytest.raises(VersionError) as caught:
        site.plan(version="latest")
    assert str(caught.value) == "'latest' is not a version; name one such as 6.1.3 or 6.1.3.h5"


# install

@pytest.fixture
def installed(tmp_path):
    """Install into a tree: installed(before, after) with texts by path; returns the tree (pathlib.Path)."""
    tree, staging = tmp_path / "tree", tmp_path / "tree" / ".staging"
    staging.mkdir(parents=True)

    def call(before, after):
        for name, text in before.items():
            if text is not None:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_bytes(text.encode("latin-1"))
                (tree / name).chmod(0o750)
        try:
            patches.install(str(tree), before, after, str(staging))
        finally:
            shutil.rmtree(str(staging))
        return tree
    call.tree = tree
    return call


def test_install(installed):
    tree = installed({"a.c": "a\n", "src/gone.c": "x", "new/b.c": None}, {"a.c": "\xe9\n", "src/gone.c": None, "new/b.c": "b\n"})
    assert (tree / "a.c").read_bytes() == b"\xe9\n"
    assert oct((tree / "a.c").stat().st_mode) == "0o100750"
    assert (tree / "new" / "b.c").read_text() == "b\n"
    assert os.listdir(str(tree / "src")) == []


def test_install_leaves_other_links_to_a_file(installed):
    installed.tree.joinpath("a.c").write_text("")
    os.link(str(installed.tree / "a.c"), str(installed.tree / "other"))
    installed({"a.c": "a\n"}, {"a.c": "b\n"})
    assert (installed.tree / "other").read_text() == "a\n"


@pytest.mark.parametrize("bad", ["a.c", "b.c", "c.c", "d.c"])
def test_install_is_all_or_nothing(installed, monkeypatch, bad):
    rename = os.rename

    def fail(source, target):
        if target.endswith("/" + bad) and not source.endswith(".old"):
            raise OSError(28, "No space left on device", target)
        rename(source, target)
    monkeypatch.setattr(os, "rename", fail)
    before = {"a.c": "a\n", "b.c": "b\n", "c.c": None, "d.c": "d\n"}
    with pytest.raises(OSError):
        installed(before, {"a.c": "A\n", "b.c": "B\n", "c.c": "C\n", "d.c": "D\n"})
    assert {name: patches.read(str(installed.tree / name)) for name in before} == before
    assert sorted(os.listdir(str(installed.tree))) == ["a.c", "b.c", "d.c"]
