"""Images of jobs that the server no longer knows.

With $remote_checkpoint_dirs TORQUE never removes an image. This module removes the directory of a job whose id is this
server's, if the server has answered for longer than the grace time that it does not know the job. Without an
answer of the server nothing is removed. When a job was first seen unknown is kept in a file of root's.
"""
import bisect
import json
import os
import stat
import time
from collections import namedtuple

from ..errors import HookError, SYSTEM
from ..store import catalog, location
from ..system import rootfiles
from ..system.dirfd import DIRECTORY, list_directory
from ..torque.names import find_job_id, get_job_number
from ..torque.server import Server

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable, Iterator
    from ..system.privilege import User

STATE = "orphans.json"

DAY = 86400

NOTHING, DONE = "nothing was removed", "what is reported was done"

ASKED = 2000
"""About so many directories of one owner a run asks pbs_server, each of which costs a command or two."""

LONGEST = catalog.DEADLINE
"""Once directories of one owner have taken so long to remove (seconds), his others wait for the next run."""


class Candidate(namedtuple("Candidate", "store user path job_id changed size")):
    """A directory whose job is this server's and not listed.

    store    dict: the store that it is in
    user     User: its owner
    path     str
    job_id   str
    changed  float: the newest change in it (seconds since the epoch)
    size     int: bytes
    """


class State(namedtuple("State", "unknown turns")):
    """What the state file holds.

    unknown  since when jobs have been unknown to the server (seconds since the epoch), by their directories' paths (dict)
    turns    the path that was asked about last, by the uid (str) of an owner of more directories than one run asks about (dict)
    """


def _read_state(settings: dict) -> State:
    """Return the State; an empty one, with which the grace time begins anew, when it cannot be read."""
    try:
        with open(os.path.join(settings["state_directory"], STATE)) as stream:
            state = json.load(stream)
        unknown, turns = (state["unknown"], state["turns"]) if "turns" in state else (state, {})  # older hooks wrote the first alone
        return State({str(path): float(since) for path, since in unknown.items()}, {str(uid): str(path) for uid, path in turns.items()})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return State({}, {})


def _write_state(settings: dict, state: State, consequence: str) -> None:
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
    except OSError as error:
        raise HookError(SYSTEM, "cannot use %s: %s; see to that directory; %s" % (settings["state_directory"], error.strerror, consequence))
    try:
        rootfiles.replace_file(directory, STATE, json.dumps(state._asdict(), indent=1, sort_keys=True) + "\n", 0o600)
    except OSError as error:
        raise HookError(SYSTEM, "cannot write %s: %s; see to that directory; %s"
                        % (os.path.join(settings["state_directory"], STATE), error.strerror, consequence))
    finally:
        os.close(directory)


def _empty_directory(descriptor: int) -> None:
    """As the owner: remove all that is in a directory (descriptor), never what a link leads to."""
    for name in list_directory(descriptor):
        if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            inner = os.open(name, DIRECTORY, dir_fd=descriptor)
            try:
                _empty_directory(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=descriptor)
        else:
            os.unlink(name, dir_fd=descriptor)


