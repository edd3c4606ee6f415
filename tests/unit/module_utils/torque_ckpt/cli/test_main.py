"""torque-ckpt, called as the program it is, by root and by users, on real stores."""
import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from fleet import KEYS
from paths import MODULE_UTILS
from waiting import LIMIT

from torque_ckpt import config, errors
from torque_ckpt.job.records import Records
from torque_ckpt.cli import node_down, parser
from torque_ckpt.cli.stores import Stores
from torque_ckpt.image import compatibility, schema, seal
from torque_ckpt.store import location
from torque_ckpt.system import privilege, strict_json
from torque_ckpt.telemetry import metrics
from torque_ckpt.torque.commands import SERVER_CURE

pytestmark = pytest.mark.root


def tree(path):
    """Everything beneath a path, for comparisons (set of str)."""
    return {os.path.join(where, name) for where, directories, files in os.walk(path) for name in directories + files}


# -- the command line ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, sentence", [
    ([], "name a command; see torque-ckpt --help"),
    (["melt"], None),
    (["show"], "the following arguments are required: JOB|IMAGE; see torque-ckpt show --help"),
    (["list", "--fast"], "unrecognized arguments: --fast; see torque-ckpt --help"),
])
def test_arguments_that_are_not_understood(fleet, arguments, sentence):
    done = fleet.call(*arguments)
    assert (done.returncode, done.stdout) == (errors.USAGE, "")
    assert done.stderr.startswith("torque-ckpt: ") and done.stderr.count("\n") == 1
    if sentence:
        assert done.stderr == "torque-ckpt: %s\n" % sentence


@pytest.mark.parametrize("command", [name for name, _brief, _more, _arguments, _keys in parser.COMMANDS])
def test_help_of_each_command(fleet, command):
    done = fleet.call(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: torque-ckpt " + command)


def test_configuration_that_is_missing(fleet):
    os.unlink(fleet.config)
    done = fleet.call("list")
    assert (done.returncode, done.stderr) == (errors.CONFIG, "torque-ckpt: configuration %s cannot be read (No such file or directory); "
                                              "run the role checkpoint_hooks on this node\n" % fleet.config)


def test_version(fleet):
    assert fleet.call("--version").stdout.split()[0] == "torque-ckpt"


# -- list ------------------------------------------------------------------------------------------------------------

def test_list_of_an_empty_store(fleet):
    done = fleet.call("list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no images\n", "")
    assert fleet.ask("list") == {"images": [], "problems": []}


def test_list_shows_all_that_is_known_of_an_image(fleet):
    path = fleet.image(content=b"x" * 5000)
    image, = fleet.ask("list")["images"]
    assert sorted(image) == sorted(name for name, _meaning in parser.IMAGE_KEYS)
    size = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
    created = image.pop("created")
    assert created == json.load(open(os.path.join(path, "manifest.json")))["created"]
    assert image == {"job": "12.head", "owner": "nobody", "uid": 65534, "image": "ckpt.12.head.1001", "path": path, "store": "main",
                     "state": "whole", "problem": "", "generation": 1, "bytes": size, "compression": None, "plain_bytes": None,
                     "engine": "criu", "engine_version": "9.9", "node": os.uname().nodename, "bound": False, "key": "first",
                     "authentic": True}
    lines = fleet.call("list").stdout.splitlines()
    assert lines[0].split() == ["JOB", "OWNER", "IMAGE", "GEN", "CREATED", "SIZE", "PLAIN", "ENGINE", "NODE", "STATE"]
    assert lines[1].split() == ["12.head", "nobody", "ckpt.12.head.1001", "1", created, "%.1f" % (size / 1024.0), "KiB", "-", "criu", "9.9",
                                os.uname().nodename, "whole"]


def test_list_counts_the_nodes_that_can_restart_an_image(fleet):
    fleet.image()
    bound = fleet.image(job="13.head", bound=True)
    with open(os.path.join(fleet.image(job="14.head"), "manifest.json"), "w"):
        pass
    assert [(image["nodes"], image["why"]) for image in fleet.ask("list", "--nodes")["images"][:1]] == [
        (0, "no node is noted on this host; run site.yml on it")]
    fleet.record("node1")
    fleet.record("node2", stores=["other"])
    fleet.record("node3", node=None)
    fleet.record("node4", stores=["other"])
    images = fleet.ask("list", "--nodes")["images"]
    only = "the image restarts on %s only: it needs files that were too large to travel" % os.uname().nodename
    assert [(image["job"], image.get("nodes"), image.get("why")) for image in images] == [
        ("12.head", 1, "it does not have the store main"), ("13.head", 0, only), ("14.head", None, None)]
    lines = fleet.call("list", "--nodes").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:4]] == ["NODES", "1", "0", "-"]
    assert lines[4:] == ["no node can restart image %s of job 13.head: %s" % (os.path.basename(bound), only)]


@pytest.mark.parametrize("job", ["12[3].head", "12-3.head"])
def test_job_of_an_array(fleet, job):
    """Its directory has a hyphen; the ids of TORQUE 2.4 have it, too."""
    path = fleet.image(job=job)
    assert os.path.basename(os.path.dirname(path)) == "12-3.head.CK"
    image, = fleet.ask("list")["images"]
    assert (image["job"], image["image"], image["state"], image["problem"]) == (job, "ckpt.%s.1001" % job, "whole", "")
    for wanted in ("12[3].head", "12-3", "12[3]", os.path.dirname(path), path):
        assert fleet.ask("show", wanted)["image"]["path"] == path


def test_compressed_image(fleet):
    """What is in the store counts; verify needs no program to decompress it."""
    path = fleet.image(content=b"memory" * 100000, compress="gzip")
    plain = 600000
    for command in ("list", "verify"):
        image, = fleet.ask(*[command] + ["12.head"] * (command == "verify"))["images"]
        size = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
        assert (image["state"], image["bytes"], image["compression"], image["plain_bytes"]) == ("whole", size, "gzip", plain)
    cells = fleet.call("list").stdout.splitlines()[1].split()
    assert cells[5:9] == ["%.1f" % (size / 1024.0), "KiB", "585.9", "KiB"]
    assert "size        %.1f KiB, compressed by gzip from 585.9 KiB\n" % (size / 1024.0) in fleet.call("show", "12").stdout
    with open(os.path.join(path, "pages-1.img.gz"), "r+b") as stream:
        stream.seek(100)
        stream.write(b"changed")
    image, = fleet.ask("verify", "12.head", code=errors.DATA)["images"]
    assert image["problem"] == "image %s is damaged: pages-1.img.gz has another content than was written; take an older image" % path


def test_what_is_no_image_is_left_out(fleet):
    path = fleet.image()
    directory = os.path.dirname(path)
    os.mkdir(os.path.join(fleet.store, "13.head.CK"))  # root's
    open(os.path.join(directory, "notes"), "w").close()
    os.symlink("/etc", os.path.join(directory, "ckpt.link"))
    os.symlink(directory, os.path.join(fleet.store, "14.head.CK"))
    assert [image["image"] for image in fleet.ask("list")["images"]] == ["ckpt.12.head.1001"]


def test_damaged_image(fleet):
    path = fleet.image()
    with open(os.path.join(path, "pages-1.img"), "ab") as stream:
        stream.write(b"x")
    image, = fleet.ask("list")["images"]
    assert (image["state"], image["problem"]) == (
        "damaged", "image %s is damaged: pages-1.img has 7 bytes, expected 6; take an older image" % path)


def test_image_without_a_manifest(fleet):
    path = fleet.image()
    os.unlink(os.path.join(path, "manifest.json"))
    image, = fleet.ask("list")["images"]
    assert (image["state"], image["engine"], image["generation"], image["authentic"]) == ("damaged", None, None, None)


@pytest.mark.parametrize("make", [
    os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path),
    lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), strict_json.LARGEST + 1)])
def test_manifest_that_would_keep_root_busy(fleet, make):
    path = os.path.join(fleet.image(), "manifest.json")
    fleet.image("13.head")
    os.unlink(path)
    make(path)
    if not os.path.islink(path):
        os.chown(path, 65534, 65534)
    assert [(image["job"], image["state"]) for image in fleet.ask("list")["images"]] == [("12.head", "damaged"), ("13.head", "whole")]


def deface(path, content):
    """Let the owner of an image have its manifest say something else: bytes, or fields that are changed (dict)."""
    manifest_path = os.path.join(path, "manifest.json")
    if isinstance(content, dict):
        with open(manifest_path) as stream:
            content = json.dumps(dict(json.load(stream), **content)).encode()
    with open(manifest_path, "wb") as stream:  # still his
        stream.write(content)


