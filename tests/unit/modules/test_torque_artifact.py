"""torque_artifact: which artifact a host needs, and that it appears whole, with its owners and modes, or not at all."""

import gzip
import hashlib
import io
import os
import random
import shutil
import stat
import tarfile

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.build import artifact
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.textfile import read_text

NODE, MACHINE = os.uname().nodename, os.uname().machine
REBUILD = "remove it, and the .sha256 beside it, from the controller's cache and build it again"
FIX = "fix that and run it again"


# the module

def text_of(path):
    with open(path) as stream:
        return stream.read()


def entry(name, content=None, mode=0o644, owner=(0, 0), kind=tarfile.REGTYPE, link=""):
    """Return a member of an archive (TarInfo, content)."""
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname, (member.uid, member.gid) = kind, mode, link, owner
    member.uname = member.gname = "nobody"  # names of the builder's, which mean nothing here
    member.mtime = 1000000000
    member.size = len(content or b"")
    return member, content or b""


class Host:
    """A host's prefix, and an archive that holds an artifact for it; calls the module with them."""

    def __init__(self, module, top):
        self.module, self.top = module, top
        self.prefix, self.archive = top / "opt" / "torque", top / "artifact.tar.gz"
        info = self.ask()
        self.platform, self.key = info["platform"], info["key"]
        self.directory, self.link = self.prefix / self.key, self.prefix / "current"
        self.draft = self.prefix / (".%s.%s" % (self.key, NODE))
        self.inside = str(self.directory)[1:]

    def entries(self):
        """What a small artifact holds."""
        return [
            entry("", kind=tarfile.DIRTYPE, mode=0o755), entry("/bin", kind=tarfile.DIRTYPE, mode=0o755),
            entry("/bin/qsub", b"qsub", 0o755), entry("/bin/qnodes", kind=tarfile.SYMTYPE, link="qsub", mode=0o777),
            entry("/lib", kind=tarfile.SYMTYPE, link="/usr/lib", mode=0o777),
            entry("/bin/qsub2", kind=tarfile.LNKTYPE, link=self.inside + "/bin/qsub", mode=0o755),
            entry("/ckpt-torque.json", b"{}\n"), entry("/private", kind=tarfile.DIRTYPE, mode=0o2750, owner=(1, 2)),
            entry("/private/file", b"", 0o640, (1, 2)), entry("/sbin", kind=tarfile.DIRTYPE, mode=0o555),
            entry("/sbin/pbs_iff", b"iff", 0o4755), entry("/sbin/pbs_mom", b"mom", 0o6711),
        ]

    def pack(self, *more, entries=None, other=()):
        """Write the archive: the artifact's entries, more of them, and other ones that are not beneath its name."""
        with tarfile.open(str(self.archive), "w:gz") as tar:
            for member, content in list(self.entries() if entries is None else entries) + list(more):
                member.name = self.inside + member.name
                tar.addfile(member, io.BytesIO(content))
            for member, content in other:
                tar.addfile(member, io.BytesIO(content))

    def arguments(self):
        return {"version": "6.1.3", "digest": "0123456789ab", "prefix": str(self.prefix), "cache": "/cache"}

    def ask(self, **more):
        """Call torque_artifact_info."""
        return self.module("torque_artifact_info", dict(self.arguments(), **more))

    def __call__(self, check=False, umask=0o022, archive=True, **changed):
        arguments = self.arguments()
        if archive:
            arguments["archive"] = str(self.archive)
        arguments.update(changed)
        return self.module("torque_artifact", arguments, check=check, umask=umask)

    def fails(self, cause, advice=REBUILD, **changed):
        """Call it; it must say why and leave what was there."""
        before = snapshot(self.top)
        answer = self(**changed)
        assert (answer.get("failed"), answer["msg"]) == (
            True, "%s: cannot install the artifact %s: %s; %s" % (NODE, self.key, cause, advice))
        after = snapshot(self.top)
        for path in (self.prefix, self.prefix.parent):  # they may have been made
            before.pop(str(path), None)
            after.pop(str(path), None)
        assert after == before


def snapshot(top):
    """Return what is beneath top: {path: (type and mode, content or target)}."""
    tree = {}
    for directory, subdirectories, names in os.walk(top):
        for path in [os.path.join(directory, name) for name in subdirectories + names]:
            status = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    content = stream.read()
            tree[path] = (oct(status.st_mode), content)
    return tree


