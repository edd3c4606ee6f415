import json
import os
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.image import seal
from torque_ckpt.system import privilege
from torque_ckpt.torque import contract

ALICE = privilege.User("alice", 1001, 100, "/home/alice")
CALL = contract.Call(4711, "12.head", "alice", None, "/shared/ckpt/12.head.CK", "ckpt.12.head.1", None, None)
BODY = {"job_id": "12.head", "uid": 1001, "name": "ckpt.12.head.1", "frozen_seconds": 0.1, "text": u"\u00fc"}
OLD, NEW = ("2025", b"o" * 32), ("2026", b"n" * 32)


@pytest.fixture
def write(tmp_path):
    def write(content, mode=0o600):
        path = tmp_path / "manifest.key"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        path.chmod(mode)
        return str(path)
    return write


def load(path):
    return seal.load_keys(path, owner=os.geteuid())


def refusal(path, owner=None):
    with pytest.raises(HookError) as caught:
        seal.load_keys(path, owner=os.geteuid() if owner is None else owner)
    assert caught.value.code == errors.CONFIG
    beginning, end = "key file %s " % path, "; run the role checkpoint_hooks on this node"
    assert str(caught.value).startswith(beginning) and str(caught.value).endswith(end)
    return str(caught.value)[len(beginning):-len(end)]


def ring(*keys):
    return {"keys": [{"id": name, "secret": "".join("%02x" % byte for byte in secret)} for name, secret in keys]}


def test_keys_in_their_order(write):
    assert load(write(ring(NEW, OLD))) == [NEW, OLD]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644])
def test_keys_that_others_may_reach(write, mode):
    assert refusal(write(ring(NEW), mode)) == "must be root's and readable by nobody else"


def test_keys_of_another_owner(write):
    assert refusal(write(ring(NEW)), owner=os.geteuid() + 1) == "must be root's and readable by nobody else"


def test_keys_that_are_missing(tmp_path):
    assert refusal(str(tmp_path / "none")) == "cannot be read (No such file or directory)"


def test_keys_behind_a_link(write, tmp_path):
    (tmp_path / "link").symlink_to(write(ring(NEW)))
    assert refusal(str(tmp_path / "link")) == "cannot be read (Too many levels of symbolic links)"


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "{}", '{"keys": 7}', '{"keys": ["x"]}', '{"keys": [{"id": "x"}]}',
                                     '{"keys": [{"id": "x", "secret": "no hex"}]}', '{"keys": [{"id": "x", "secret": 7}]}'])
def test_file_without_keys(write, content):
    assert refusal(write(content)) == "does not hold keys"


@pytest.mark.parametrize("content", [ring(), ring(("short", b"s" * 31)), ring(NEW, ("short", b"s")),
                                     {"keys": [{"id": 7, "secret": "17" * 32}]}])
def test_keys_that_are_none(write, content):
    assert refusal(write(content)) == "holds no key, or one shorter than 32 bytes"


def test_two_keys_of_one_name(write):
    assert refusal(write(ring(NEW, ("2026", b"x" * 32)))) == "holds two keys with one id"


def test_the_first_key_signs_and_all_verify():
    sealed = seal.add_seal([NEW, OLD], BODY)
    assert sealed["key"] == "2026" and len(sealed["mac"]) == 64
    for keys in ([NEW], [NEW, OLD], [OLD, NEW]):
        seal.check_seal(keys, sealed, "/shown")
    seal.check_seal([NEW, OLD], seal.add_seal([OLD], BODY), "/shown")


def test_sealing_again_gives_the_same_and_takes_the_new_key():
    sealed = seal.add_seal([OLD], BODY)
    assert seal.add_seal([OLD], sealed) == sealed
    seal.check_seal([NEW], seal.add_seal([NEW], sealed), "/shown")


def test_order_and_layout_do_not_matter():
    seal.check_seal([NEW], json.loads(json.dumps(seal.add_seal([NEW], BODY), sort_keys=True, indent=3)), "/shown")


def checked(keys, manifest, code=errors.REFUSED):
    with pytest.raises(HookError) as caught:
        seal.check_seal(keys, manifest, "/shown")
    assert caught.value.code == code
    return str(caught.value)


@pytest.mark.parametrize("key", [[], {}, None, 7])
def test_key_that_is_no_name(key):
    """The owner of an image can write any manifest."""
    manifest = dict(seal.add_seal([NEW], BODY), key=key)
    assert not seal.is_sealed([NEW], manifest)
    assert checked([NEW], manifest, errors.TEMPORARY).startswith("image /shown was sealed with the key %r, which" % (key,))