HOSTILE = [
    ({"generation": "x"}, "generation is not a whole number from 0 to 9223372036854775807"),
    ({"frozen_seconds": "long"}, "frozen_seconds is not a number of seconds"),
    ({"format": 4, "compression": "zstd", "plain_bytes": 10 ** 400}, "it holds a number of more than 64 bits"),
    ({"node": "n" * (10 << 20)}, "it holds a text of more than 4096 characters"),
    ({"node": "n" * 4096}, "node is not a text of at most 255 characters"),
    ({"files": [7]}, "files[0] is not an object"),
    ({"engine": ["criu"]}, "engine is not an object"),
    (b"[" * 200000, "it is nested more than 8 deep"),
    (b'{"a":' * 200000, "it is nested more than 8 deep"),
    (b'{"format": 3}' + b" " * (60 << 20), "it is larger than 16777216 bytes"),
]


@pytest.mark.parametrize(
    "content, why", HOSTILE, ids=[str(list(content)[0] if isinstance(content, dict) else content[:6]) for content, _why in HOSTILE])
def test_one_users_manifest_is_damaged_and_all_others_are_looked_at(fleet, content, why):
    other = fleet.image("13.head", user="daemon")
    good, bad = fleet.image(generation=1), fleet.image(generation=2)
    deface(bad, content)
    answer = fleet.ask("list")
    assert answer["problems"] == []
    assert {image["path"]: image["state"] for image in answer["images"]} == {good: "whole", bad: "damaged", other: "whole"}
    assert [image["problem"] for image in answer["images"] if image["path"] == bad] == [
        "image %s has a manifest that is not ours: %s; it is kept but cannot be restarted; take an older image" % (bad, why)]
    done = fleet.call("list")
    assert (done.returncode, done.stderr) == (0, "") and max(map(len, done.stdout.splitlines())) < 300
    for command in (["show", bad], ["show", "12.head"], ["show", "13"], ["prune"], ["prune", "--dry-run"], ["status"], ["verify", "13"]):
        done = fleet.call(*command)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert len(done.stdout) < 5000
    assert fleet.call("verify", "12").returncode == errors.DATA
    mine = [dict(image, authentic=None) for image in answer["images"] if image["owner"] == "nobody"]
    assert fleet.ask("list", user="nobody")["images"] == mine


def test_long_texts_are_cut_in_tables(fleet):
    path = fleet.image()
    deface(path, {"node": "n" * 255, "engine": {"name": "e" * 255, "version": "v" * 4096}, "lost": ["l" * 4096] * 1000})
    done = fleet.call("list")
    assert "n" * 77 + "..." in done.stdout and "n" * 78 not in done.stdout and len(done.stdout) < 1000
    assert max(map(len, fleet.call("show", path).stdout.splitlines())) < 1100
    assert fleet.ask("show", path)["manifest"]["node"] == "n" * 255


@pytest.mark.parametrize("command", ["list", "show", "verify"])
def test_text_that_the_terminal_cannot_show(fleet, command):
    path = fleet.image()
    deface(path, {"node": "n\u00f6de \ud800"})
    done = fleet.call(*[command] + [path] * (command != "list"), options=["-X", "utf8=0"], locale="POSIX")
    assert done.stderr == ""
    assert command == "verify" or "n\\xf6de ?" in done.stdout


def test_many_large_manifests_do_not_pile_up(fleet):
    """Root has one in memory at a time, and the part that is the user has no more than it is allowed."""
    for generation in range(1, 17):
        path = fleet.image(generation=generation)
        deface(path, {"node_local": [], "open_files": [], "later": ["x" * 4096] * 3900})  # 15 MiB
    limit = "resource.setrlimit(resource.RLIMIT_DATA, (%d << 20,) * 2)"
    answer = fleet.ask("list", before=limit % 170)
    assert [image["state"] for image in answer["images"]] == ["refused"] * 16
    answer = fleet.ask("list", before="from torque_ckpt.store import catalog; catalog.MEMORY = 40 << 20", code=1)
    assert answer["images"] == []
    assert answer["problems"] == ["the images of nobody in %s cannot be read: there is more than fits into 40 MiB of memory; remove some "
                                  "by hand" % fleet.store]


STOPPER = """
import os, signal, time
end = time.monotonic() + 60
while time.monotonic() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/status" % pid) as stream:
                text = stream.read()
            with open("/proc/%s/cmdline" % pid) as stream:
                mine = STORE in stream.read()
            if mine and "Uid:\\t65534\\t" in text and int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGSTOP)
        except OSError:
            pass
"""


@pytest.mark.parametrize("command", ["list", "prune"])
def test_user_who_stops_what_looks_at_his_images(fleet, command):
    """He is given up, root goes on with the others."""
    fleet.image()
    for generation in (1, 2, 3):
        fleet.image("13.head", user="daemon", generation=generation)
    # He sees the part for a second, however busy this machine is.
    before = ("import time; from torque_ckpt.store import location; from torque_ckpt.system import progress; "
              "progress.STOPPED = 2; right = location.open_job_directory; "
              "location.open_job_directory = lambda *arguments: time.sleep(1) or right(*arguments)")
    stopper = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                "/usr/bin/python3", "-c", STOPPER.replace("STORE", repr(fleet.top))])
    try:
        answer = fleet.ask(command, before=before, code={"list": 1, "prune": errors.SYSTEM}[command])
    finally:
        stopper.kill()
        stopper.wait()
    assert [fact["job"] for fact in answer.get("images", answer.get("removed"))] == ["13.head"] * {"list": 3, "prune": 1}[command]
    assert answer["problems"] == [
        "the images of nobody in %s cannot be read: the part of the hook that runs as nobody was stopped for 2 seconds and was "
        "killed; try again" % fleet.store]


def test_more_images_than_are_looked_at(fleet):
    fleet.image("13.head", user="daemon")
    for generation in range(1, 5):
        fleet.image(generation=generation)
    answer = fleet.ask("list", before="from torque_ckpt.store import catalog; catalog.MOST = 3", code=1)
    assert [image["job"] for image in answer["images"]] == ["13.head"]
    assert answer["problems"] == ["the images of nobody in %s cannot be read: there are more than 3 images in %s/12.head.CK; remove some "
                                  "by hand" % (fleet.store, fleet.store)]


def test_image_that_shows_a_mistake_of_ours_hides_no_other(fleet):
    for generation in (1, 2):
        fleet.image(generation=generation)
    before = ("from torque_ckpt.image import manifest; right = manifest.read_manifest; "
              "manifest.read_manifest = lambda image, shown: right(image, shown) if shown.endswith('2') else 1 / 0")
    answer = fleet.ask("list", before=before)
    assert [(image["state"], image["problem"]) for image in answer["images"]] == [
        ("damaged", "image %s/12.head.CK/ckpt.12.head.1001 cannot be read: ZeroDivisionError: division by zero" % fleet.store),
        ("whole", "")]


def test_directories_without_end(fleet):
    """Nested so deep that a program could run out of descriptors or of stack."""
    directory = os.path.dirname(fleet.image())
    fleet.image("13.head", user="daemon")
    code = "import os\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=directory, check=True)
    done = fleet.call("list", "--json")
    subprocess.run(["rm", "-rf", directory], check=True)
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert [(image["job"], image["image"], image["state"]) for image in answer["images"]] == [
        ("12.head", "d", "damaged"), ("12.head", "ckpt.12.head.1001", "whole"), ("13.head", "ckpt.13.head.1001", "whole")]
    assert "cannot be read: " in [image["problem"] for image in answer["images"] if image["image"] == "d"][0]


def test_directories_without_end_save_no_other_orphan(fleet):
    fleet.configure(orphan_grace_days=0)
    deep = os.path.dirname(fleet.image())
    fleet.image("13.head")
    fleet.server()
    code = "import os\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=deep, check=True)
    done = fleet.call("prune", "--orphans", "--json")
    subprocess.run(["rm", "-rf", deep], check=True)
    assert done.returncode == errors.SYSTEM
    answer = json.loads(done.stdout)
    assert [(fact["job"], fact["action"]) for fact in answer["removed"]] == [("13.head", "removed")]
    assert answer["problems"] == ["%s cannot be read: its directories are nested too deep" % deep]


def test_image_that_root_did_not_make(fleet):
    path = fleet.image()
    facts = json.load(open(os.path.join(path, "manifest.json")))
    facts["root"] = 1
    with open(os.path.join(path, "manifest.json"), "w") as stream:
        json.dump(facts, stream)
    image, = fleet.ask("list")["images"]
    assert (image["state"], image["authentic"]) == ("refused", False)
    assert "root's hooks did not write" in image["problem"]


@pytest.mark.parametrize("key", [["first"], 1, "x" * 256])
def test_key_that_is_none(fleet, key):
    """An image's owner can write anything there."""
    path = os.path.join(fleet.image(), "manifest.json")
    facts = json.load(open(path))
    with open(path, "w") as stream:
        json.dump(dict(facts, key=key), stream)
    image, = fleet.ask("list")["images"]
    assert (image["key"], image["authentic"], image["engine"]) == (None, False, "criu")