@pytest.fixture
def host(module, tmp_path):
    """A Host without TORQUE, and its archive."""
    new_host = Host(module, tmp_path)
    new_host.pack()
    return new_host


@pytest.fixture
def installed(host):
    """A Host with TORQUE."""
    assert host()["changed"] is True
    return host


def test_info(host):
    answer = host.ask()
    for name in ("platform", "family"):
        answer.pop(name)
    formats = [kind for kind, program in (("deb", "dpkg-deb"), ("rpm", "rpmbuild")) if shutil.which(program)]
    assert answer == {"changed": False, "key": host.key, "installed": False, "current": "", "complaint": "", "package_formats": formats}
    assert host.platform.endswith("-" + MACHINE)
    assert host.platform[:-len(MACHINE) - 1] == artifact.identify_system(read_text("/etc/os-release"), "")[0]
    assert host.key == "6.1.3-%s-0123456789ab" % host.platform
    assert not host.prefix.exists()


def test_info_of_a_host_that_has_it(installed):
    answer = installed.ask()
    assert (answer["changed"], answer["installed"], answer["current"]) == (False, True, installed.key)


def test_jobs_that_it_would_lose(host, tmp_path):
    arrays = tmp_path / "home/server_priv/arrays"
    arrays.mkdir(parents=True)
    (arrays / "6.head.AR").write_bytes(b"\4\0\0\0")
    assert host.ask(home=str(tmp_path / "home"))["complaint"].startswith("6[].head cannot be taken over by TORQUE 6.1.3, since ")
    assert host.ask(home=str(tmp_path / "none"))["complaint"] == ""
    assert host.ask()["complaint"] == ""


def test_host_that_lost_a_program_gets_the_artifact_again(installed):
    programs = ["bin/qsub", "sbin/pbs_mom"]
    assert installed(programs=programs)["changed"] is False
    (installed.directory / "sbin" / "pbs_mom").unlink()
    assert installed.module("torque_artifact_info", dict(installed.arguments(), programs=programs))["installed"] is False
    answer = installed(programs=programs)
    assert (answer["changed"], answer["installed"]) == (True, False)
    assert text_of(str(installed.directory / "sbin" / "pbs_mom")) == "mom"
    assert os.listdir(str(installed.prefix)) in (["current", installed.key], [installed.key, "current"])


def test_first_run_installs_and_second_changes_nothing(host):
    first = host()
    assert (first["changed"], first["installed"], first["current"]) == (True, False, "")
    assert first["diff"] == {"before": "", "after": "%s -> %s\n" % (host.link, host.key)}
    assert sorted(os.listdir(host.prefix)) == sorted([host.key, "current"])
    assert os.readlink(host.link) == host.key
    assert text_of(host.link / "bin" / "qsub") == "qsub"
    before = snapshot(host.top)
    link = os.lstat(host.link).st_ino
    second = host()
    assert os.lstat(host.link).st_ino == link
    assert (second["changed"], second["installed"], second["current"]) == (False, True, host.key)
    assert second["diff"]["before"] == second["diff"]["after"]
    assert snapshot(host.top) == before


@pytest.mark.parametrize("before", ["", "6.1.2-x"])
def test_artifact_is_unpacked_without_switching_to_it(host, before):
    """So that the link leads to it when all is done that belongs to it."""
    if before:
        host.prefix.mkdir(parents=True)
        host.link.symlink_to(before)
    planned, first = host(switch=False, check=True), host(switch=False)
    shown = "%s -> %s\n" % (host.link, before) if before else ""
    assert planned == first
    assert (first["changed"], first["installed"], first["current"], first["diff"]) == (
        True, False, before, {"before": shown, "after": shown})
    assert text_of(host.directory / "bin" / "qsub") == "qsub"
    assert sorted(os.listdir(host.prefix)) == sorted([host.key] + (["current"] if before else []))
    assert host(switch=False)["changed"] is False
    last = host()
    assert (last["changed"], last["installed"], last["current"]) == (True, True, before)
    assert os.readlink(host.link) == host.key
    assert host(switch=False)["changed"] is False


