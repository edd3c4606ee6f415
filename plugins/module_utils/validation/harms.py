# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is done to the image of a held job so that its restart has to fail, and how it is undone: one entry of HARMS for each case."""

import collections
import errno
import json
import os
import shutil

from .needs import NotPossibleError

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable
    from .job import JobRoundTrip

Harm = collections.namedtuple("Harm", "reason inflict repair by_root")
"""
reason   str: what the job's comment must contain
inflict  called with the paths of the image and of what may hold things meanwhile
repair   called with the same
by_root  bool: whether root calls both; the job's owner does otherwise
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


def _give_file_away(image: str, _aside: str) -> None:
    path = _find_largest_file(image)
    try:
        os.chown(path, 0, -1)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        raise NotPossibleError("root may not change owners in the store (%s)" % error.strerror)


def _give_file_back(image: str, _aside: str) -> None:
    for name in os.listdir(image):
        path = os.path.join(image, name)
        if os.lstat(path).st_uid == 0:
            os.chown(path, os.stat(image).st_uid, -1)


HARMS = {
    "failed_restart": Harm("is damaged", _invert_first_byte, _restore_content, False),
    "truncated_image": Harm("is damaged", _truncate_file, _restore_content, False),
    "changed_manifest": Harm("that root's hooks did not write, or that was changed since", _change_manifest, _restore_content, False),
    "foreign_file": Harm("Permission denied", _give_file_away, _give_file_back, True),
    "deleted_image": Harm("No such file or directory", _move_image, _move_image_back, False),
}
"""By the name of the case."""


def inflict_harm(trip: "JobRoundTrip", harm: Harm) -> None:
    """Do it to the trip's last image."""
    _call(trip, harm, harm.inflict)


def repair_image(trip: "JobRoundTrip", harm: Harm) -> None:
    """Undo it, so that the job can be restarted."""
    _call(trip, harm, harm.repair)


def _call(trip: "JobRoundTrip", harm: Harm, work: "Callable[[str, str], None]") -> None:
    image, aside = trip.images[-1], os.path.join(trip.work, "aside")
    if harm.by_root:
        work(image, aside)
    else:
        trip.as_user(lambda: work(image, aside))