@pytest.mark.parametrize("other, name, sentence", [
    ("13.head", "ckpt.12.head.1001", "image {0} belongs to job 12.head of nobody, not to job 13.head of nobody; move it back to its own "
                                     "job; image kept"),
    ("12.head", "ckpt.12.head.7", "image {0} was written as ckpt.12.head.1001 and has been given another's name since; "
                                  "restart it under its own; image kept"),
])
def test_image_that_was_put_elsewhere(fleet, other, name, sentence):
    """Its seal is good, but it is not this job's, or not this one."""
    path = fleet.image()
    directory = os.path.dirname(fleet.image(other, generation=9))
    os.rename(path, os.path.join(directory, name))
    image, = [image for image in fleet.ask("list")["images"] if image["image"] == name]
    assert (image["state"], image["problem"]) == ("refused", sentence.format(image["path"]))
    assert fleet.call("verify", image["path"]).returncode == errors.REFUSED


def test_image_of_another_format(fleet):
    path = fleet.image()
    facts = json.load(open(os.path.join(path, "manifest.json")))
    with open(os.path.join(path, "manifest.json"), "w") as stream:
        json.dump(dict(facts, format=99), stream)
    image, = fleet.ask("list")["images"]
    assert image["state"] == "refused" and "format 99" in image["problem"]


def test_image_in_the_making_and_what_a_crash_left(fleet):
    fleet.image(publish=False)  # its maker has ended
    directory = os.path.join(fleet.store, "12.head.CK")
    other = os.path.join(directory, ".ckpt.12.head.1@elsewhere:1:1")
    os.mkdir(other)
    os.chown(other, 65534, 65534)
    assert sorted(image["state"] for image in fleet.ask("list")["images"]) == ["leftover", "writing"]


def test_terminal_is_not_obeyed(fleet):
    path = fleet.image()
    facts = json.load(open(os.path.join(path, "manifest.json")))
    facts["node"] = "\x1b[2Jn1"
    with open(os.path.join(path, "manifest.json"), "w") as stream:
        json.dump(seal.add_seal(KEYS, {name: value for name, value in facts.items() if name not in ("key", "mac")}), stream)
    for command in (["list"], ["show", "12"], ["verify", "12"]):
        assert "\x1b" not in fleet.call(*command).stdout


def test_pipe_that_is_closed(fleet):
    fleet.image()
    code = "import sys; sys.path.insert(0, %r); from torque_ckpt.cli.main import main; sys.exit(main(sys.argv, %r))"
    code %= (str(MODULE_UTILS), fleet.config)
    done = subprocess.run("%s -IS -c '%s' list | true; echo ${PIPESTATUS[0]}" % (sys.executable, code.replace("'", "\"")), shell=True,
                          executable="/bin/bash", stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


# -- show and verify -------------------------------------------------------------------------------------------------

def test_show_says_where_an_image_can_be_restarted(fleet):
    fleet.image()
    fleet.record("node1")
    fleet.record("node2", arch="riscv64")
    fleet.record("node3", engine={"name": "blcr", "version": "0.8.6"})
    fleet.record("node4", stores=["other"])
    fleet.record("node5", node=None)
    answer = fleet.ask("show", "12.head")
    here = compatibility.describe_node()
    reason = compatibility.find_incompatibility(answer["manifest"], dict(here, arch="riscv64"))
    assert answer["nodes"] == [
        {"node": "node1", "fits": True, "why": ""},
        {"node": "node2", "fits": False, "why": "the image " + reason},
        {"node": "node3", "fits": False, "why": "its engine is blcr, the image was written by criu"},
        {"node": "node4", "fits": False, "why": "it does not have the store main"},
        {"node": "node5", "fits": False, "why": "nothing is known of it; run site.yml on it"}]
    text = fleet.call("show", "12").stdout
    assert "authentic   sealed by root's hooks of this site\n" in text
    assert "  node1 yes\n" in text and "  node3 no: its engine is blcr, the image was written by criu\n" in text


def test_show_says_where_the_program_is_missing(fleet):
    """Of a node that was noted before it was asked for them nothing is claimed."""
    fleet.image(content=b"memory" * 100000, compress="lz4")
    fleet.record("node1", compressors=["lz4", "gzip"])
    fleet.record("node2", compressors=["gzip"])
    fleet.record("node3")
    assert [entry["why"] for entry in fleet.ask("show", "12.head")["nodes"]] == [
        "", "it does not have the program lz4, by which the image is compressed", ""]


def test_show_of_an_image_that_is_bound_to_its_node(fleet):
    fleet.image(bound=True)
    fleet.record(os.uname().nodename)
    fleet.record("node2")
    assert [entry["why"] for entry in fleet.ask("show", "12.head")["nodes"]] == [
        "", "the image restarts on %s only: it needs files that were too large to travel" % os.uname().nodename]


def test_show_without_node_records(fleet):
    fleet.image()
    assert fleet.call("show", "12").stdout.endswith("\nno node is noted beside %s: run site.yml on this host\n" % fleet.config)


def test_show_takes_the_newest_whole_image(fleet):
    fleet.image(generation=1)
    middle = fleet.image(generation=2)
    newest = fleet.image(generation=3)
    os.unlink(os.path.join(newest, "pages-1.img"))
    assert fleet.ask("show", "12.head")["image"]["path"] == middle


def test_verify_reads_everything(fleet):
    good, bad = fleet.image(generation=1), fleet.image(generation=2)
    done = fleet.call("verify", good)
    assert (done.returncode, done.stdout) == (0, "%s: whole, and sealed by root's hooks of this site\n" % good)
    with open(os.path.join(bad, "pages-1.img"), "r+b") as stream:
        stream.write(b"M")  # of the same size
    assert [image["state"] for image in fleet.ask("list")["images"]] == ["whole", "whole"]
    done = fleet.call("verify", "12.head")
    assert done.returncode == errors.DATA
    assert done.stdout.splitlines()[1] == ("%s: damaged: image %s is damaged: pages-1.img has another content than was written; "
                                           "take an older image" % (bad, bad))


def test_user_is_told_what_he_cannot_verify(fleet):
    path = fleet.image()
    done = fleet.call("verify", "12.head", user="nobody")
    assert (done.returncode, done.stdout) == (0, "%s: whole; only root can verify its seal\n" % path)


def test_root_without_a_key_cannot_verify(fleet):
    path = fleet.image()
    os.unlink(fleet.settings["key_path"])
    done = fleet.call("verify", "12.head")
    assert (done.returncode, done.stdout) == (errors.CONFIG, "%s: whole; its seal cannot be verified without the key\n" % path)


def test_verify_of_an_image_sealed_elsewhere(fleet):
    fleet.image()
    fleet.seal([("second", b"s" * 32)])
    answer = fleet.ask("verify", "12.head", code=errors.REFUSED)
    assert answer["images"][0]["state"] == "refused"


# -- prune -----------------------------------------------------------------------------------------------------------

def test_prune_keeps_the_newest_and_removes_leftovers(fleet):
    paths = [fleet.image(generation=number) for number in (1, 2, 3)]
    left = fleet.image(generation=4, publish=False)
    before = tree(fleet.store)
    answer = fleet.ask("prune", "--dry-run")
    assert [(fact["kind"], fact["path"], fact["action"], fact["owner"]) for fact in answer["removed"]] == [
        ("leftover", left, "would be removed", "nobody"), ("image", paths[0], "would be removed", "nobody")]
    assert tree(fleet.store) == before
    answer = fleet.ask("prune")
    assert [(fact["kind"], fact["path"], fact["action"]) for fact in answer["removed"]] == [
        ("leftover", left, "removed"), ("image", paths[0], "removed")]
    assert sorted(os.listdir(os.path.dirname(left))) == [os.path.basename(path) for path in paths[1:]]
    assert fleet.call("prune").stdout == "nothing to remove\n"


def test_prune_keeps_as_many_as_the_job_asked_for(fleet):
    paths = [fleet.image(generation=number, depth=4) for number in range(1, 6)]
    assert [fact["path"] for fact in fleet.ask("prune")["removed"]] == paths[:1]


def test_prune_never_removes_the_last_whole_image(fleet):
    paths = [fleet.image(generation=number) for number in (1, 2, 3)]
    for path in paths[1:]:
        os.unlink(os.path.join(path, "pages-1.img"))
    fleet.configure(depth=1)
    fleet.ask("prune")
    assert os.path.isdir(paths[0])


def test_user_prunes_what_is_his(fleet):
    for user, job in (("nobody", "12.head"), ("daemon", "13.head")):
        for number in (1, 2, 3):
            fleet.image(job, user=user, generation=number)
    assert [fact["job"] for fact in fleet.ask("prune", user="daemon")["removed"]] == ["13.head"]


def test_prune_of_orphans_is_roots(fleet):
    done = fleet.call("prune", "--orphans", user="nobody")
    assert (done.returncode, done.stderr) == (
        errors.REFUSED, "torque-ckpt: prune --orphans is for root: it removes images of all users; nothing was removed\n")


def test_two_at_once(fleet):
    import fcntl
    os.mkdir(fleet.settings["state_directory"])
    with open(os.path.join(fleet.settings["state_directory"], "prune.lock"), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = fleet.call("prune")
    assert (done.returncode, done.stderr) == (errors.TEMPORARY, "torque-ckpt: another torque-ckpt prune is at work on this host; wait "
                                              "until it has ended; nothing was removed\n")


def test_prune_reports_and_counts_what_it_did_before_a_store_was_missing(fleet):
    away = os.path.join(fleet.top, "away")
    fleet.configure(stores=fleet.settings["stores"] + [{"path": away, "id": "away"}])
    path = [fleet.image(generation=number) for number in (1, 2, 3)][0]
    missing = "store %s is not usable on this node: %s/.ckpt-torque-store: No such file or directory; is it mounted?" % (away, away)
    answer = fleet.ask("prune", code=errors.CONFIG)
    assert [(fact["path"], fact["action"]) for fact in answer["removed"]] == [(path, "removed")] and answer["problems"] == [missing]
    assert metrics.read_counters(fleet.settings).series["ckpt_torque_pruned_total", ("image",)] == 1
    done = fleet.call("prune")
    assert (done.returncode, done.stdout, done.stderr) == (errors.CONFIG, "nothing was removed\n", "torque-ckpt: %s\n" % missing)


# -- orphans ---------------------------------------------------------------------------------------------------------

def orphans(fleet, *arguments, code=0):
    return [(fact["job"], fact["action"]) for fact in fleet.ask("prune", "--orphans", *arguments, code=code)["removed"]
            if fact["kind"] == "orphan"]


def test_images_of_unknown_jobs_go_when_the_grace_time_is_over(fleet):
    fleet.configure(orphan_grace_days=0)
    for job in ("12.head", "13.head", "14[7].head", "15[7].head", "16.elsewhere", "17.head"):
        fleet.image(job)
    fleet.image("18.head", inside=fleet.users_directory("daemon"), user="daemon")
    fleet.server(known=["13.head", "14[].head"])
    os.mkdir(os.path.join(fleet.store, "19.head.CK"))  # root's
    before = tree(fleet.store)
    gone = ("12.head", "15[7].head", "17.head", "18.head")
    assert sorted(orphans(fleet, "--dry-run")) == [(job, "would be removed") for job in gone]
    assert tree(fleet.store) == before
    assert not os.path.exists(fleet.settings["state_directory"])
    assert sorted(orphans(fleet)) == [(job, "removed") for job in gone]
    assert sorted(os.listdir(fleet.store)) == [location.MARKER, "13.head.CK", "14-7.head.CK", "16.elsewhere.CK", "19.head.CK", "daemon"]
    assert os.listdir(os.path.join(fleet.store, "daemon")) == []
    assert os.stat(os.path.join(fleet.settings["state_directory"], "orphans.json")).st_mode & 0o777 == 0o600


def seen(fleet, path):
    return json.load(open(os.path.join(fleet.settings["state_directory"], "orphans.json")))["unknown"][path]


def age(path, seconds):
    """Let everything in a directory, and itself, be so old."""
    for entry in tree(path) | {path}:
        os.utime(entry, (time.time() - seconds, time.time() - seconds), follow_symlinks=False)


def test_grace_time_begins_when_the_job_was_first_seen_unknown(fleet):
    directory = os.path.dirname(fleet.image())
    age(directory, 30 * 86400)
    fleet.server()
    (job, action), = orphans(fleet)
    assert (job, action[:12]) == ("12.head", "waits until ")
    first = seen(fleet, directory)
    assert abs(first - time.time()) < LIMIT
    orphans(fleet)
    assert seen(fleet, directory) == first
    state = os.path.join(fleet.settings["state_directory"], "orphans.json")
    with open(state, "w") as stream:
        json.dump({directory: first - 8 * 86400}, stream)  # as older hooks wrote it
    assert orphans(fleet) == [("12.head", "removed")]
    assert json.load(open(state)) == {"unknown": {}, "turns": {}}


def test_grace_time_does_not_begin_before_the_last_change(fleet):
    directory = os.path.dirname(fleet.image())
    age(directory, 2 * 86400)
    fleet.server()
    orphans(fleet)
    state = os.path.join(fleet.settings["state_directory"], "orphans.json")
    with open(state, "w") as stream:
        json.dump({"unknown": {directory: time.time() - 30 * 86400}, "turns": {}}, stream)
    (_job, action), = orphans(fleet)
    assert action == "waits until " + time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.stat(directory).st_mtime + 7 * 86400))


