"""The keys by which root knows that it wrote a manifest itself.

A file that only root can read, the same on all nodes, written by the role
checkpoint_hooks: {"keys": [{"id": str, "secret": hexadecimal str}, ...]}. The
first key signs, all of them verify. To rotate, append a new one on all nodes,
then put it in front; take the old one out when no image needs it any more.
"""
import json
import os
import stat

from ..errors import HookError, CONFIG, REFUSED, SYSTEM, TEMPORARY
from ..system import privilege

SECRET = 32
"""How long a secret must be at least (bytes)."""

_DOMAIN = b"ckpt-torque %s\0"  # a key that has other uses, too, would not vouch for what it did not mean


def _wrong(path, why):
    return HookError(CONFIG, "key file %s %s; run the role checkpoint_hooks on this node" % (path, why))


def load(path, owner=0):
    """Read the keys; return a list of (id, secret as bytes), the one that signs first.

    :param path: the file (str)
    :param owner: uid that must own it (int, default 0); nobody else may read it
    :raises HookError: CONFIG when it is missing, not private or not keys
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != owner or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise _wrong(path, "must be root's and readable by nobody else")
            found = json.loads(stream.read().decode("utf-8"))
        keys = [(entry["id"], bytes.fromhex(entry["secret"])) for entry in found["keys"]]
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
    """The keys of a file, of which we know the ids only: a child reads the secrets for each use.

    So no process that becomes a user's has them in its memory, whenever it is forked. Iterates over (id, None), as what load returns over
    (id, secret).

    :param path, owner: see load
    :raises HookError: as load
    """

    def __init__(self, path, owner=0):
        self._path, self._owner = path, owner
        self._ids = self.use(lambda keys: [name for name, _secret in keys])

    def __iter__(self):
        return iter([(name, None) for name in self._ids])

    def use(self, work):
        """Return what work(keys as from load) returns, from a child; it must fit into JSON."""
        return privilege.apart(lambda: work(load(self._path, self._owner)))


def _code(secret, body, purpose):
    import hmac  # only where it is needed
    text = json.dumps({name: value for name, value in body.items() if name != "mac"}, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret, _DOMAIN % purpose + text.encode("ascii"), "sha256")


def seal(keys, body, purpose=b"manifest"):
    """Return a manifest (dict) with the id of the key and the code that prove it, fields "key" and "mac".

    :param keys: from load, or Keys
    :param body: the manifest without them (dict)
    :param purpose: what it is (bytes), if it is no manifest
    """
    if isinstance(keys, Keys):
        return keys.use(lambda found: seal(found, body, purpose))
    name, secret = keys[0]
    sealed = dict(body, key=name)
    return dict(sealed, mac=_code(secret, sealed, purpose).hexdigest())


def is_sealed(keys, found, purpose=b"manifest"):
    """Whether what seal returned (dict) was sealed with one of the keys for this purpose, and is unchanged."""
    if isinstance(keys, Keys):
        return keys.use(lambda secrets: is_sealed(secrets, found, purpose))
    import hmac
    secret = dict(keys).get(found.get("key"))
    return secret is not None and hmac.compare_digest(_code(secret, found, purpose).hexdigest().encode(),
                                                      ascii(found.get("mac"))[1:-1].encode())


def check(keys, found, shown):
    """Prove that a manifest (dict) was sealed with one of the keys.

    :param shown: the image's path, for the sentence (str)
    :raises HookError: REFUSED when it was not; TEMPORARY when this node lacks the key, as others may have it already
    """
    if found.get("key") not in dict(keys):
        raise HookError(TEMPORARY, "image %s was sealed with the key %s, which this node does not have; run site.yml on this node, or put "
                        "that key back into checkpoint_hooks_keys; image kept" % (shown, ascii(found.get("key"))))
    if not is_sealed(keys, found):
        raise HookError(REFUSED, "image %s has a manifest that root's hooks did not write, or that was changed since; "
                        "take an older image" % shown)


def answer(keys, call, user):
    """Return root's answer function (for privilege.as_user) to the two questions below.

    It seals only what speaks of this job's image.

    :param keys: from load, or Keys
    :param call: contract.Call
    :param user: privilege.User
    """
    def respond(question):
        kind, found, shown = question
        if kind == "prove":
            return check(keys, found, shown)
        if (found["job_id"], found["uid"], found["name"]) != (call.job_id, user.uid, call.name):
            raise HookError(SYSTEM, "the manifest to be sealed speaks of another image than %s" % call.name)
        return seal(keys, found)
    return respond


def ask_to_seal(body):
    """As the user, in privilege.as_user: have root seal a manifest (dict); return it sealed."""
    return privilege.ask(["seal", body, None])


def ask_to_prove(found, shown):
    """As the user, in privilege.as_user: have root prove that it sealed a manifest (dict) of the image shown (str)."""
    privilege.ask(["prove", found, shown])