@pytest.mark.root
def test_owners_modes_and_links_are_the_archives(host):
    """pbs_iff is setuid root; without that no user can talk to the server. The names of the builder's users mean nothing."""
    host(umask=0o077)
    modes = {os.path.relpath(path, host.directory): mode for path, (mode, _content) in snapshot(host.directory).items()}
    assert modes == {
        "bin": "0o40755", "bin/qsub": "0o100755", "bin/qsub2": "0o100755", "bin/qnodes": "0o120777", "lib": "0o120777",
        "ckpt-torque.json": "0o100644", "private": "0o42750", "private/file": "0o100640", "sbin": "0o40555", "sbin/pbs_iff": "0o104755",
        "sbin/pbs_mom": "0o106711"}
    owners = {name: (os.lstat(host.directory / name).st_uid, os.lstat(host.directory / name).st_gid) for name in list(modes) + ["."]}
    assert owners == dict(dict.fromkeys(owners, (0, 0)), **{"private": (1, 2), "private/file": (1, 2)})
    assert (os.readlink(host.directory / "bin" / "qnodes"), os.readlink(host.directory / "lib")) == ("qsub", "/usr/lib")
    assert os.stat(host.directory / "bin" / "qsub2").st_ino == os.stat(host.directory / "bin" / "qsub").st_ino
    assert [oct(os.stat(path).st_mode) for path in (host.directory, host.prefix, host.prefix.parent)] == ["0o40755"] * 3
    assert os.stat(host.directory / "bin").st_mtime == 1000000000


def test_place_is_open_to_users_whatever_the_archive_says_of_it(host):
    host.pack(entries=host.entries()[1:])
    host(umask=0o077)
    assert oct(os.stat(host.directory).st_mode) == "0o40755"


@pytest.mark.root
@pytest.mark.parametrize("refuse", [False, True], ids=["as it is", "as in Python 3.14"])
def test_filter_of_later_pythons(host, monkeypatch, recwarn, refuse):
    """Their own would drop setuid, or warn."""
    if refuse and hasattr(tarfile, "data_filter"):
        monkeypatch.setattr(tarfile.TarFile, "extraction_filter", staticmethod(tarfile.data_filter), raising=False)
    artifact.unpack(str(host.archive), host.inside, str(host.top / "new"))
    assert oct(os.stat(host.top / "new" / "sbin" / "pbs_iff").st_mode) == "0o104755"
    assert os.readlink(host.top / "new" / "lib") == "/usr/lib"
    assert [str(warning.message) for warning in recwarn] == []


def test_other_version_beside_it(installed):
    """The link switches; what runs from the other one goes on."""
    other = installed.prefix / "6.1.2-other"
    os.rename(installed.directory, other)
    installed.link.unlink()
    installed.link.symlink_to("6.1.2-other")
    answer = installed()
    assert (answer["changed"], answer["installed"], answer["current"]) == (True, False, "6.1.2-other")
    assert answer["diff"] == {"before": "%s -> 6.1.2-other\n" % installed.link, "after": "%s -> %s\n" % (installed.link, installed.key)}
    assert os.readlink(installed.link) == installed.key
    assert text_of(other / "bin" / "qsub") == "qsub"
    assert sorted(os.listdir(installed.prefix)) == sorted([installed.key, "6.1.2-other", "current"])


@pytest.mark.parametrize("target", [None, "6.1.2-other", "/elsewhere/{key}"], ids=["none", "other", "elsewhere"])
def test_only_the_link_is_wrong(installed, target):
    """No archive is needed, nor looked at."""
    installed.archive.unlink()
    installed.link.unlink()
    if target:
        installed.link.symlink_to(target.format(key=installed.key))
    before = os.stat(installed.directory / "bin" / "qsub")
    planned = installed(check=True, archive=False)
    assert os.path.lexists(installed.link) == bool(target)
    answer = installed(archive=target is None)
    assert planned == answer
    assert (answer["changed"], answer["installed"], answer["current"]) == (True, True, (target or "").format(key=installed.key))
    assert os.readlink(installed.link) == installed.key
    assert os.stat(installed.directory / "bin" / "qsub").st_ino == before.st_ino
    assert installed(archive=False)["changed"] is False
    assert sorted(os.listdir(installed.prefix)) == sorted([installed.key, "current"])


@pytest.mark.parametrize("given", [True, False], ids=["archive", "no archive"])
def test_check_mode(host, given):
    before = snapshot(host.top)
    planned = host(check=True, archive=given)
    assert snapshot(host.top) == before
    answer = host()
    assert planned == answer


def test_without_an_archive(host):
    """The first of two executions: it says what is needed, and the controller sends it."""
    before = snapshot(host.top)
    answer = host(archive=False)
    assert (answer["changed"], answer["installed"]) == (True, False)
    assert snapshot(host.top) == before


# after a run that was killed