def test_job_that_is_known_again_is_forgotten(fleet):
    directory = os.path.dirname(fleet.image())
    fleet.server()
    orphans(fleet)
    assert seen(fleet, directory)
    fleet.server(known=["12.head"])
    assert orphans(fleet) == []
    assert json.load(open(os.path.join(fleet.settings["state_directory"], "orphans.json"))) == {"unknown": {}, "turns": {}}


def test_time_in_the_future_neither_shortens_nor_lengthens_for_ever(fleet):
    directory = os.path.dirname(fleet.image())
    fleet.configure(orphan_grace_days=0)
    age(directory, -9000 * 86400)
    fleet.server()
    assert orphans(fleet) == [("12.head", "removed")]


def test_server_that_does_not_answer(fleet):
    fleet.configure(orphan_grace_days=0)
    for number in (1, 2, 3):
        fleet.image(generation=number)
    fleet.server(broken="pbs_server is down")
    before = tree(fleet.store)
    done = fleet.call("prune", "--orphans")
    assert (done.returncode, done.stdout) == (errors.NO_SERVER, "")
    assert done.stderr == ("torque-ckpt: pbs_server does not answer (qstat -B -f exited 111: pbs_server is down); "
                           "%s; nothing was removed\n" % SERVER_CURE)
    assert tree(fleet.store) == before


def test_server_that_answers_with_nothing(fleet):
    fleet.configure(orphan_grace_days=0)
    fleet.image()
    for command in ("qstat", "qselect"):
        fleet.program("exit 0\n", "bin/" + command)
    done = fleet.call("prune", "--orphans")
    assert (done.returncode, done.stderr) == (
        errors.NO_SERVER, "torque-ckpt: pbs_server does not answer (qstat -B -f exited 0: it printed nothing); "
                          "%s; nothing was removed\n" % SERVER_CURE)


def test_server_that_ends_while_it_is_asked(fleet):
    fleet.configure(orphan_grace_days=0)
    fleet.image()
    fleet.server()
    fleet.program('[ $2 = -f ] && { echo "Server: head"; exit 0; }\necho "Connection refused" >&2\nexit 111\n', "bin/qstat")
    done = fleet.call("prune", "--orphans")
    assert (done.returncode, done.stderr) == (
        errors.NO_SERVER, "torque-ckpt: pbs_server does not answer (qstat -f 12.head exited 111: Connection refused); "
                          "%s; nothing was removed\n" % SERVER_CURE)
    assert len(os.listdir(fleet.store)) == 2


def test_commands_that_are_missing(fleet):
    fleet.image()
    done = fleet.call("prune", "--orphans")
    assert (done.returncode, done.stderr) == (
        errors.NO_SERVER, "torque-ckpt: %s/bin/qstat cannot be started: No such file or directory; set checkpoint_hooks_torque_directory "
        "to the directory of TORQUE's commands; nothing was removed\n" % fleet.top)


def test_job_that_only_the_second_question_knows(fleet):
    """qselect shows to some what is theirs only; qstat -f of the job decides."""
    fleet.configure(orphan_grace_days=0)
    fleet.image()
    fleet.server(known=["12.head"])
    fleet.program("exit 0\n", "bin/qselect")
    assert orphans(fleet) == []


def strange_directories(fleet, user, number):
    """Let a user have so many directories with the name of a job that never was."""
    account = privilege.find_user(user)
    for job in range(number):
        path = os.path.join(fleet.store, fleet.users_directory(user), "%d-1.head.CK" % (1000000 + job))
        os.mkdir(path)
        os.chown(path, account.uid, account.gid)


def test_thousands_of_strange_directories_save_no_other_orphan(fleet):
    """That they can be told from others takes a command of TORQUE's, or two, for each."""
    fleet.configure(orphan_grace_days=0)
    strange_directories(fleet, "daemon", 3000)
    fleet.image(user="nobody")
    fleet.server()
    with open(os.path.join(fleet.top, "bin", "qstat"), "a+") as stream:
        stream.seek(0)
        text = stream.read()
    fleet.program("echo $2 >> %s/asked\n%s" % (fleet.top, text), "bin/qstat")
    answer = fleet.ask("prune", "--orphans", code=errors.SYSTEM, before="from torque_ckpt.cli import orphans; orphans.ASKED = 4")
    assert [fact["job"] for fact in answer["removed"] if fact["action"] == "removed"] == [
        "1000000[1].head", "1000001[1].head", "1000002[1].head", "1000003[1].head", "12.head"]
    assert answer["problems"] == ["daemon has 3000 directories of jobs that pbs_server does not list, and one run asks about 4 of one "
                                  "owner; the next runs look at the others"]
    assert len(open(os.path.join(fleet.top, "asked")).read().splitlines()) == 1 + 4 * 2 + 1


