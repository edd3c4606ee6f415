"""What images there are: found, and looked at, as their owners.

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
from ..system import privilege
from ..system.dirfd import DIRECTORY, names_in
from ..torque.names import find_job_id
from . import generations, incarnation, location

DEPTH = 4
"""A job's directory is found if there are fewer directories than this between it and its store."""

MEMORY = 512 << 20
"""How much memory the part that looks at one user's images as him may take (bytes)."""

PATIENCE, DEADLINE = 120, 300
"""How long it may wait for a file system that does not answer, and how long it may take in all (seconds)."""

MOST = 50000
"""How many images of one user are looked at in a store."""

WHOLE, DAMAGED, REFUSED_HERE, WRITING, LEFTOVER = "whole", "damaged", "refused", "writing", "leftover"
"""States of an image; parser.STATES says what they mean."""


def account_of(uid, gid):
    """Return the User with this uid (int); where the account is gone but its files are not, a nameless one with this gid (int)."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return privilege.User("uid:%d" % uid, uid, gid, "/")
    return privilege.User(entry.pw_name, uid, entry.pw_gid, entry.pw_dir)


def as_owner(user, work, answer=None, deadline=DEADLINE):
    """Run work() as the user: in a child when we are root, here when we are the user; return what it returns.

    :param answer, deadline: see privilege.as_user
    :raises HookError: REFUSED when we are somebody else, SYSTEM when it takes more memory than it may, TEMPORARY when it takes too long or
        its user has stopped it
    """
    def limited():
        allowed = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = MEMORY if allowed == resource.RLIM_INFINITY else min(allowed, MEMORY)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        try:
            return work()
        except MemoryError:
            raise HookError(SYSTEM, "there is more than fits into %d MiB of memory" % (most >> 20))

    if os.geteuid() == 0 and user.uid != 0:
        return privilege.as_user(user, limited, (), answer, PATIENCE, deadline)
    if os.geteuid() == user.uid and user.uid != 0:
        return work()
    raise HookError(REFUSED, "images of %s are shown to root and to their owner only" % user.name)


def _subdirectories(descriptor):
    """Return name and status of each directory in a directory (descriptor), sorted; what vanishes meanwhile is left out."""
    found = []
    for name in sorted(names_in(descriptor)):
        try:
            there = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(there.st_mode):
            found.append((name, there))
    return found


def _users_directories(place):
    """Return the topmost directories of users in a store (dict): {(uid, gid): [path (str), ...]}.

    :raises HookError: NO_INPUT when the store cannot be read
    """
    found, mine = {}, os.geteuid()

    def look(descriptor, path, depth):
        for name, there in _subdirectories(descriptor):
            inner = os.path.join(path, name)
            if there.st_uid != 0:
                if mine in (0, there.st_uid):
                    found.setdefault((there.st_uid, there.st_gid), []).append(inner)
            elif depth > 1 and find_job_id(name) is None:
                try:
                    deeper = os.open(name, DIRECTORY, dir_fd=descriptor)
                except OSError:
                    continue  # closed to us, or not a directory any more
                try:
                    look(deeper, inner, depth - 1)
                finally:
                    os.close(deeper)

    try:
        top = os.open(place["path"], DIRECTORY)
    except OSError as error:
        raise HookError(NO_INPUT, "store %s cannot be read: %s" % (place["path"], error.strerror))
    try:
        look(top, place["path"].rstrip("/"), DEPTH)
    finally:
        os.close(top)
    return found


def _job_directories(place, path, uid, depth=DEPTH):
    """As the user: yield path and descriptor of each job's directory at and beneath path (str) that is the user's; closed afterwards."""
    try:
        descriptor = location.open_job_directory(place, path)
    except HookError:
        return  # gone, or not a directory any more
    try:
        if os.fstat(descriptor).st_uid != uid:
            return
        if find_job_id(os.path.basename(path)) is not None:
            yield path, descriptor
        elif depth > 1:
            for name, there in _subdirectories(descriptor):
                if there.st_uid == uid and not name.startswith("."):
                    yield from _job_directories(place, os.path.join(path, name), uid, depth - 1)
    finally:
        os.close(descriptor)


def each(place, work, problems, only=None, also=(), answer=None, deadline=DEADLINE):
    """Call work(path, descriptor) as its owner for every job's directory in a store; return [(User, what it returned), ...].

    :param place: the store (dict)
    :param work: called with the directory's path (str) and descriptor; its result must fit into JSON
    :param problems: list to which a sentence is added for each user whose images cannot be looked at
    :param only: called with a path (str), says whether work is wanted for it; default: for all
    :param also: names in the store (list of str) to look for where a user cannot list it
    :param answer, deadline: see privilege.as_user
    """
    if os.geteuid() and not os.access(place["path"], os.R_OK):  # a user may know his own place in a store that he cannot list
        me = account_of(os.geteuid(), os.getegid())
        owners = {(me.uid, me.gid): [os.path.join(place["path"], name) for name in [me.name] + list(also)]}
    else:
        owners = _users_directories(place)
    found = []
    for (uid, gid), paths in sorted(owners.items()):
        user = account_of(uid, gid)

        def look(paths=paths, uid=uid):
            results, wrong = [], []
            for path, descriptor in (pair for top in paths for pair in _job_directories(place, top, uid)):
                if only is None or only(path):
                    try:
                        results.append(work(path, descriptor))
                    except RecursionError:
                        wrong.append("%s cannot be looked at: its directories are nested too deep" % path)
                    if len(results) + len(wrong) > MOST:
                        raise HookError(SYSTEM, "there are more than %d directories of jobs" % MOST)
            return [results, wrong]
        try:
            results, wrong = as_owner(user, look, answer, deadline)
            found += [(user, result) for result in results]
            problems += wrong
        except HookError as error:
            problems.append("the images of %s in %s cannot be looked at: %s" % (user.name, place["path"], error.sentence))
    return found


def used_bytes(place, user):
    """As the user: return how much his images take in a store (dict).

    :param user: the user's name, for the sentence (str)
    :returns: bytes (int)
    :raises HookError: CANNOT_WRITE when they cannot be counted
    """
    problems = []
    used = sum(found for _user, found in each(place, lambda _path, directory: size_of(directory), problems))
    if problems:
        raise HookError(CANNOT_WRITE, "what the images of %s take in store %s cannot be counted (checkpoint_hooks_user_limit): %s; the "
                        "job runs on; remove what is in the way" % (user, place["path"], problems[0]))
    return used


def size_of(descriptor):
    """Return how many bytes are in a directory (descriptor) and beneath it (int)."""
    total = 0
    for name in names_in(descriptor):
        try:
            there = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISDIR(there.st_mode):
                inner = os.open(name, DIRECTORY, dir_fd=descriptor)
                try:
                    total += size_of(inner)
                finally:
                    os.close(inner)
            else:
                total += there.st_size
        except OSError:
            pass  # it has just gone
    return total


def newest(descriptor):
    """Return when something in a directory (descriptor) or beneath it was last changed (float, seconds since the epoch)."""
    latest = os.fstat(descriptor).st_mtime
    for name in names_in(descriptor):
        try:
            there = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            latest = max(latest, there.st_mtime)
            if stat.S_ISDIR(there.st_mode):
                inner = os.open(name, DIRECTORY, dir_fd=descriptor)
                try:
                    latest = max(latest, newest(inner))
                finally:
                    os.close(inner)
        except OSError:
            pass
    return latest


def _check_sizes(image, found, shown):
    """Prove quickly, without reading it, that each file of an image (descriptor) is there in its size."""
    for entry in found["files"]:
        try:
            size = os.stat(entry["name"], dir_fd=image, follow_symlinks=False).st_size
        except OSError as error:
            raise HookError(errors.DATA, "image %s is damaged: %s: %s; take an older image" % (shown, entry["name"], error.strerror))
        if size != entry["size"]:
            raise HookError(errors.DATA, "image %s is damaged: %s has %d bytes, expected %d; take an older image"
                            % (shown, entry["name"], size, entry["size"]))


_BRIEF = {"generation": None, "created": None, "node": None, "bound": False, "compression": None, "plain_bytes": None}


def _describe(found, facts):
    """Add to what there is to say of an image (dict) what its manifest (dict) says."""
    found.update({name: facts.get(name, default) for name, default in _BRIEF.items()}, engine=facts["engine"]["name"],
                 engine_version=facts["engine"].get("version"))
    if facts["format"] != schema.COMPRESSED:
        found.update(compression=None, plain_bytes=None)


def _examine(image, found, path, descriptor, settings, thorough, prove, full):
    """Add to what there is to say of an image (dict, see look) what is in it (image, descriptor).

    :raises HookError: with what is wrong with it
    """
    name, shown = found["name"], found["path"]
    found["bytes"] = size_of(image)
    if name.startswith("."):
        over = generations.is_left_over(descriptor, name, patience(settings), time.time)
        found["state"] = LEFTOVER if over else WRITING
        return
    facts, wrong = manifest.read(image, shown), None
    _describe(found, facts)
    if full:
        found["manifest"] = facts
    if prove is not None:
        try:
            prove(facts, shown)
            found["authentic"] = True
        except HookError as error:
            found["authentic"], wrong = False, (REFUSED, error.sentence)  # itself it would keep the manifest in memory
    there = os.fstat(descriptor)
    owner, job_id = account_of(there.st_uid, there.st_gid), find_job_id(os.path.basename(path))
    manifest.check_place(facts, job_id, owner, name, shown)
    _check_sizes(image, facts, shown)
    if thorough:
        manifest.check_files(image, facts, shown)
    if wrong:
        raise HookError(*wrong)


def _image(path, descriptor, name, changed, settings, thorough, prove, full):
    """Return what there is to say of one image (dict, see look)."""
    shown = os.path.join(path, name)
    found = dict(_BRIEF, name=name, path=shown, state=WHOLE, code=0, problem="", bytes=0, engine=None, engine_version=None, authentic=None,
                 changed=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(changed)))
    try:
        image = location.open_image(descriptor, name, shown)
        try:
            _examine(image, found, path, descriptor, settings, thorough, prove, full)
        finally:
            os.close(image)
    except OSError as error:
        found.update(state=DAMAGED, code=SYSTEM, problem="image %s cannot be looked at: %s" % (shown, error.strerror))
    except HookError as error:
        found.update(state=REFUSED_HERE if error.code == REFUSED else DAMAGED, code=error.code, problem=error.sentence)
    except MemoryError:
        raise
    except Exception as error:  # pylint: disable=broad-except; one image must not hide the others
        found.update(state=DAMAGED, code=SYSTEM, problem="image %s cannot be looked at: %s: %s"
                     % (shown, type(error).__name__, ascii(str(error))[1:-1][:200]))
    return found


def patience(settings):
    """Return how old a hidden directory of another node must be to be left over (int, seconds); the engine has that long to write."""
    return 2 * settings["engine_timeout"]


def look(path, descriptor, settings, thorough=False, wanted=None, prove=None, full=False):
    """As the owner: return what is in a job's directory.

    :param path: the directory (str)
    :param descriptor: its descriptor
    :param settings: dict from config.load
    :param thorough: read every byte (bool)
    :param wanted: names of images (set of str), default all
    :param prove: called with a manifest and its image's path; raises HookError when root did not seal it; None where that cannot be told
    :param full: with the manifests, for few images (bool)
    :returns: {"job": str, "path": str, "images": list of {"name", "path", "state", "code", "problem", "bytes", "changed", "authentic",
        and of the manifest, or None: "generation", "created", "node", "bound", "compression", "plain_bytes", "engine", "engine_version";
        with full "manifest", if it can be read}}
    """
    names = [(name, there) for name, there in _subdirectories(descriptor) if wanted is None or name in wanted]
    if len(names) > MOST:
        raise HookError(SYSTEM, "there are more than %d images in %s" % (MOST, path))
    return {"job": find_job_id(os.path.basename(path)), "path": path,
            "images": [_image(path, descriptor, name, there.st_mtime, settings, thorough, prove, full) for name, there in names]}


def tidy(path, descriptor, settings, dry_run):
    """As the owner: remove from a job's directory what crashed hooks have left, and the images beyond the number to be kept.

    :param path, descriptor, settings: see look
    :param dry_run: only say what would be removed (bool)
    :returns: list of {"kind", "job", "path", "bytes", "action"}
    """
    job_id = find_job_id(os.path.basename(path))
    entries = look(path, descriptor, settings)["images"]
    found = generations.list_images(descriptor, job_id)
    # As many as the job itself asked for with qsub -c depth=N.
    wanted = found[0].manifest.get("depth") if found else None
    keep = wanted if isinstance(wanted, int) and wanted > 0 else settings["depth"]
    life = incarnation.read(descriptor, job_id)
    doomed = {"leftover": [entry["name"] for entry in entries if entry["state"] == LEFTOVER],
              "image": generations.list_superfluous(descriptor, job_id, keep, life)}
    sizes = {entry["name"]: entry["bytes"] for entry in entries}
    action = dict.fromkeys(doomed["leftover"] + doomed["image"], "would be removed")
    if not dry_run:
        gone = set(generations.sweep_leftovers(descriptor, patience(settings)))
        action.update({name: "removed" if name in gone else "not removed: it could not be, or a hook is at work on it"
                       for name in doomed["leftover"]})
        try:
            gone = set(generations.prune_images(descriptor, job_id, keep, life))
            action.update(dict.fromkeys(gone, "removed"))
        except HookError as error:
            action.update(dict.fromkeys(doomed["image"], "not removed: " + error.sentence))
    return [{"kind": kind, "job": job_id, "path": os.path.join(path, name), "bytes": sizes.get(name, 0), "action": action[name]}
            for kind in ("leftover", "image") for name in doomed[kind]]