def test_draft_of_a_run_that_was_killed(host):
    """Nothing of it gets into what is installed."""
    for name in ("new", "old"):
        (host.draft / name / "bin").mkdir(parents=True)
        (host.draft / name / "bin" / "stray").write_text("")
    (host.draft / "link").symlink_to("nothing")
    (host.prefix / ".6.1.2-other.node9").mkdir()
    assert host()["changed"] is True
    assert sorted(os.listdir(host.directory / "bin")) == ["qnodes", "qsub", "qsub2"]
    assert sorted(os.listdir(host.prefix)) == sorted([".6.1.2-other.node9", host.key, "current"])


@pytest.mark.parametrize("kind", ["directory", "file", "link", "link to nothing"])
def test_part_of_an_artifact(host, kind):
    """It has no manifest, so it is not whole."""
    host.prefix.mkdir(parents=True)
    (host.prefix / "beside").mkdir()
    {"directory": lambda: (host.directory / "bin" / "stray").mkdir(parents=True), "file": lambda: host.directory.write_text(""),
     "link": lambda: host.directory.symlink_to("beside"), "link to nothing": lambda: host.directory.symlink_to("nothing")}[kind]()
    host.link.symlink_to(host.key)
    answer = host()
    assert (answer["changed"], answer["installed"], answer["current"]) == (True, False, host.key)
    assert sorted(os.listdir(host.directory / "bin")) == ["qnodes", "qsub", "qsub2"]
    assert sorted(os.listdir(host.prefix)) == sorted([host.key, "beside", "current"])
    assert os.listdir(host.prefix / "beside") == []
    assert host()["changed"] is False


@pytest.mark.parametrize("content", ["", "{", "\0" * 3], ids=["empty", "cut", "zeros"])
def test_manifest_that_a_power_loss_spoiled(installed, content):
    (installed.directory / "ckpt-torque.json").write_text(content)
    assert installed.ask()["installed"] is False
    assert installed()["changed"] is True
    assert text_of(installed.directory / "ckpt-torque.json") == "{}\n"


def test_files_are_on_the_disk_before_they_have_their_name(host, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "sync", lambda: flushed.append((os.path.exists(host.draft / "new" / "bin" / "qsub"), host.directory.exists())))
    artifact.install(str(host.archive), host.key, str(host.prefix), lambda draft, target: None)
    assert flushed == [(True, False)]
    assert text_of(host.link / "bin" / "qsub") == "qsub"


def test_place_of_the_draft_is_taken(host):
    host.prefix.mkdir(parents=True)
    host.draft.write_text("")
    host.fails("[Errno 17] File exists: '%s'" % host.draft, FIX)


# what is refused

def test_server_that_would_not_start(host, tmp_path):
    """The artifact is there, the link leads to the one before."""
    home = tmp_path / "home"
    (home / "server_priv").mkdir(parents=True)
    (home / "server_priv/serverdb").write_text(
        "<attributes>\n<managers>root</managers>\n<sendmail_path>/bin/x</sendmail_path>\n</attributes>\n")
    host.pack(entry("/sbin/pbs_server", b"\0managers\0", 0o755))
    host.prefix.mkdir(parents=True)
    host.link.symlink_to("before")
    for _installed in (False, True):
        answer = host(home=str(home))
        assert (answer["failed"], answer["msg"]) == (
            True, "%s: pbs_server of the artifact %s does not know sendmail_path in %s/server_priv, and would not start; remove it "
            "with qmgr (unset), or keep the version that has written it; the link %s was left as it is" % (NODE, host.key, home, host.link))
        assert (os.readlink(str(host.link)), host.ask()["installed"]) == ("before", True)
    (home / "server_priv/serverdb").unlink()
    assert host(home=str(home))["changed"] is True
    assert os.readlink(str(host.link)) == host.key


def test_link_that_is_none(host):
    host.link.mkdir(parents=True)
    before = snapshot(host.top)
    sentence = "%s: %s is not a link; move it away, it would hide the TORQUE that is installed; nothing was changed" % (NODE, host.link)
    for check in (True, False):
        answer = host(check=check)
        assert (answer.get("failed"), answer["msg"]) == (True, sentence)
    assert snapshot(host.top) == before
    assert host.ask()["current"] == ""


@pytest.mark.parametrize("prefix", ["opt/torque", "", "."])
def test_prefix_that_is_not_absolute(host, prefix):
    before = snapshot(host.top)
    answer = host(prefix=prefix)
    assert (answer.get("failed"), answer["msg"]) == (
        True, "%s: prefix %s is not an absolute path; name it in full; nothing was changed" % (NODE, prefix))
    assert snapshot(host.top) == before


