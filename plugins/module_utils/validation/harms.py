# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is done to the image of a held job so that its restart has to fail, and how it is undone: one entry of HARMS for each case."""

import collections
import contextlib
import errno
import json
import os
import shutil
import stat

from ..torque_ckpt.selftest.roundtrip import RoundTripError
from ..torque_ckpt.system import dirfd
from .case import NotPossibleError

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterator
    from .job import JobRoundTrip

Harm = collections.namedtuple("Harm", "reason inflict repair by_root")
"""
reason   str: what the job's comment must contain
inflict  called with the paths of the image and of what may hold things meanwhile
repair   called with the same
by_root  bool: whether root calls both, with the image's path and its owner's uid; repair then takes what inflict has returned, too. The
         job's owner calls them otherwise
"""


def _find_largest_file(image: str) -> str:
    return max((os.path.join(image, name) for name in os.listdir(image) if name != "manifest.json"), key=os.path.getsize)


def _keep_copy(path: str, aside: str) -> None:
    os.mkdir(aside)
    shutil.copy2(path, aside)


def _restore_content(image: str, aside: str) -> None:
    """Write what was kept back into the same file; one that is gone stays gone, which is for the case to notice."""
    for name in os.listdir(aside):
        path = os.path.join(image, name)
        if os.path.exists(path):
            with open(os.path.join(aside, name), "rb") as source, open(path, "r+b") as stream:
                shutil.copyfileobj(source, stream)
                stream.truncate()


def _invert_first_byte(image: str, aside: str) -> None:
    path = _find_largest_file(image)
    _keep_copy(path, aside)
    with open(path, "r+b") as stream:
        byte = stream.read(1)
        stream.seek(0)
        stream.write(bytes([byte[0] ^ 0xff]))


def _truncate_file(image: str, aside: str) -> None:
    path = _find_largest_file(image)
    _keep_copy(path, aside)
    os.truncate(path, os.path.getsize(path) // 2)


def _change_manifest(image: str, aside: str) -> None:
    """Have the manifest name another time at which it was written."""
    path = os.path.join(image, "manifest.json")
    _keep_copy(path, aside)
    with open(path, "r+") as stream:
        changed = json.dumps(dict(json.load(stream), created="1970-01-01T00:00:00Z"))
        stream.seek(0)
        stream.write(changed)
        stream.truncate()


def _move_image(image: str, aside: str) -> None:
    shutil.move(image, aside)


def _move_image_back(image: str, aside: str) -> None:
    if not os.path.exists(image):
        shutil.move(aside, image)


@contextlib.contextmanager
def _open_directory(path: str) -> "Iterator[int]":
    directory = os.open(path, dirfd.DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def _change_owner(directory: int, name: str, known: os.stat_result, uid: int) -> None:
    """As root: change the owner of a file in directory (descriptor) if it still is the known one; its former owner can exchange it."""
    descriptor = dirfd.open_file(directory, name)
    try:
        if not os.path.samestat(os.fstat(descriptor), known):
            raise RoundTripError("the file %s of the image was exchanged before root could change its owner; it was left as it is; nothing "
                                 "but its job may change an image" % name)
        os.fchown(descriptor, uid, -1)
    finally:
        os.close(descriptor)


def _stat_files(directory: int) -> "dict[str, os.stat_result]":
    """Return what is in directory (descriptor), by name."""
    return {name: os.stat(name, dir_fd=directory, follow_symlinks=False) for name in dirfd.list_directory(directory)}


def _give_file_away(image: str, uid: int) -> os.stat_result:
    """Return the status of the file that root has now."""
    try:
        with _open_directory(image) as directory:
            files = {name: status for name, status in _stat_files(directory).items() if name != "manifest.json"}
            name = max(files, key=lambda name: files[name].st_size)
            if not stat.S_ISREG(files[name].st_mode) or files[name].st_uid != uid or files[name].st_nlink != 1:
                raise RoundTripError("the largest file of the image, %s, cannot be given to root: it is not a regular file of uid %d with "
                                     "one name; nothing was changed; nothing but its job may change an image" % (name, uid))
            _change_owner(directory, name, files[name], 0)
            return files[name]
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        raise NotPossibleError("root may not change owners in the store (%s)" % error.strerror)


def _give_file_back(image: str, uid: int, given: os.stat_result) -> None:
    with _open_directory(image) as directory:
        for name, status in _stat_files(directory).items():
            if os.path.samestat(status, given):
                _change_owner(directory, name, given, uid)


HARMS = {
    "failed_restart": Harm("is damaged", _invert_first_byte, _restore_content, False),
    "truncated_image": Harm("is damaged", _truncate_file, _restore_content, False),
    "changed_manifest": Harm("that root's hooks did not write, or that was changed since", _change_manifest, _restore_content, False),
    "foreign_file": Harm("Permission denied", _give_file_away, _give_file_back, True),
    "deleted_image": Harm("No such file or directory", _move_image, _move_image_back, False),
}
"""By the name of the case."""


def inflict_harm(trip: "JobRoundTrip", harm: Harm) -> "os.stat_result | None":
    """Do it to the trip's last image; return what repair_image takes."""
    image, aside = _name_paths(trip)
    return harm.inflict(image, trip.user.uid) if harm.by_root else trip.as_user(lambda: harm.inflict(image, aside))


def repair_image(trip: "JobRoundTrip", harm: Harm, inflicted: "os.stat_result | None") -> None:
    """Undo it, so that the job can be restarted."""
    image, aside = _name_paths(trip)
    if harm.by_root:
        harm.repair(image, trip.user.uid, inflicted)
    else:
        trip.as_user(lambda: harm.repair(image, aside))


def _name_paths(trip: "JobRoundTrip") -> "tuple[str, str]":
    return trip.images[-1], os.path.join(trip.work, "aside")