def test_directories_beyond_the_limit_have_their_turn_in_later_runs(fleet):
    strange_directories(fleet, "daemon", 5)
    fleet.server()
    before = "from torque_ckpt.cli import orphans; orphans.ASKED = 2"
    looked_at = []
    for _run in range(3):
        answer = fleet.ask("prune", "--orphans", code=errors.SYSTEM, before=before)
        looked_at += [int(fact["job"].partition("[")[0]) - 1000000 for fact in answer["removed"]]
    assert looked_at == [0, 1, 2, 3, 4, 0]
    state = json.load(open(os.path.join(fleet.settings["state_directory"], "orphans.json")))
    assert len(state["unknown"]) == 5, "since when each is unknown is kept while others have their turn"
    fleet.configure(orphan_grace_days=0)
    fleet.ask("prune", "--orphans", code=errors.SYSTEM, before=before)
    assert sorted(os.listdir(os.path.join(fleet.store, "daemon"))) == ["1000000-1.head.CK", "1000003-1.head.CK", "1000004-1.head.CK"]


def test_owner_whose_directories_take_long_to_remove_delays_no_other(fleet):
    fleet.configure(orphan_grace_days=0)
    strange_directories(fleet, "daemon", 2)
    fleet.image(user="nobody")
    fleet.server()
    done = fleet.call("prune", "--orphans", before="from torque_ckpt.cli import orphans; orphans.LONGEST = 0")
    assert sorted(os.listdir(os.path.join(fleet.store, "daemon"))) == ["1000001-1.head.CK"]
    assert not os.path.exists(os.path.join(fleet.store, "12.head.CK"))
    assert (done.returncode, done.stderr) == (
        errors.SYSTEM, "torque-ckpt: %s/daemon/1000001-1.head.CK was left alone, because others of daemon's took longer than 0 seconds; "
        "the next run continues\n" % fleet.store)


def full_at_the_second_write(name):
    """Return code after which the second write of this file of root's fails."""
    return ("from torque_ckpt.system import rootfiles\nright, written = rootfiles.replace_file, []\n"
            "def write(directory, name, text, mode):\n"
            "    written.append(name)\n"
            "    if name == %r and written.count(name) > 1: raise OSError(28, 'No space left on device')\n"
            "    right(directory, name, text, mode)\n"
            "rootfiles.replace_file = write" % name)


def test_orphans_that_were_removed_are_reported_when_that_cannot_be_noted(fleet):
    fleet.configure(orphan_grace_days=0)
    fleet.image()
    fleet.server()
    answer = fleet.ask("prune", "--orphans", code=errors.SYSTEM, before=full_at_the_second_write("orphans.json"))
    assert [(fact["job"], fact["action"]) for fact in answer["removed"]] == [("12.head", "removed")]
    assert answer["problems"] == ["cannot write %s/orphans.json: No space left on device; see to that directory; what is reported was done"
                                  % fleet.settings["state_directory"]]
    assert metrics.read_counters(fleet.settings).series["ckpt_torque_pruned_total", ("orphan",)] == 1


def test_orphan_with_links_loses_the_links_only(fleet, tmp_path):
    fleet.configure(orphan_grace_days=0)
    path = fleet.image()
    (tmp_path / "file").write_text("kept")
    os.chmod(str(tmp_path), 0o777)
    os.chown(str(tmp_path / "file"), 65534, 65534)
    os.symlink(str(tmp_path), os.path.join(path, "link"))
    os.symlink(str(tmp_path), os.path.join(os.path.dirname(path), "ckpt.link"))
    fleet.server()
    assert orphans(fleet) == [("12.head", "removed")]
    assert (tmp_path / "file").read_text() == "kept"


def test_orphan_of_an_account_that_is_gone(fleet):
    fleet.configure(orphan_grace_days=0)
    path = fleet.image()
    directory = os.path.dirname(path)
    for entry in tree(directory) | {directory}:
        os.chown(entry, 54321, 54321)
    fleet.server()
    assert orphans(fleet) == [("12.head", "removed")]
    assert not os.path.exists(directory)


def test_file_of_somebody_else_among_them_stays_and_is_said(fleet):
    fleet.configure(orphan_grace_days=0)
    directory = os.path.dirname(fleet.image())
    os.mkdir(os.path.join(directory, "roots"))
    open(os.path.join(directory, "roots", "file"), "w").close()
    fleet.server()
    done = fleet.call("prune", "--orphans")
    assert done.returncode == errors.SYSTEM
    assert done.stderr == "torque-ckpt: cannot remove all of %s: Permission denied; remove it by hand\n" % directory
    assert os.path.exists(os.path.join(directory, "roots", "file"))


# -- status and selftest ---------------------------------------------------------------------------------------------

def test_status(fleet):
    answer = fleet.ask("status")
    assert answer["node"] == os.uname().nodename
    assert answer["engine"] == {"name": "criu", "version": "9.9"}
    assert answer["key"] == {"path": fleet.settings["key_path"], "ids": ["first"]}
    assert [(store["path"], store["usable"]) for store in answer["stores"]] == [(fleet.store, True)]
    assert (answer["jobs"], answer["failures"], answer["problems"]) == ([], [], [])
    assert answer["versions"]["manifest"] == schema.COMPRESSED


@pytest.mark.parametrize("command", ["status", "selftest"])
def test_engine_of_root_finds_nothing_in_the_callers_environment(fleet, command):
    """Its configuration, and what CRIU remembers of the kernel, would be looked up by these."""
    path = os.path.join(fleet.top, "environment")
    open(path, "w").close()
    os.chmod(path, 0o666)
    fleet.program("env >> %s\necho 'Version: 9.9'\n" % path)
    strange = {"HOME": "/home/alice", "XDG_RUNTIME_DIR": "/run/user/1000", "CRIU_CONFIG_FILE": "/home/alice/criu.conf", "LD_PRELOAD": ""}
    fleet.call(command, *["--timeout", "2"] * (command == "selftest"), variables=strange)
    variables = {line.partition("=")[0] for line in open(path).read().splitlines()}
    assert "PATH" in variables and not variables.intersection(strange)


def test_status_of_a_node_that_is_set_up_wrongly(fleet):
    criu = fleet.settings["engine_options"]["path"]
    os.unlink(criu)
    os.unlink(os.path.join(fleet.store, location.MARKER))
    done = fleet.call("status")
    assert done.returncode == 1
    assert "engine  criu NOT USABLE\n" in done.stdout and "store   %s (main), NOT USABLE\n" % fleet.store in done.stdout
    assert done.stderr.splitlines()[0] == "torque-ckpt: criu is not at %s on this node; run the role criu" % criu


def test_status_of_a_node_without_a_key(fleet):
    os.unlink(fleet.settings["key_path"])
    assert fleet.ask("status", code=1)["problems"] == ["there is no key %s; run the role checkpoint_hooks on this node"
                                                       % fleet.settings["key_path"]]


def test_status_of_a_host_that_is_not_a_node(fleet):
    os.unlink(fleet.settings["engine_options"]["path"])
    os.unlink(fleet.settings["key_path"])
    fleet.record("node1", node="node1")
    assert fleet.ask("status")["engine"] == {"name": None, "version": None}


def test_status_names_jobs_that_were_restarted_here(fleet):
    sleeper = subprocess.Popen(["/bin/sleep", "1000"], stdin=subprocess.DEVNULL)
    try:
        from torque_ckpt.job import identity
        from torque_ckpt.system import processes
        here = processes.read_process(sleeper.pid)
        identity.write_record(Records(fleet.settings["run_directory"], "12.head"), here, here)
        identity.write_record(Records(fleet.settings["run_directory"], "13.head"), here, here._replace(start=here.start + 1))
        os.chmod(fleet.settings["run_directory"], 0o755)
        assert fleet.ask("status")["jobs"] == [{"job": "12.head", "owner": "root", "pid": sleeper.pid, "name": "sleep"}]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_status_for_users(fleet):
    done = fleet.call("status", user="nobody")
    assert done.returncode == 0, done.stderr
    assert "keys    only root may read them\n" in done.stdout


# -- check -------------------------------------------------------------------------------------------------------------

NUMBER = str(os.getpid())
"""The number of a job that no other test on this machine has."""
HOLDS = 'exec 9< /dev/full\nexec /bin/sh -c "$2" "$3"\n'


@pytest.fixture
def holding(fleet, start_job):
    """A job NUMBER.head of nobody's that has /dev/full open, which is refused."""
    fleet.configure(refused_devices=["/dev/full"])
    fleet.program(HOLDS, "holds")
    return start_job(job_id=NUMBER + ".head", user=privilege.find_user("nobody"), programs=(os.path.join(fleet.top, "holds"),))