def test_archive_of_another_artifact(host):
    inside, host.inside = host.inside, host.inside + "x"
    host.pack()
    host.inside = inside
    host.fails("it holds no %s/ckpt-torque.json" % inside)


def test_archive_without_a_manifest(host):
    host.pack(entries=[each for each in host.entries() if not each[0].name.endswith(".json")])
    host.fails("it holds no %s/ckpt-torque.json" % host.inside)


def test_manifest_elsewhere(host):
    host.pack(entry("/bin/ckpt-torque.json"), entries=[each for each in host.entries() if not each[0].name.endswith(".json")],
              other=[entry("ckpt-torque.json")])
    host.fails("it holds no %s/ckpt-torque.json" % host.inside)


def test_other_files_of_the_archive_stay_in_it(host):
    host.pack(other=[entry(host.inside + "x/file"), entry("etc/passwd"), entry("/etc/ckpt-torque-test"), entry("../ckpt-torque-test")])
    assert host()["changed"] is True
    assert sorted(os.listdir(host.prefix)) == sorted([host.key, "current"])
    assert not os.path.exists("/etc/ckpt-torque-test")


@pytest.mark.parametrize("more, name", [
    ([entry("/../../../escaped")], "{inside}/../../../escaped"),
    ([entry("/bin/../../escaped")], "{inside}/bin/../../escaped"),
    ([entry("/..", kind=tarfile.DIRTYPE, mode=0o777)], "{inside}/.."),
    ([entry("/out", kind=tarfile.SYMTYPE, link="{top}"), entry("/out/escaped")], "{inside}/out/escaped"),
    ([entry("/out", kind=tarfile.SYMTYPE, link="{top}"), entry("/out/deep/escaped")], "{inside}/out/deep/escaped"),
    ([entry("/bin/out", kind=tarfile.SYMTYPE, link="{top}"), entry("/bin/out/escaped")], "{inside}/bin/out/escaped"),
    ([entry("/out", kind=tarfile.SYMTYPE, link="{top}"), entry("/bin/../out/escaped")], "{inside}/bin/../out/escaped"),
], ids=["parent", "parent in the middle", "parent itself", "through a link", "deep through a link", "through a deep link",
        "through a link in disguise"])
def test_member_that_would_be_put_elsewhere(host, more, name):
    """Root unpacks it; nothing outside may be written or opened."""
    victim = host.top / "victim"
    victim.write_text("as it was\n")
    host.pack(*[entry(member.name, content, member.mode, kind=member.type, link=member.linkname.format(top=host.top))
                for member, content in more])
    host.fails("it would put %s elsewhere" % name.format(inside=host.inside))
    assert (victim.read_text(), oct(os.stat(victim).st_mode), os.stat(victim).st_nlink) == ("as it was\n", "0o100644", 1)


def test_links_may_have_neighbours_with_longer_names(host):
    host.pack(entry("/library", b"a", 0o644), entry("/..name", b"b"), entry("/bin/lib", b"c"))
    assert host()["changed"] is True
    assert [text_of(host.directory / name) for name in ("library", "..name", "bin/lib")] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE], ids=["character device", "block device", "fifo"])
def test_member_that_is_neither_file_nor_link(host, kind):
    host.pack(entry("/bin/null", kind=kind, mode=0o666))
    host.fails("bin/null is no file, directory or link")


@pytest.mark.parametrize("first, second", [
    ({"kind": tarfile.SYMTYPE, "link": "{top}/victim"}, {"content": b"changed"}),
    ({"kind": tarfile.SYMTYPE, "link": "{top}"}, {"kind": tarfile.DIRTYPE, "mode": 0o777}),
    ({"content": b"first"}, {"kind": tarfile.SYMTYPE, "link": "{top}/victim"}),
    ({"content": b"first"}, {"content": b"second"}),
], ids=["file over a link", "directory over a link", "link over a file", "file over a file"])
def test_member_that_comes_twice(host, first, second):
    """The second would be written through the first, or a hard link to the first would be one to the second."""
    (host.top / "victim").write_text("as it was\n")
    host.pack(*[entry("/out", **dict(each, link=each.get("link", "").format(top=host.top))) for each in (first, second)])
    host.fails("it holds %s/out twice" % host.inside)


