"""The keys with which root seals its manifests and recognizes them.

A file that only root can read, the same on all nodes, written by the role
checkpoint_hooks: {"keys": [{"id": str, "secret": hexadecimal str}, ...]}. The
first key signs, all of them verify. To rotate, append a new one on all nodes,
then move it to the front; remove the old one when no image needs it any more.
"""
import json
import os
import stat

from ..errors import HookError, CONFIG, REFUSED, SYSTEM, TEMPORARY
from ..system import privilege

MYPY = False  # true for the type checker alone
if MYPY:
    import hmac
    from typing import Any, Callable, Iterator

SECRET = 32
"""The least length of a secret (bytes)."""

_DOMAIN = b"ckpt-torque %s\0"  # so that nothing else that the key may be used for counts as a seal


def _wrong(path: str, reason: str) -> HookError:
    return HookError(CONFIG, "key file %s %s; run the role checkpoint_hooks on this node" % (path, reason))


def load_keys(path: str, owner: int = 0) -> "list[tuple[str, bytes]]":
    """Read the keys; return (id, secret) of each; the first one signs.

    :param path: the file
    :param owner: uid that must own it; nobody else may read it
    :raises HookError: CONFIG if it is missing, not private or does not hold keys
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != owner or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise _wrong(path, "must be root's and readable by nobody else")
            content = json.loads(stream.read().decode("utf-8"))
        keys = [(entry["id"], bytes.fromhex(entry["secret"])) for entry in content["keys"]]
    except OSError as error:
        raise _wrong(path, "cannot be read (%s)" % error.strerror)
    except (ValueError, KeyError, TypeError):
        raise _wrong(path, "does not hold keys")
    if not keys or not all(isinstance(name, str) and len(secret) >= SECRET for name, secret in keys):
        raise _wrong(path, "holds no key, or one shorter than %d bytes" % SECRET)
    if len(dict(keys)) != len(keys):
        raise _wrong(path, "holds two keys with one id")
    return keys


class Keys:
    """The keys of a file. This process knows only their ids: a child reads the secrets for each use.

    So no process that becomes a user's has them in its memory, whenever it is forked. Iterates over (id, None), as the list from load_keys
    does over (id, secret).

    :param path, owner: see load_keys
    :raises HookError: as load_keys does
    """

    def __init__(self, path: str, owner: int = 0) -> None:
        self._path, self._owner = path, owner
        self._ids = self.use(lambda keys: [name for name, _secret in keys])

    def __iter__(self) -> "Iterator[tuple[str, None]]":
        return iter([(name, None) for name in self._ids])

    def use(self, work: "Callable[[list[tuple[str, bytes]]], Any]") -> "Any":
        """Return the result of work(keys as from load_keys), called in a child; it must fit into JSON."""
        return privilege.run_in_child(lambda: work(load_keys(self._path, self._owner)))


def _compute_code(secret: bytes, body: dict, purpose: bytes) -> "hmac.HMAC":
    import hmac  # only where it is needed
    text = json.dumps({name: value for name, value in body.items() if name != "mac"}, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret, _DOMAIN % purpose + text.encode("ascii"), "sha256")


def add_seal(keys: "Keys | list[tuple[str, bytes]]", body: dict, purpose: bytes = b"manifest") -> dict:
    """Return a manifest with its seal: the id of the key and the code, fields "key" and "mac".

    :param keys: from load_keys, or Keys
    :param body: the manifest without these
    :param purpose: what body is (default: a manifest)
    """
    if isinstance(keys, Keys):
        return keys.use(lambda secrets: add_seal(secrets, body, purpose))
    name, secret = keys[0]
    sealed = dict(body, key=name)
    return dict(sealed, mac=_compute_code(secret, sealed, purpose).hexdigest())


def is_sealed(keys: "Keys | list[tuple[str, bytes]]", body: dict, purpose: bytes = b"manifest") -> bool:
    """Whether body (from add_seal) was sealed with one of the keys for this purpose, and is unchanged."""
    if isinstance(keys, Keys):
        return keys.use(lambda secrets: is_sealed(secrets, body, purpose))
    import hmac
    secret = next((secret for name, secret in keys if name == body.get("key")), None)
    return secret is not None and hmac.compare_digest(_compute_code(secret, body, purpose).hexdigest().encode(),
                                                      ascii(body.get("mac"))[1:-1].encode())


def check_seal(keys: "Keys | list[tuple[str, bytes]]", manifest: dict, image_path: str) -> None:
    """Check that a manifest was sealed with one of the keys.

    :param image_path: the image's path, for the sentence
    :raises HookError: REFUSED if it was not; TEMPORARY if this node lacks the key, which others may have already
    """
    if manifest.get("key") not in [name for name, _secret in keys]:  # in a list: its owner may have written anything
        raise HookError(TEMPORARY, "image %s was sealed with the key %s, which this node does not have; run site.yml on this node, or put "
                        "that key back into checkpoint_hooks_keys; image kept" % (image_path, ascii(manifest.get("key"))))
    if not is_sealed(keys, manifest):
        raise HookError(REFUSED, "image %s has a manifest that root's hooks did not write, or that was changed since; "
                        "take an older image" % image_path)


def build_answer(keys: "Keys | list[tuple[str, bytes]]", call: "Any", user: privilege.User,
                 verified: "list[dict] | None" = None) -> "Callable[[list], Any]":
    """Return root's answer function (for privilege.as_user) to the two questions below.

    It seals only manifests of this job's image.

    :param keys: from load_keys, or Keys
    :param call: contract.Call
    :param verified: takes each manifest that was verified, or None
    """
    def respond(question: list) -> "dict | None":
        kind, manifest, image_path = question
        if kind == "verify":
            check_seal(keys, manifest, image_path)
            if verified is not None:
                verified.append(manifest)
            return None
        if (manifest["job_id"], manifest["uid"], manifest["name"]) != (call.job_id, user.uid, call.name):
            raise HookError(SYSTEM, "the manifest to be sealed speaks of another image than %s" % call.name)
        return add_seal(keys, manifest)
    return respond


def ask_to_seal(body: dict) -> dict:
    """As the user, in privilege.as_user: have root seal a manifest; return it sealed."""
    return privilege.ask_root(["seal", body, None])


def ask_to_verify(manifest: dict, image_path: str) -> None:
    """As the user, in privilege.as_user: have root check that it sealed a manifest of the image at image_path."""
    privilege.ask_root(["verify", manifest, image_path])