ADVICE = "checkpoint the job when the process has closed the device"
SENTENCE = "process %d (sh) has the device /dev/full open; CRIU cannot checkpoint that; " + ADVICE
ELSEWHERE = " on {node}; run torque-ckpt check on the node where it runs, the first one in exec_host of qstat -f"


@pytest.mark.parametrize("user", [None, "nobody"])
@pytest.mark.parametrize("wanted", [[NUMBER + ".head"], [NUMBER], ["--pid"]])
def test_check(fleet, holding, user, wanted):
    pid = holding.pids[0]
    arguments = ["check"] + wanted + [str(pid)] * (wanted == ["--pid"])
    done = fleet.call(*arguments, user=user)
    assert (done.returncode, done.stdout, done.stderr) == (1, SENTENCE % pid + "\n", "")
    assert fleet.ask(*arguments, user=user, code=1) == {
        "job": None if wanted == ["--pid"] else NUMBER + ".head", "pid": pid, "engine": "criu", "problems": [],
        "obstacles": [{"kind": "device", "pid": pid, "name": "sh", "resource": "has the device /dev/full open",
                       "advice": ADVICE, "sentence": SENTENCE % pid}]}


def test_check_of_a_job_that_nothing_stands_in_the_way_of(fleet, holding):
    fleet.configure(refused_devices=[])
    done = fleet.call("check", NUMBER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing stands in the way of a checkpoint\n", "")


@pytest.mark.parametrize("user, arguments, code, sentence", [
    (None, [], errors.USAGE, "name a job, or a process with --pid; see torque-ckpt check --help"),
    (None, ["12", "--pid", "7"], errors.USAGE, "name a job, or a process with --pid; see torque-ckpt check --help"),
    (None, ["13.nowhere"], errors.GONE, "job 13.nowhere has no process" + ELSEWHERE),
    ("daemon", [NUMBER], errors.GONE, "job {number} has no process of yours" + ELSEWHERE),
    ("daemon", ["--pid", "{pid}"], errors.REFUSED, "process {pid} (sh) is another user's; only root may look at it; it was left alone"),
    (None, ["--pid", "{own}"], errors.REFUSED,
     "process {own} ({name}) is root's, and jobs of root are not checkpointed; it was left alone"),
    (None, ["--pid", "4194304"], errors.GONE, "there is no process 4194304 on {node}; run torque-ckpt check where it runs"),
])
def test_check_that_is_refused(fleet, holding, user, arguments, code, sentence):
    names = {"number": NUMBER, "node": os.uname().nodename, "pid": holding.pids[0], "own": os.getpid(),
             "name": open("/proc/self/comm").read().strip()}
    done = fleet.call("check", *[argument.format(**names) for argument in arguments], user=user)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "torque-ckpt: " + sentence.format(**names) + "\n")


def test_check_of_one_of_several_jobs(fleet, holding, start_job):
    start_job(job_id=NUMBER + ".other", user=privilege.find_user("nobody"))
    done = fleet.call("check", NUMBER)
    assert (done.returncode, done.stderr) == (errors.USAGE, "torque-ckpt: '{0}' means several jobs ({0}.head, {0}.other); name one in "
                                              "full\n".format(NUMBER))


def test_check_of_a_job_that_no_hook_has_started(fleet, start_job):
    """Two children of the leader, of which neither is the job's root for certain."""
    start_job(job_id=NUMBER + ".head", user=privilege.find_user("nobody"), programs=("/bin/sh", "/bin/sh"))
    done = fleet.call("check", NUMBER + ".head")
    assert (done.returncode, done.stderr) == (
        errors.GONE, "torque-ckpt: job %s.head was not started by the run or restart hook on %s, so that it cannot be checkpointed; submit "
        "it with qsub -c enabled; torque-ckpt check --pid looks at its processes\n" % (NUMBER, os.uname().nodename))


# -- nodes that are down -----------------------------------------------------------------------------------------------

class Batch:
    """TORQUE's commands, for nodes with states and jobs that run there; what qrerun is asked is in the file asked.

    :param slots: what pbsnodes shows as the jobs of a node, with {0} for the id of one
    :param exec_host: of each job; default: its node, and one more
    :param statuses: what pbsnodes shows as the status of a node, by its name; default: as REPORTED
    """

    def __init__(self, fleet, nodes, jobs, rerun, slots="0/{0}, 1/99.head", exec_host="", **statuses):
        self.directory = os.path.join(fleet.top, "bin")
        for node, job in jobs.items():
            with open(os.path.join(self.directory, job + ".R"), "w") as stream:
                stream.write("Job Id: %s\n    Job_Owner = nobody@head\n    job_state = R\n    exec_host = %s\n"
                             "    Variable_List = PATH=/bin,X=1\n    job_state = Q\n    checkpoint_name = ckpt.%s.1001\n"
                             % (job, exec_host or node + "/0+other/1", job))
            with open(os.path.join(self.directory, job + ".Q"), "w") as stream:
                stream.write("Job Id: %s\n    job_state = Q\n    exec_host = %s/0\n" % (job, node))
        listed = "".join("<Node><name>%s</name><state>%s</state>%s%s</Node>" % (
            name, state, "<jobs>%s</jobs>" % slots.format(jobs[name]) if name in jobs else "", statuses.get(name, REPORTED))
            for name, state in nodes.items())
        known = "BIN=%s; " % self.directory
        fleet.program("echo '<Data>%s</Data>'\n" % listed, "bin/pbsnodes")
        fleet.program(known + "if [ -e $BIN/$2.R ]; then cat $BIN/$2.R; elif [ -e $BIN/$2.Q ]; then cat $BIN/$2.Q; "
                      "elif [ $2 = ${2%.head} ]; then echo \"qstat: illegally formed job identifier: $2\" >&2; exit 1; else "
                      "echo \"qstat: Unknown Job Id Error $2\" >&2; exit 153; fi\n", "bin/qstat")
        fleet.program(known + "echo $* >> $BIN/asked; %s\n" % rerun, "bin/qrerun")
        self.patch("node-crash", "applied")

    def replace(self, job, old, new):
        """Replace text in what qstat prints of a running job."""
        path = os.path.join(self.directory, job + ".R")
        text = open(path).read()
        assert old in text
        with open(path, "w") as stream:
            stream.write(text.replace(old, new))

    def patch(self, name, state):
        """Leave a manifest as of a TORQUE that was built with one patch."""
        with open(os.path.join(self.directory, "..", "ckpt-torque.json"), "w") as stream:
            json.dump({"patches": [{"name": name, "file": name + ".patch", "state": state}]}, stream)

    def asked(self):
        path = os.path.join(self.directory, "asked")
        return open(path).read().splitlines() if os.path.exists(path) else []


REPORTED = "<status>opsys=linux,state=free,rectime=1000,jobs=12.head</status>"
"""The status of a node whose last report arrived when the state file says so, see remember()."""

UP = {"node2": "free", "node3": "job-exclusive", "node4": "free"}


@pytest.fixture
def down(fleet):
    """A host with an image of job 12.head, whose node has been down for two hours and was seen so a minute ago."""
    fleet.configure(node_down_action="restart")
    fleet.image()
    remember(fleet, 7200, 60)
    return fleet


def remember(fleet, first, last, rectime="1000", nodes=("node1",)):
    now = time.time()
    os.makedirs(fleet.settings["state_directory"], exist_ok=True)
    with open(os.path.join(fleet.settings["state_directory"], "node_down.json"), "w") as stream:
        json.dump({"nodes": {node: [now - first, now - last, rectime] for node in nodes}, "reported": []}, stream)


def actions(fleet, *arguments, code=0):
    return [(fact["job"], fact["node"], fact["action"]) for fact in fleet.ask("node-down", *arguments, code=code)["jobs"]]


RERUN = "rm $BIN/$2.R"
"""What qrerun does: the job is queued."""


@pytest.mark.parametrize("state", ["down", "down,job-exclusive", "down,offline"])
def test_job_of_a_node_that_is_down_is_queued_again_once(down, state):
    batch = Batch(down, dict(UP, node1=state), {"node1": "12.head"}, RERUN)
    (fact,) = down.ask("node-down")["jobs"]
    assert (fact["job"], fact["node"], fact["action"]) == ("12.head", "node1", "queued again")
    assert fact["image"] == os.path.join(down.store, "12.head.CK/ckpt.12.head.1001") and 7200 <= fact["seconds"] < 7300
    assert batch.asked() == ["-f 12.head"]
    assert actions(down) == [] and batch.asked() == ["-f 12.head"]


