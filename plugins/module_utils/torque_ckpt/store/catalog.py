"""The images in a store: found and examined as their owners.

Root reads the store down to the first directory that is a user's; from there on a child that is the user does the work,
from directory descriptors and without following links. What an image says of itself is read here and nowhere else.
"""
import os
import pwd
import resource
import stat
import time

from .. import errors
from ..errors import HookError, CANNOT_WRITE, NO_INPUT, REFUSED, SYSTEM
from ..image import manifest, schema
from ..system import privilege, strict_json
from ..system.dirfd import DIRECTORY, list_directory
from ..torque.names import find_job_id
from . import generations, incarnation, location

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Iterable, Iterator

DEPTH = 4
"""A job's directory is found if there are fewer directories than this between it and its store."""

MEMORY = 512 << 20
"""How much memory the child that examines one user's images as that user may take (bytes)."""

PATIENCE, DEADLINE = 120, 300
"""How long it may wait for a file system that does not answer, and how long it may take in all (seconds)."""

MOST = 50000
"""How many images of one user are examined in a store."""

WHOLE, DAMAGED, REFUSED_HERE, WRITING, LEFTOVER = "whole", "damaged", "refused", "writing", "leftover"
"""States of an image; parser.STATES explains them."""


def find_account(uid: int, gid: int) -> privilege.User:
    """Return the User with this uid; if the account is gone but its files are not, a nameless one with this gid."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return privilege.User("uid:%d" % uid, uid, gid, "/")
    return privilege.User(entry.pw_name, uid, entry.pw_gid, entry.pw_dir)


def run_as_owner(user: privilege.User, work: "Callable[[], Any]", answer: "Callable[[Any], Any] | None" = None,
                 deadline: "float | None" = DEADLINE) -> "Any":
    """Run work() as the user: in a child when we are root, here when we are the user; return what it returns.

    :param answer, deadline: see privilege.as_user
    :raises HookError: REFUSED when we are somebody else, SYSTEM when it takes more memory than it may, TEMPORARY when it takes too long or
        its user has stopped it
    """
    def limited() -> "Any":
        hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = MEMORY if hard_limit == resource.RLIM_INFINITY else min(hard_limit, MEMORY)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        try:
            return work()
        except MemoryError:
            raise HookError(SYSTEM, "there is more than fits into %d MiB of memory; remove some by hand" % (limit >> 20))

    if os.geteuid() == 0 and user.uid != 0:
        return privilege.as_user(user, limited, (), answer, PATIENCE, deadline)
    if os.geteuid() == user.uid and user.uid != 0:
        return work()
    raise HookError(REFUSED, "images of %s are shown to root and to their owner only" % user.name)


def _list_subdirectories(descriptor: int) -> "list[tuple[str, os.stat_result]]":
    """Return name and status of each directory in a directory (descriptor), sorted; what vanishes meanwhile is left out."""
    directories = []
    for name in sorted(list_directory(descriptor)):
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            directories.append((name, status))
    return directories


def _find_user_directories(store: "dict[str, str]") -> "dict[tuple[int, int], list[str]]":
    """Return the topmost directories of users in a store: {(uid, gid): [path, ...]}.

    :raises HookError: NO_INPUT when the store cannot be read
    """
    owners: "dict[tuple[int, int], list[str]]" = {}
    own_uid = os.geteuid()

    def walk(descriptor: int, path: str, depth: int) -> None:
        for name, status in _list_subdirectories(descriptor):
            inner = os.path.join(path, name)
            if status.st_uid != 0:
                if own_uid in (0, status.st_uid):
                    owners.setdefault((status.st_uid, status.st_gid), []).append(inner)
            elif depth > 1 and find_job_id(name) is None:
                try:
                    deeper = os.open(name, DIRECTORY, dir_fd=descriptor)
                except OSError:
                    continue  # closed to us, or not a directory any more
                try:
                    walk(deeper, inner, depth - 1)
                finally:
                    os.close(deeper)

    try:
        top = os.open(store["path"], DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "store %s cannot be read: %s; see to that file system" % (store["path"], error.strerror))
    try:
        walk(top, store["path"], DEPTH)
    finally:
        os.close(top)
    return owners


def _walk_job_directories(store: "dict[str, str]", path: str, uid: int, depth: int = DEPTH) -> "Iterator[tuple[str, int]]":
    """As the user: yield path and descriptor of each job's directory at and beneath path that is the user's; closed afterwards."""
    try:
        descriptor = location.open_job_directory(store, path)
    except HookError:
        return  # gone, or not a directory any more
    try:
        if os.fstat(descriptor).st_uid != uid:
            return
        if find_job_id(os.path.basename(path)) is not None:
            yield path, descriptor
        elif depth > 1:
            for name, status in _list_subdirectories(descriptor):
                if status.st_uid == uid and not name.startswith("."):
                    yield from _walk_job_directories(store, os.path.join(path, name), uid, depth - 1)
    finally:
        os.close(descriptor)


def map_job_directories(store: "dict[str, str]", work: "Callable[[str, int], Any]", problems: "list[str]",
                        only: "Callable[[str], object] | None" = None, also: "Iterable[str]" = (),
                        answer: "Callable[[Any], Any] | None" = None,
                        deadline: "float | None" = DEADLINE) -> "list[tuple[privilege.User, Any]]":
    """Call work(path, descriptor) as its owner for every job's directory in a store; return [(User, what it returned), ...].

    :param work: called with the directory's path and descriptor; its result must fit into JSON
    :param problems: a sentence is added to it for each user whose images cannot be examined
    :param only: called with a path, returns whether work is wanted for it; default: for all
    :param also: names in the store to try if a user cannot list it
    :param answer, deadline: see privilege.as_user
    """
    if os.geteuid() and not os.access(store["path"], os.R_OK):  # a user may know his own directory in a store that he cannot list
        me = find_account(os.geteuid(), os.getegid())
        owners = {(me.uid, me.gid): [os.path.join(store["path"], name) for name in [me.name] + list(also)]}
    else:
        owners = _find_user_directories(store)
    collected = []
    for (uid, gid), paths in sorted(owners.items()):
        user = find_account(uid, gid)

        def visit(paths: "list[str]" = paths, uid: int = uid) -> "list[list]":
            results, faults = [], []
            for path, descriptor in (pair for top in paths for pair in _walk_job_directories(store, top, uid)):
                if only is None or only(path):
                    try:
                        results.append(work(path, descriptor))
                    except RecursionError:
                        faults.append("%s cannot be read: its directories are nested too deep" % path)
                    if len(results) + len(faults) > MOST:
                        raise HookError(SYSTEM, "there are more than %d directories of jobs; remove some by hand" % MOST)
            return [results, faults]
        try:
            results, faults = run_as_owner(user, visit, answer, deadline)
            collected += [(user, result) for result in results]
            problems += faults
        except HookError as error:
            problems.append("the images of %s in %s cannot be read: %s" % (user.name, store["path"], error.sentence))
    return collected


def count_used_bytes(store: "dict[str, str]", user: str) -> int:
    """As the user: return how much space (bytes) his images take in a store.

    :param user: the user's name, for the sentence
    :raises HookError: CANNOT_WRITE when they cannot be counted
    """
    problems: "list[str]" = []
    used = sum(size for _user, size in map_job_directories(store, lambda _path, directory: measure_size(directory), problems))
    if problems:
        raise HookError(CANNOT_WRITE, "what the images of %s take in store %s cannot be counted (checkpoint_hooks_user_limit): %s; the "
                        "job keeps running; remove what is in the way" % (user, store["path"], problems[0]))
    return used


def measure_size(descriptor: int) -> int:
    """Return how many bytes are in a directory (descriptor) and beneath it."""
    total = 0
    for name in list_directory(descriptor):
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                inner = os.open(name, DIRECTORY, dir_fd=descriptor)
                try:
                    total += measure_size(inner)
                finally:
                    os.close(inner)
            else:
                total += status.st_size
        except OSError:
            pass  # it has just gone
    return total


def find_last_change(descriptor: int) -> float:
    """Return when something in a directory (descriptor) or beneath it was last changed (seconds since the epoch)."""
    latest = os.fstat(descriptor).st_mtime
    for name in list_directory(descriptor):
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            latest = max(latest, status.st_mtime)
            if stat.S_ISDIR(status.st_mode):
                inner = os.open(name, DIRECTORY, dir_fd=descriptor)
                try:
                    latest = max(latest, find_last_change(inner))
                finally:
                    os.close(inner)
        except OSError:
            pass
    return latest


def _check_sizes(image: int, described: dict, image_path: str) -> None:
    """Check quickly, without reading them, that all files of an image (descriptor) exist, each in its size."""
    for entry in described["files"]:
        try:
            size = os.stat(entry["name"], dir_fd=image, follow_symlinks=False).st_size
        except OSError as error:
            raise HookError(errors.DATA, "image %s is damaged: %s: %s; take an older image" % (image_path, entry["name"], error.strerror))
        if size != entry["size"]:
            raise HookError(errors.DATA, "image %s is damaged: %s has %d bytes, expected %d; take an older image"
                            % (image_path, entry["name"], size, entry["size"]))


_BRIEF = {"generation": None, "created": None, "node": None, "bound": False, "compression": None, "plain_bytes": None, "key": None}


def _add_manifest(entry: dict, described: dict) -> None:
    """Add to the entry of an image what its manifest (described) holds."""
    entry.update({name: described.get(name, default) for name, default in _BRIEF.items()}, engine=described["engine"]["name"],
                 engine_version=described["engine"].get("version"))
    if not strict_json.text(strict_json.NAME)[1](entry["key"]):  # only the seal checks that field: the owner may have written anything
        entry["key"] = None
    if described["format"] != schema.COMPRESSED:
        entry.update(compression=None, plain_bytes=None)


def _examine(image: int, entry: dict, job_id: str, descriptor: int, settings: dict, thorough: bool,
             prove: "Callable[[dict, str], None] | None", extract: "Callable[[dict], dict] | None") -> None:
    """Add to the entry of an image (see examine_job_directory) what is in it (image, descriptor).

    :raises HookError: with what is wrong with it
    """
    name, image_path = entry["name"], entry["path"]
    entry["bytes"] = measure_size(image)
    if name.startswith("."):
        left_over = generations.is_left_over(descriptor, name, get_patience(settings), time.time)
        entry["state"] = LEFTOVER if left_over else WRITING
        return
    described, refusal = manifest.read_manifest(image, image_path), None
    _add_manifest(entry, described)
    if extract is not None:
        entry.update(extract(described))
    if prove is not None:
        try:
            prove(described, image_path)
            entry["authentic"] = True
        except HookError as error:
            entry["authentic"], refusal = False, (REFUSED, error.sentence)  # itself it would keep the manifest in memory
    status = os.fstat(descriptor)
    owner = find_account(status.st_uid, status.st_gid)
    manifest.check_identity(described, job_id, owner, name, image_path)
    _check_sizes(image, described, image_path)
    if thorough:
        manifest.check_files(image, described, image_path)
    if refusal:
        raise HookError(*refusal)


def _describe_image(path: str, job_id: str, descriptor: int, name: str, changed: float, settings: dict, thorough: bool,
                    prove: "Callable[[dict, str], None] | None", extract: "Callable[[dict], dict] | None") -> dict:
    """Return the entry of one image (see examine_job_directory)."""
    image_path = os.path.join(path, name)
    entry = dict(_BRIEF, name=name, path=image_path, state=WHOLE, code=0, problem="", bytes=0, engine=None, engine_version=None,
                 authentic=None, changed=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(changed)))
    try:
        image = location.open_image(descriptor, name, image_path)
        try:
            _examine(image, entry, job_id, descriptor, settings, thorough, prove, extract)
        finally:
            os.close(image)
    except OSError as error:
        entry.update(state=DAMAGED, code=SYSTEM, problem="image %s cannot be read: %s" % (image_path, error.strerror))
    except HookError as error:
        entry.update(state=REFUSED_HERE if error.code == REFUSED else DAMAGED, code=error.code, problem=error.sentence)
    except MemoryError:
        raise
    except Exception as error:  # pylint: disable=broad-except; one image must not hide the others
        entry.update(state=DAMAGED, code=SYSTEM, problem="image %s cannot be read: %s: %s"
                     % (image_path, type(error).__name__, ascii(str(error))[1:-1][:200]))
    return entry


def get_patience(settings: dict) -> int:
    """Return how old a hidden directory of another node must be to be left over (seconds); the engine has that long to write."""
    return 2 * settings["engine_timeout"]


def examine_job_directory(path: str, descriptor: int, settings: dict, thorough: bool = False, wanted: "set[str] | None" = None,
                          prove: "Callable[[dict, str], None] | None" = None, extract: "Callable[[dict], dict] | None" = None) -> dict:
    """As the owner: return what is in a job's directory.

    :param path: the directory
    :param descriptor: its descriptor
    :param settings: from config.load_settings
    :param thorough: read every byte
    :param wanted: names of images, default all
    :param prove: called with a manifest and its image's path; raises HookError when root did not seal it; None if that cannot be checked
    :param extract: called with each manifest that can be read, returns what else its image's entry has
    :returns: {"job": str, "path": str, "images": list of {"name", "path", "state", "code", "problem", "bytes", "changed", "authentic",
        and of the manifest, or None: "generation", "created", "node", "bound", "compression", "plain_bytes", "key", "engine",
        "engine_version"; and what extract returned}}
    """
    names = [(name, status) for name, status in _list_subdirectories(descriptor) if wanted is None or name in wanted]
    if len(names) > MOST:
        raise HookError(SYSTEM, "there are more than %d images in %s; remove some by hand" % (MOST, path))
    job_id = find_job_id(os.path.basename(path), [name for name, _status in names]) or ""
    return {"job": job_id, "path": path,
            "images": [_describe_image(path, job_id, descriptor, name, status.st_mtime, settings, thorough, prove, extract)
                       for name, status in names]}


def prune_job_directory(path: str, descriptor: int, settings: dict, dry_run: bool) -> "list[dict]":
    """As the owner: remove from a job's directory what crashed hooks have left, and the images beyond the number to be kept.

    :param path, descriptor, settings: see examine_job_directory
    :param dry_run: only report what would be removed
    :returns: list of {"kind", "job", "path", "bytes", "action"}
    """
    examined = examine_job_directory(path, descriptor, settings)
    job_id, entries = examined["job"], examined["images"]
    images = generations.list_images(descriptor, job_id)
    keep = generations.get_depth(images[0].manifest if images else {}, settings["depth"])
    life = incarnation.read_incarnation(descriptor, job_id)
    doomed = {"leftover": [entry["name"] for entry in entries if entry["state"] == LEFTOVER],
              "image": generations.list_superfluous(descriptor, job_id, keep, life)}
    sizes = {entry["name"]: entry["bytes"] for entry in entries}
    action = dict.fromkeys(doomed["leftover"] + doomed["image"], "would be removed")
    if not dry_run:
        gone = set(generations.sweep_leftovers(descriptor, get_patience(settings)))
        action.update({name: "removed" if name in gone else "not removed: it could not be, or a hook is at work on it"
                       for name in doomed["leftover"]})
        try:
            gone = set(generations.prune_images(descriptor, job_id, keep, life))
            action.update(dict.fromkeys(gone, "removed"))
        except HookError as error:
            action.update(dict.fromkeys(doomed["image"], "not removed: " + error.sentence))
    return [{"kind": kind, "job": job_id, "path": os.path.join(path, name), "bytes": sizes.get(name, 0), "action": action[name]}
            for kind in ("leftover", "image") for name in doomed[kind]]
