"""Images of jobs that the server no longer knows.

With $remote_checkpoint_dirs TORQUE never removes an image. What is removed here: the directory of a job whose id is this
server's, when the server itself says that it does not know the job, and that for longer than the grace time. Without an
answer of the server nothing is removed. The first time that a job was seen unknown is kept in a file of root's.
"""
import json
import os
import stat
import time

from ..errors import HookError, SYSTEM
from ..store import catalog, location
from ..system import rootfiles
from ..system.dirfd import DIRECTORY, names_in
from ..torque.names import find_job_id, get_job_number
from ..torque.commands import Commands

STATE = "orphans.json"

DAY = 86400


class Server(Commands):
    """pbs_server, asked by TORQUE's commands.

    name     str: what its job ids end in
    numbers  set of str: the numbers of the jobs that it lists

    :param commands: directory of TORQUE's commands (str)
    :raises HookError: NO_SERVER when it does not answer
    """

    def __init__(self, commands):
        super().__init__(commands, "nothing was removed")
        status, said, error = self.run("qstat", "-B", "-f")
        names = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Server:")]
        if status != 0 or len(names) != 1 or not names[0]:
            raise self.silent("qstat -B -f", status, error)
        self.name = names[0]
        status, said, error = self.run("qselect")
        if status != 0:
            raise self.silent("qselect", status, error)
        self.numbers = {get_job_number(line.strip()) for line in said.splitlines() if line.strip()}

    def lists(self, job_id):
        """Whether the job (str), or one that it is a part of, is among those the server lists."""
        return get_job_number(job_id) in self.numbers

    def denies(self, job_id):
        """Whether the server says that it does not know this job (str).

        :raises HookError: NO_SERVER when it says something else than yes or no
        """
        status, _said, error = self.run("qstat", "-f", job_id)
        if status != 0 and "Unknown Job Id" not in error:
            raise self.silent("qstat -f " + job_id, status, error)
        return status != 0


def _recall(settings):
    try:
        with open(os.path.join(settings["state_directory"], STATE)) as stream:
            found = json.load(stream)
        return {str(path): float(since) for path, since in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # then the grace time begins anew


def _remember(directory, unknown):
    try:
        rootfiles.replace_file(directory, STATE, json.dumps(unknown, indent=1, sort_keys=True) + "\n", 0o600)
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; nothing was removed" % (STATE, error.strerror))


def _empty(descriptor):
    """As the owner: remove all that is in a directory (descriptor), never what a link leads to."""
    for name in names_in(descriptor):
        if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            inner = os.open(name, DIRECTORY, dir_fd=descriptor)
            try:
                _empty(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=descriptor)
        else:
            os.unlink(name, dir_fd=descriptor)


def _rmdir(place, path, by_root):
    """Remove an empty job's directory, as its owner or as root; return why it stays (str), empty when it went."""
    parent, name = os.path.split(path)
    top = place["path"].rstrip("/")
    try:
        descriptor = os.open(top, DIRECTORY) if parent == top else location.open_job_directory(place, parent)
        try:
            there = os.fstat(descriptor)
            if by_root and (there.st_uid != 0 or there.st_mode & 0o022):
                return "%s is not root's alone" % parent
            os.rmdir(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror
    return ""


def remove(place, path, user):
    """Remove a job's directory with all that is in it, as its owner.

    :param place: the store that it is in (dict)
    :param path: the directory (str)
    :param user: its owner (privilege.User)
    :raises HookError: SYSTEM when something of it stays
    """
    def work():
        descriptor = location.open_job_directory(place, path)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise HookError(SYSTEM, "%s is not %s's any more; it was left alone" % (path, user.name))
            _empty(descriptor)
            return _rmdir(place, path, by_root=False)
        except OSError as error:
            raise HookError(SYSTEM, "cannot remove all of %s: %s" % (path, error.strerror))
        finally:
            os.close(descriptor)

    # Where the directory above is root's, the owner may empty his own but not remove it.
    why = catalog.run_as_owner(user, work) and _rmdir(place, path, by_root=True)
    if why:
        raise HookError(SYSTEM, "%s is empty now, but cannot be removed: %s" % (path, why))


def _candidates(settings, server, problems):
    """Yield (place, User, path, job id, newest change, bytes) of each directory whose job is this server's and not listed."""
    def wanted(path):
        job_id = find_job_id(os.path.basename(path))
        return job_id.partition(".")[2] == server.name and not server.lists(job_id)

    def look(path, descriptor):
        return [path, catalog.find_last_change(descriptor), catalog.measure_size(descriptor)]

    for place in settings["stores"]:
        location.check_mounted(place)
        for user, (path, changed, size) in catalog.map_job_directories(place, look, problems, wanted):
            yield place, user, path, find_job_id(os.path.basename(path)), changed, size


def prune(settings, dry_run, say, problems, now=time.time):
    """Remove the images of jobs that the server no longer knows.

    :param settings: dict from config.load
    :param dry_run: only say what would be removed (bool)
    :param say: called with a fact (dict: kind, job, owner, path, bytes, action) for each directory in question; action is one
        of "removed", "would be removed", "waits until ..." and "not removed: ..."
    :param problems: list to which sentences are added
    :raises HookError: NO_SERVER when the server does not answer, CONFIG when a store is not there; nothing was removed then
    """
    server = Server(settings["torque_directory"])
    before, unknown, grace = _recall(settings), {}, settings["orphan_grace_days"] * DAY
    candidates = list(_candidates(settings, server, problems))
    for _place, _user, path, job_id, _changed, _size in list(candidates):
        if server.denies(job_id):
            unknown[path] = min(before.get(path, now()), now())  # a clock that went back must not shorten the grace time
    if not dry_run:
        _keep(settings, unknown)
    for place, user, path, job_id, changed, size in candidates:
        if path not in unknown:
            continue
        fact = {"kind": "orphan", "job": job_id, "owner": user.name, "path": path, "bytes": size}
        ripe = max(unknown[path], min(changed, now())) + grace
        if ripe > now():
            say(dict(fact, action="waits until %s" % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ripe))))
        elif dry_run:
            say(dict(fact, action="would be removed"))
        else:
            try:
                remove(place, path, user)
                del unknown[path]
                say(dict(fact, action="removed"))
            except HookError as error:
                problems.append(error.sentence)
                say(dict(fact, action="not removed: " + error.sentence))
    if not dry_run:
        _keep(settings, unknown)


def _keep(settings, unknown):
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
    except OSError as error:
        raise HookError(SYSTEM, "cannot use %s: %s; nothing was removed" % (settings["state_directory"], error.strerror))
    try:
        _remember(directory, unknown)
    finally:
        os.close(directory)