@pytest.mark.parametrize("job", ["13.head", "13[5].head"])
@pytest.mark.parametrize("slots", ["0-1,3/{0}", "0,2-5/98.head,1,7/{0}", "0/{0}, 1/{0}, 3/{0}"])
def test_job_with_several_slots_of_its_node(down, job, slots):
    """TORQUE 5.1 and later print them as ranges with commas between; a range is no job."""
    down.image(job)
    batch = Batch(down, dict(UP, node1="down"), {"node1": job}, RERUN, slots)
    assert actions(down) == [(job, "node1", "queued again")] and batch.asked() == ["-f " + job]


def test_dry_run_queues_nothing_and_remembers_nothing(down):
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    before = open(os.path.join(down.settings["state_directory"], "node_down.json")).read()
    assert actions(down, "--dry-run") == [("12.head", "node1", "would be queued again")]
    assert batch.asked() == [] and open(os.path.join(down.settings["state_directory"], "node_down.json")).read() == before


@pytest.mark.parametrize("action", ["report", "none"])
def test_job_is_only_reported(down, action):
    down.configure(node_down_action=action)
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    assert actions(down) == [("12.head", "node1", "reported")] and batch.asked() == []


@pytest.mark.parametrize("key", ["reported", "told"])
def test_action_that_an_earlier_run_reported_is_not_new(down, key):
    """The second key is that of older hooks."""
    down.configure(node_down_action="report")
    Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    path = os.path.join(down.settings["state_directory"], "node_down.json")
    with open(path, "r+") as stream:
        state = json.load(stream)
        stream.seek(0)
        json.dump({"nodes": state["nodes"], key: ["node1 12.head reported"]}, stream)
        stream.truncate()
    stores, reports = Stores(config.load_settings(down.config)), []
    node_down.handle_down_nodes(stores, False, lambda fact, is_new: reports.append((fact["job"], is_new)))
    assert reports == [("12.head", False)]
    assert json.load(open(path))["reported"] == ["node1 12.head reported"]


@pytest.mark.parametrize("first, last, why", [
    (800, 60, "down for less than node_down_seconds"),
    (7200, 700, "not looked at for so long that it may have been up meanwhile"),
    (7200, -60, "seen in the future: the clock was put back"),
])
def test_node_that_is_not_down_for_long(down, first, last, why):
    remember(down, first, last)
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    ((_job, _node, action),) = actions(down)
    assert action.startswith("waits until ") and batch.asked() == [], why


def test_node_that_was_up_between(down):
    Batch(down, dict(UP, node1="free"), {"node1": "12.head"}, RERUN)
    assert actions(down) == []
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    ((_job, _node, action),) = actions(down)
    assert action.startswith("waits until ") and batch.asked() == []


@pytest.mark.parametrize("status", ["<status>message=ERROR no store,rectime=1000,state=down,rectime=1045,jobs=12.head</status>",
                                    "<status>rectime=1045,state=down</status>"])
def test_node_that_is_down_and_reports(down, status):
    """As one that fails its health check: its jobs run."""
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN, node1=status)
    assert actions(down) == [] and batch.asked() == []
    ((_job, _node, action),) = actions(down)
    assert action.startswith("waits until ") and batch.asked() == [], "no report since, but the count began anew with the last one"


@pytest.mark.parametrize("state, status", [
    ("free", "<status>rectime=1045</status>"), ("down", "<status>rectime=1045</status>"), (None, "")])
def test_node_that_reports_before_its_job_is_queued_again(down, state, status):
    nodes, jobs = dict(UP, node1="down"), {"node1": "12.head"}
    later = Batch(down, dict(UP, node1=state) if state else UP, jobs, RERUN, node1=status)
    os.rename(os.path.join(later.directory, "pbsnodes"), os.path.join(later.directory, "pbsnodes-later"))
    batch = Batch(down, nodes, jobs, RERUN)
    with open(os.path.join(batch.directory, "pbsnodes"), "a") as stream:
        stream.write("mv {0}/pbsnodes-later {0}/pbsnodes\n".format(batch.directory))
    assert actions(down) == [("12.head", "node1", "left alone: node1 is not down any more")]
    assert batch.asked() == []


def test_run_that_takes_long_does_not_restart_the_count(down):
    """What counts is the time between the end of a run and the next one."""
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, "sleep 0.1; date +%%s.%%N > %s/late; %s" % (down.top, RERUN))
    assert actions(down) == [("12.head", "node1", "queued again")] and batch.asked() == ["-f 12.head"]
    state = json.load(open(os.path.join(down.settings["state_directory"], "node_down.json")))
    assert state["nodes"]["node1"][1] > float(open(os.path.join(down.top, "late")).read())


class Searches(Stores):
    """Stores, with the names of the directories that each search is for in the list searches."""

    def __init__(self, settings):
        super().__init__(settings)
        self.searches = []

    def list_images(self, only=None, also=(), *others):
        self.searches.append(sorted(also))
        return super().list_images(only, also, *others)


def test_images_are_searched_once_for_all_jobs_that_need_one(down):
    down.configure(node_down_share=60)
    down.image("13.head")
    down.image("14.head")
    remember(down, 7200, 60, nodes=("node1", "node5"))
    jobs = {"node1": "12.head", "node2": "14.head", "node5": "13.head"}
    Batch(down, dict(UP, node1="down", node2="down", node5="down"), jobs, RERUN)
    stores, facts = Searches(config.load_settings(down.config)), []
    node_down.handle_down_nodes(stores, False, lambda fact, is_new: facts.append(fact))
    assert stores.searches == [["12.head.CK", "13.head.CK"]]
    paths = {job: os.path.join(down.store, job + ".CK", "ckpt.%s.1001" % job) for job in ("12.head", "13.head")}
    assert {fact["job"]: fact["image"] for fact in facts} == dict(paths, **{"14.head": None})
    assert [fact["action"][:12] for fact in facts] == ["queued again", "waits until ", "queued again"], "in the order of the nodes"
    remember(down, 800, 60)
    stores.searches.clear()
    node_down.handle_down_nodes(stores, False, lambda fact, is_new: None)
    assert stores.searches == [], "no job has waited long enough"


def test_job_that_was_queued_again_by_hand_meanwhile(down):
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    with open(os.path.join(batch.directory, "qstat"), "a") as stream:
        stream.write("sed -i s/node1/node2/ %s/12.head.R\n" % batch.directory)
    assert actions(down) == [("12.head", "node1", "left alone: the job does not run on node1 any more")]
    assert batch.asked() == []


@pytest.mark.parametrize("before", ["", "1000"])
def test_node_that_has_not_reported_since_the_server_started(down, before):
    remember(down, 7200, 60, before)
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN, node1="")
    assert actions(down) == [("12.head", "node1", "queued again")] and batch.asked() == ["-f 12.head"]


def test_nodes_that_are_down_and_report_are_not_the_networks_fault(down):
    remember(down, 7200, 60, nodes=("node1", "node2", "node3"))
    failing = "<status>message=ERROR no store,state=down,rectime=1045</status>"
    Batch(down, dict(UP, node1="down", node2="down", node3="down"), {"node1": "12.head"}, RERUN, node2=failing, node3=failing)
    assert actions(down) == [("12.head", "node1", "queued again")]


@pytest.mark.parametrize("harm", ["no image", "a file of it is missing", "sealed with another key", "of another user",
                                  "the server knows of none"])
def test_job_without_a_whole_image_is_left_alone(down, harm):
    path = os.path.join(down.store, "12.head.CK", "ckpt.12.head.1001")
    if harm == "no image":
        shutil.rmtree(path)
    elif harm == "a file of it is missing":
        os.unlink(os.path.join(path, "pages-1.img"))
    elif harm == "sealed with another key":
        down.seal([("other", b"o" * 32)])
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    attributes = {"of another user": ("nobody@", "games@"), "the server knows of none": ("    checkpoint_name = ckpt.12.head.1001\n", "")}
    if harm in attributes:
        batch.replace("12.head", *attributes[harm])
    assert actions(down) == [("12.head", "node1", "left alone: the image that the server names is not whole here, or the server knows "
                              "of none")]
    assert batch.asked() == []


@pytest.mark.parametrize("damaged", [False, True])
def test_job_whose_named_image_is_gone_continues_from_the_newest_whole_one(down, damaged):
    """As the restart hook chooses it; one that is there and damaged is not passed over."""
    for number in (1000, 1002):
        down.image(name="ckpt.12.head.%d" % number)
    named = os.path.join(down.store, "12.head.CK", "ckpt.12.head.1001")
    if damaged:
        os.unlink(os.path.join(named, "pages-1.img"))
    else:
        shutil.rmtree(named)
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    (fact,) = down.ask("node-down")["jobs"]
    assert batch.asked() == ([] if damaged else ["-f 12.head"])
    assert fact["image"] == (None if damaged else os.path.join(down.store, "12.head.CK", "ckpt.12.head.1002"))


def test_job_whose_other_node_is_down(down):
    """Its first node answers, and pbs_mom there ends it within a while."""
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, "(sleep 1.5; rm $BIN/$2.R) > /dev/null 2>&1 &",
                  exec_host="node2/0+node1/0")
    batch.patch("sister-crash", "applied")
    assert actions(down) == [("12.head", "node1", "queued again")] and batch.asked() == ["-f 12.head"]