def _remove_empty_directory(store: dict, path: str, by_root: bool) -> str:
    """Remove an empty job's directory, as its owner or as root; return why it stays, empty when it is removed."""
    parent, name = os.path.split(path)
    top = store["path"]
    try:
        descriptor = os.open(top, DIRECTORY) if parent == top else location.open_job_directory(store, parent)
        try:
            status = os.fstat(descriptor)
            if by_root and (status.st_uid != 0 or status.st_mode & 0o022):
                return "%s is not root's alone" % parent
            os.rmdir(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def remove_job_directory(store: dict, path: str, user: "User") -> None:
    """Remove a job's directory with all that is in it, as its owner.

    :param store: the store that it is in
    :param path: the directory
    :param user: its owner
    :raises HookError: SYSTEM when something of it stays
    """
    def empty_and_remove() -> str:
        descriptor = location.open_job_directory(store, path)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise HookError(SYSTEM, "%s is not %s's any more; it was left alone, the next run looks at it again" % (path, user.name))
            _empty_directory(descriptor)
            return _remove_empty_directory(store, path, by_root=False)
        except OSError as error:
            raise HookError(SYSTEM, "cannot remove all of %s: %s; remove it by hand" % (path, error.strerror))
        finally:
            os.close(descriptor)

    # If the directory above is root's, the owner may empty his own but not remove it.
    reason = catalog.run_as_owner(user, empty_and_remove) and _remove_empty_directory(store, path, by_root=True)
    if reason:
        raise HookError(SYSTEM, "%s is empty now, but cannot be removed: %s; remove it by hand" % (path, reason))


def _get_job_id(path: str) -> str:
    """Return the id of the job whose directory this is; empty for another directory, which nothing here is called with."""
    return find_job_id(os.path.basename(path)) or ""


def _find_candidates(settings: dict, server: Server, problems: "list[str]") -> "Iterator[Candidate]":
    name, listed = server.read_name(), server.list_job_numbers()

    def is_candidate(path: str) -> bool:
        job_id = _get_job_id(path)
        return job_id.partition(".")[2] == name and get_job_number(job_id) not in listed

    def measure(path: str, descriptor: int) -> list:
        return [path, catalog.find_last_change(descriptor), catalog.measure_size(descriptor)]

    for store in settings["stores"]:
        location.check_mounted(store)
        for user, (path, changed, size) in catalog.map_job_directories(store, measure, problems, is_candidate):
            yield Candidate(store, user, path, _get_job_id(path), changed, size)


def choose_candidates(candidates: "Iterable[Candidate]", turns: "dict[str, str]", problems: "list[str]") -> "list[Candidate]":
    """Return the candidates of this run: all of an owner, or the next ASKED of them.

    :param turns: see State; brought up to date
    :param problems: a sentence is added for each owner who has more
    """
    owned: "dict[int, list[Candidate]]" = {}
    for candidate in candidates:
        owned.setdefault(candidate.user.uid, []).append(candidate)
    chosen, previous = [], dict(turns)
    turns.clear()
    for uid, ours in owned.items():
        ours.sort(key=lambda candidate: candidate.path)
        start = bisect.bisect([candidate.path for candidate in ours], previous.get(str(uid), ""))
        turn = (ours[start:] + ours[:start])[:ASKED]
        if len(turn) < len(ours):
            turns[str(uid)] = turn[-1].path
            problems.append("%s has %d directories of jobs that pbs_server does not list, and one run asks about %d of one owner; the next "
                            "runs look at the others" % (ours[0].user.name, len(ours), ASKED))
        chosen += turn
    return chosen


def _list_unknown(server: Server, chosen: "Iterable[Candidate]", remembered: "dict[str, float]", now: float) -> "dict[str, float]":
    """Ask the server about each of the chosen candidates; return since when which are unknown, see State.

    :param remembered: the same of the previous run
    """
    unknown = dict(remembered)
    for candidate in chosen:
        since = unknown.pop(candidate.path, now)
        if server.denies_job(candidate.job_id):
            unknown[candidate.path] = min(since, now)  # a clock that went back must not shorten the grace time
    return unknown


def prune_orphans(settings: dict, dry_run: bool, report: "Callable[[dict], None]", problems: "list[str]",
                  now: "Callable[[], float]" = time.time) -> None:
    """Remove the images of jobs that the server no longer knows.

    :param settings: from config.load_settings
    :param dry_run: only report what would be removed
    :param report: called with a fact (kind, job, owner, path, bytes, action) for each directory in question; action is one
        of "removed", "would be removed", "waits until ..." and "not removed: ..."
    :param problems: to which sentences are added
    :raises HookError: NO_SERVER when the server does not answer, CONFIG when a store is missing; nothing was removed then
    """
    server = Server(settings["torque_directory"], NOTHING)
    state, grace = _read_state(settings), settings["orphan_grace_days"] * DAY
    candidates = list(_find_candidates(settings, server, problems))
    chosen = choose_candidates(candidates, state.turns, problems)
    remembered = {candidate.path: state.unknown[candidate.path] for candidate in candidates if candidate.path in state.unknown}
    unknown = _list_unknown(server, chosen, remembered, now())
    state = state._replace(unknown=unknown)
    if not dry_run:
        _write_state(settings, state, NOTHING)
    spent: "dict[int, float]" = {}
    for store, user, path, job_id, changed, size in chosen:
        if path not in unknown:
            continue
        fact = {"kind": "orphan", "job": job_id, "owner": user.name, "path": path, "bytes": size}
        ripe = max(unknown[path], min(changed, now())) + grace
        if ripe > now():
            report(dict(fact, action="waits until %s" % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ripe))))
        elif dry_run:
            report(dict(fact, action="would be removed"))
        else:
            begun = time.monotonic()
            try:
                if spent.get(user.uid, 0) > LONGEST:
                    raise HookError(SYSTEM, "%s was left alone, because others of %s's took longer than %d seconds; the next run continues"
                                    % (path, user.name, LONGEST))
                remove_job_directory(store, path, user)
                del unknown[path]
                report(dict(fact, action="removed"))
            except HookError as error:
                problems.append(error.sentence)
                report(dict(fact, action="not removed: " + error.sentence))
            spent[user.uid] = spent.get(user.uid, 0) + time.monotonic() - begun
    if not dry_run:
        try:
            _write_state(settings, state, DONE)
        except HookError as error:
            problems.append(error.sentence)