@pytest.mark.parametrize("link", [
    "{inside}/bin/nothing", "{inside}/../../../victim", "{top}/victim", "victim", "{inside}/out/victim", "{inside}/out", "{inside}/bin",
    "{inside}/same",
], ids=["nothing", "parent", "absolute", "relative", "through a link", "to a link", "to a directory", "to itself"])
def test_hard_link_to_no_file_of_it(host, link):
    (host.top / "victim").write_text("as it was\n")
    host.pack(entry("/out", kind=tarfile.SYMTYPE, link=str(host.top)),
              entry("/same", kind=tarfile.LNKTYPE, link=link.format(inside=host.inside, top=host.top)))
    host.fails("same is a link to no file of it")
    assert os.stat(host.top / "victim").st_nlink == 1


# what is damaged

def archive_of(host):
    """Return a larger archive (bytes), so that it can be cut and changed in its middle."""
    noise = random.Random(1)
    host.pack(entry("/share", bytes(noise.randrange(256) for _each in range(100000))))
    return host.archive.read_bytes()


@pytest.mark.parametrize("damage, cause", [
    (lambda data: b"", "empty file"),
    (lambda data: b"not a tar", "not a gzip file"),
    (lambda data: gzip.compress(b""), "empty file"),
    (lambda data: gzip.compress(b"not a tar" * 1000), "invalid header"),
], ids=["empty", "text", "empty inside", "text inside"])
def test_archive_that_is_none(host, damage, cause):
    host.archive.write_bytes(damage(archive_of(host)))
    host.fails(cause)


@pytest.mark.parametrize("damage", [
    lambda data: data[:len(data) // 2],
    lambda data: data[:-8] + b"\0" * 8,
    lambda data: data[:len(data) // 2] + bytes(reversed(data[len(data) // 2:])),
    lambda data: data[:200] + b"\xff" * 200 + data[400:],
    lambda data: data[:-4],
    lambda data: gzip.compress(gzip.decompress(data), 0).replace(b"mom", b"mum"),
], ids=["cut in its middle", "wrong checksum", "wrong middle", "wrong start", "cut at its end", "one letter"])
def test_archive_that_is_damaged(host, damage):
    """However Python says it, the sentence is ours and nothing is left."""
    host.archive.write_bytes(damage(archive_of(host)))
    answer = host()
    assert answer.get("failed") is True
    assert answer["msg"].startswith("%s: cannot install the artifact %s: " % (NODE, host.key))
    assert answer["msg"].endswith("; " + REBUILD)
    assert not host.prefix.exists() or os.listdir(host.prefix) == []


def test_archive_that_is_not_the_one_that_was_built(host):
    """However well it can be unpacked."""
    built = hashlib.sha256(host.archive.read_bytes()).hexdigest()
    host.pack(entry("/bin/more", b"more"))
    host.fails("it is not the file that was built: its sha256 is %s, the file beside it in the controller's cache says %s"
               % (hashlib.sha256(host.archive.read_bytes()).hexdigest(), built), checksum=built)
    assert host(checksum=hashlib.sha256(host.archive.read_bytes()).hexdigest())["changed"] is True


def test_archive_that_is_missing(host):
    host.archive.unlink()
    host.fails("[Errno 2] No such file or directory: '%s'" % host.archive, FIX)


def test_prefix_beneath_a_file(host):
    host.prefix.parent.write_text("")
    answer = host()
    assert answer["msg"] == "%s: cannot install the artifact %s: [Errno 20] Not a directory: '%s'; %s" % (NODE, host.key, host.prefix, FIX)


def test_owner_that_cannot_be_set(host, monkeypatch):
    """A prefix where root is squashed: half of setuid root is worse than nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def refuse(*arguments, **more):
        raise PermissionError(1, "Operation not permitted")
    for name in ("chown", "lchown"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises((tarfile.ExtractError, OSError)) as caught:
        artifact.install(str(host.archive), host.key, str(host.prefix), lambda draft, directory: None)
    assert artifact.advise(caught.value) == FIX
    assert os.listdir(host.prefix) == []


def test_installed_stays_when_the_next_one_is_damaged(installed):
    other = installed.prefix / "6.1.2-other"
    os.rename(installed.directory, other)
    installed.link.unlink()
    installed.link.symlink_to("6.1.2-other")
    installed.archive.write_bytes(b"")
    installed.fails("empty file")
    assert os.readlink(installed.link) == "6.1.2-other"


def test_arguments(module):
    for name in ("torque_artifact", "torque_artifact_info"):
        answer = module(name, {"version": "6.1.3"})
        assert (answer["failed"], answer["msg"]) == (True, "missing required arguments: cache, digest")