@pytest.mark.parametrize("patch", [("sister-crash", "not applicable"), ("node-crash", "applied")])
def test_job_whose_other_node_is_down_would_start_anew(down, patch):
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN, exec_host="node2/0+node1/0")
    batch.patch(*patch)
    assert actions(down) == [("12.head", "node1", "left alone: the first node of the job answers, and without TORQUE's patch sister-crash "
                              "it would start anew")]
    assert batch.asked() == []


@pytest.mark.parametrize("action", ["report", "restart"])
@pytest.mark.parametrize("patch", [("node-crash", "not applicable"), ("sister-crash", "applied")])
def test_job_whose_first_node_is_down_may_start_anew(down, patch, action):
    down.configure(node_down_action=action)
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    batch.patch(*patch)
    assert actions(down) == [("12.head", "node1", "left alone: without TORQUE's patch node-crash the job may start anew, and its first "
                              "node, if it comes back, may replace its output; if that node stays away, run qrerun -f 12.head")]
    assert batch.asked() == []


def test_job_whose_first_node_is_down_with_a_torque_of_others(down):
    """Whose patches nobody knows."""
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    os.unlink(os.path.join(batch.directory, "..", "ckpt-torque.json"))
    assert actions(down)[0][2].startswith("left alone: without TORQUE's patch node-crash ") and batch.asked() == []


@pytest.mark.parametrize("longer", ["node1", "node2"])
def test_job_of_two_nodes_that_are_down(down, longer):
    """It is reported once, with the node that has been down for longer; the first one does not answer, so node-crash is needed alone."""
    down.configure(node_down_share=60)
    remember(down, 7200, 60, nodes=("node1", "node2"))
    path = os.path.join(down.settings["state_directory"], "node_down.json")
    state = json.load(open(path))
    state["nodes"][longer][0] -= 600
    with open(path, "w") as stream:
        json.dump(state, stream)
    batch = Batch(down, dict(UP, node1="down", node2="down"), {"node1": "12.head", "node2": "12.head"}, RERUN, exec_host="node1/0+node2/0")
    assert actions(down) == [("12.head", longer, "queued again")] and batch.asked() == ["-f 12.head"]


@pytest.mark.parametrize("nodes, share, counts", [
    (dict(UP, node1="down", node2="down"), 25, (2, 4)),
    (dict(UP, node1="down", node2="down,offline", node3="down"), 50, (2, 3)),
    ({"node1": "down"}, 100, (1, 1)),
    ({"node1": "down", "node2": "free,offline"}, 100, (1, 1)),
])
def test_too_many_nodes_are_down(down, nodes, share, counts):
    down.configure(node_down_share=share)
    batch = Batch(down, nodes, {"node1": "12.head"}, RERUN)
    done = down.call("node-down")
    assert (done.returncode, done.stdout, done.stderr) == (
        errors.TEMPORARY, "", "torque-ckpt: %d of %d nodes are down, more than node_down_share (%d percent) allows: check the network of "
        "the nodes and of pbs_server; nothing was done\n" % (counts + (share,)))
    assert batch.asked() == []


def test_outage_of_the_network_does_not_count(down):
    """A node that reports later than the others when the network is back."""
    Batch(down, dict(UP, node1="down", node2="down"), {"node1": "12.head"}, RERUN)
    assert down.call("node-down").returncode == errors.TEMPORARY
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    ((_job, _node, action),) = actions(down)
    assert action.startswith("waits until ") and batch.asked() == []


def test_one_node_of_two_may_be_down(down):
    Batch(down, {"node1": "down", "node2": "free"}, {"node1": "12.head"}, RERUN)
    assert actions(down) == [("12.head", "node1", "queued again")]


def test_qrerun_that_fails(down):
    Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, "echo 'qrerun: Unauthorized Request' >&2; exit 159")
    done = down.call("node-down")
    why = "not queued again: qrerun -f exited 159: qrerun: Unauthorized Request"
    assert (done.returncode, done.stderr) == (errors.SYSTEM, "torque-ckpt: job 12.head of node1 was %s\n" % why)
    assert done.stdout.startswith("12.head: node1 is down for ") and done.stdout.endswith(" s: %s\n" % why)


def test_qrerun_that_does_nothing(down):
    Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, "true")
    assert actions(down, code=errors.SYSTEM) == [
        ("12.head", "node1", "not queued again: pbs_server has accepted qrerun -f, and the job is still there")]


@pytest.mark.parametrize("command, text, sentence", [
    ("pbsnodes", "echo 'cannot connect to server head' >&2; exit 111",
     "pbs_server does not answer (pbsnodes -x exited 111: cannot connect to server head); %s; nothing was done" % SERVER_CURE),
    ("pbsnodes", "echo '<Data><Node>'",
     "pbs_server does not answer (pbsnodes -x exited 0: no element found: line 2, column 0); %s; nothing was done" % SERVER_CURE),
    ("qstat", "echo 'Connection refused' >&2; exit 111",
     "pbs_server does not answer (qstat -f 12.head exited 111: Connection refused); %s; nothing was done" % SERVER_CURE),
])
def test_nothing_is_done_while_the_server_does_not_answer(down, command, text, sentence):
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    down.program(text + "\n", "bin/" + command)
    done = down.call("node-down")
    assert (done.returncode, done.stdout, done.stderr) == (errors.NO_SERVER, "", "torque-ckpt: %s\n" % sentence)
    assert batch.asked() == []


def test_server_that_stops_answering_when_a_job_was_queued_again(down):
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"},
                  RERUN + "; printf '#!/bin/sh\necho away >&2; exit 111\n' > $BIN/qstat")
    done = down.call("node-down")
    assert (done.returncode, done.stderr) == (
        errors.NO_SERVER, "torque-ckpt: pbs_server does not answer (qstat -f 12.head exited 111: away); %s; what is "
                          "reported was done, and one more job may have been queued again; the next run looks at the rest\n" % SERVER_CURE)
    assert batch.asked() == ["-f 12.head"]


def test_job_that_was_queued_again_is_reported_when_that_cannot_be_noted(down):
    Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    answer = down.ask("node-down", code=errors.SYSTEM, before=full_at_the_second_write("node_down.json"))
    assert [fact["action"] for fact in answer["jobs"]] == ["queued again"]
    assert answer["problems"] == ["cannot write %s/node_down.json: No space left on device; see to that directory; what is reported was "
                                  "done" % down.settings["state_directory"]]


def test_what_was_done_is_reported_when_the_server_stops_answering(down):
    down.configure(node_down_share=60)
    down.image("13.head")
    remember(down, 7200, 60, nodes=("node1", "node5"))
    Batch(down, dict(UP, node1="down", node5="down"), {"node1": "12.head", "node5": "13.head"},
          RERUN + "; printf '#!/bin/sh\necho away >&2; exit 111\n' > $BIN/pbsnodes")
    answer = down.ask("node-down", code=errors.NO_SERVER)
    assert [(fact["job"], fact["action"]) for fact in answer["jobs"]] == [("12.head", "queued again")]
    assert answer["problems"] == ["pbs_server does not answer (pbsnodes -x exited 111: away); %s; what is reported was done, and one more "
                                  "job may have been queued again; the next run looks at the rest" % SERVER_CURE]


def test_node_down_is_roots(down):
    done = down.call("node-down", user="nobody")
    assert (done.returncode, done.stderr) == (
        errors.REFUSED, "torque-ckpt: node-down is for root: it looks at images of all users; nothing was done\n")


def test_two_node_downs_at_once(down):
    import fcntl
    batch = Batch(down, dict(UP, node1="down"), {"node1": "12.head"}, RERUN)
    with open(os.path.join(down.settings["state_directory"], "node-down.lock"), "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = down.call("node-down")
    assert (done.returncode, done.stderr) == (
        errors.TEMPORARY, "torque-ckpt: another torque-ckpt node-down is at work on this host; wait until it has ended; nothing was done\n")
    assert batch.asked() == []


def test_selftest_is_roots(fleet):
    done = fleet.call("selftest", user="nobody")
    assert (done.returncode, done.stderr) == (
        errors.REFUSED, "torque-ckpt: selftest is for root: the engine needs capabilities that users do not have\n")


def test_selftest_that_fails(fleet):
    fleet.program("case $1 in --version) echo 'Version: 9.9';; *) echo 'Error (criu/x.c:1): it would not'; exit 1;; esac\n")
    done = fleet.call("selftest", "--timeout", "2")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("failed: criu 9.9: ")  # where users cannot read the interpreter, not even the tree starts


def test_selftest_in_a_directory_that_is_missing(fleet):
    done = fleet.call("selftest", "--directory", "/nonexistent")
    assert (done.returncode, done.stderr) == (errors.SYSTEM, "torque-ckpt: cannot create a temporary directory in /nonexistent: "
                                              "No such file or directory; name another directory\n")