def test_key_that_is_gone():
    """Other nodes may have it already: it may pass."""
    assert checked([NEW], seal.add_seal([OLD], BODY), errors.TEMPORARY) == (
        "image /shown was sealed with the key '2025', which this node does not have; run site.yml on this node, or put that key back into "
        "checkpoint_hooks_keys; image kept")
    assert checked([NEW], BODY, errors.TEMPORARY).startswith("image /shown was sealed with the key None, ")


@pytest.mark.parametrize("change", [{"uid": 1002}, {"frozen_seconds": 0.2}, {"text": "u"}, {"more": None}, {"key": "2025"},
                                    {"mac": "0" * 64}, {"mac": ""}, {"mac": None}, {"mac": []}, {"mac": u"\u00fc" * 64}], ids=repr)
def test_anything_changed_is_seen(change):
    assert checked([NEW, OLD], dict(seal.add_seal([NEW], BODY), **change)) == (
        "image /shown has a manifest that root's hooks did not write, or that was changed since; take an older image")


def test_the_same_secret_under_another_name_does_not_prove():
    assert "root's hooks did not write" in checked([("other", NEW[1])], dict(seal.add_seal([NEW], BODY), key="other"))


def test_root_seals_only_this_jobs_manifest():
    respond = seal.build_answer([NEW], CALL, ALICE)
    assert respond(["seal", BODY, None]) == seal.add_seal([NEW], BODY)
    for change in ({"job_id": "13.head"}, {"uid": 0}, {"name": "ckpt.12.head.2"}):
        with pytest.raises(HookError) as caught:
            respond(["seal", dict(BODY, **change), None])
        assert (caught.value.code, str(caught.value)) == (
            errors.SYSTEM, "the manifest to be sealed speaks of another image than ckpt.12.head.1")


def test_the_users_part_has_it_done_by_root(somebody):
    def work():
        sealed = seal.ask_to_seal(BODY)
        seal.ask_to_verify(sealed, "/shown")
        try:
            seal.ask_to_verify(dict(sealed, uid=0), "/shown")
        except HookError as error:
            return [sealed, str(error)]
    assert privilege.as_user(somebody, work, answer=seal.build_answer([NEW], CALL, ALICE)) == [
        seal.add_seal([NEW], BODY),
        "image /shown has a manifest that root's hooks did not write, or that was changed since; take an older image"]


def test_seal_is_for_one_purpose():
    sealed = seal.add_seal([NEW], BODY, b"incarnation")
    assert seal.is_sealed([NEW, OLD], sealed, b"incarnation")
    assert not seal.is_sealed([NEW], sealed)
    assert not seal.is_sealed([NEW], seal.add_seal([NEW], BODY), b"incarnation")
    assert not seal.is_sealed([OLD], sealed, b"incarnation")
    assert not seal.is_sealed([NEW], dict(sealed, uid=7), b"incarnation")


# Where the secret is

SCAN = """
import ctypes, json, sys
sys.path.insert(0, {hooks!r})
from torque_ckpt.hooks import preflight
from torque_ckpt.image import seal
from torque_ckpt.system import privilege
from torque_ckpt.telemetry.report import Report
from torque_ckpt.torque import contract

MIRROR = bytes(255 - byte for byte in range(256))
PATTERNS = [bytes.fromhex(text) for text in sys.argv[2:]]  # mirrored, so that they are not what is looked for

def holds():
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: or we might not look at it
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            ends, rights = line.split()[:2]
            if "w" not in rights or "[v" in line:
                continue
            start, end = (int(text, 16) for text in ends.split("-"))
            memory.seek(start)
            text = memory.read(end - start).translate(MIRROR)
            if any(pattern in text for pattern in PATTERNS):
                return True
    return False

call = contract.parse_restart({arguments!r})
node = preflight.prepare_job(call, sys.argv[1], "restart", Report("restart"))
answer = seal.build_answer(node.keys, call, node.user)

def work():
    sealed = seal.ask_to_seal({{"job_id": call.job_id, "uid": node.user.uid, "name": call.name}})
    seal.ask_to_verify(sealed, "/shown")
    return [sealed["key"], holds()]

results = [privilege.as_user(node.user, work, answer=answer), privilege.as_user(node.user, work, answer=answer), holds()]
keys = seal.load_keys(node.settings["key_path"])
results.append(holds())
print(json.dumps(results))
"""


def test_secret_is_in_no_memory_but_a_childs_that_stays_roots(site, installed):
    """Neither in the part that becomes the user's, nor in the one from which the next is forked; the last shows that it would be seen."""
    secret = os.urandom(32)
    with open(site.key, "w") as stream:
        json.dump({"keys": [{"id": "first", "secret": secret.hex()}]}, stream)
    patterns = [bytes(255 - byte for byte in text).hex() for text in (secret, secret.hex().encode())]
    script = SCAN.format(hooks=installed, arguments=site.arguments())
    done = subprocess.run([sys.executable, "-c", script, site.config] + patterns, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [["first", False], ["first", False], False, True]
