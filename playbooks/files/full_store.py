# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Have no free space where the images of a job are on this node, from when a round trip requests that by a file until it removes the file.

    full_store.py USER FILE STORE SECONDS

The file has the directory's name. FILE.full answers it: an empty line, or why there is space. A small file system is mounted over that
directory alone, so others see nothing of it. After the seconds, or on SIGTERM, all is as before, whatever became of the round trip.
"""
import ctypes
import os
import pwd
import re
import signal
import sys
import time

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable

SOURCE, SIZE = "ckpt-torque-validate", "64k"
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")
PAUSE = 0.2
"""Between two looks at the file, in seconds."""

_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class NotFilledError(Exception):
    """There is space; the text says why."""


def take_rights(user: pwd.struct_passwd) -> None:
    """Use files with a user's rights from now on, as root has none where it is squashed.

    The process stays root's: it may mount, and the user can neither trace nor end it.
    """
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    _LIBC.setfsgid(user.pw_gid)
    _LIBC.setfsuid(user.pw_uid)
    if _LIBC.setfsuid(-1) != user.pw_uid:
        sys.exit("cannot use files with the rights of %s: run this as root" % user.pw_name)


def fill(user: pwd.struct_passwd, store: str, name: str) -> int:
    """Mount the file system over the user's directory of this name.

    The user can replace each part of a path at any time. So the directory is entered first, then looked at, and the file system is mounted
    where the process is.

    :return: a descriptor of the file system's directory, which leads there whatever becomes of the path
    :raises NotFilledError: when that is no directory of his in the store
    """
    if not NAME.match(name):
        raise NotFilledError("%s is no directory of a job's images" % name)
    store, node = os.path.realpath(store), os.uname()[1]
    if not any(_enter(user, os.path.join(parent, name)) for parent in (store, os.path.join(store, user.pw_name))):
        raise NotFilledError("%s has no directory %s in %s on %s" % (user.pw_name, name, store, node))
    options = "size=%s,mode=700,uid=%d,gid=%d" % (SIZE, user.pw_uid, user.pw_gid)
    if _LIBC.mount(SOURCE.encode(), b".", b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode()):
        raise NotFilledError("cannot mount a file system over %s on %s: %s" % (name, node, os.strerror(ctypes.get_errno())))
    below = os.stat(".").st_dev  # what is mounted on it is seen from the directory above only
    try:
        mounted = os.open(os.path.join("..", os.path.basename(os.getcwd())), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        if os.fstat(mounted).st_dev == below:
            raise OSError(0, "it was moved away")
    except OSError as error:
        raise NotFilledError("a file system was mounted over %s in %s on %s, and %s closed the way to it (%s); unmount it"
                             % (name, store, node, user.pw_name, error.strerror))
    os.chdir("/")
    return mounted


def _enter(user: pwd.struct_passwd, path: str) -> bool:
    """Make the directory the current one; return whether that is the user's and has this path."""
    try:
        os.chdir(path)
        return os.getcwd() == path and os.stat(".").st_uid == user.pw_uid
    except OSError:
        return False


def unmount(mounted: int) -> None:
    """Unmount a file system (from fill).

    :raises OSError: when it cannot
    """
    if _LIBC.umount2(b"/proc/self/fd/%d" % mounted, _MNT_DETACH):
        number = ctypes.get_errno()
        raise OSError(number, "cannot unmount: %s" % os.strerror(number), os.readlink("/proc/self/fd/%d" % mounted))


def read_request(path: str) -> str:
    """Return the name in the file, an empty one before that is there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # the user may have put a pipe there
    except OSError:
        return ""
    try:
        return os.read(descriptor, 1000).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def answer(path: str, text: str) -> None:
    """Write the answer to a request."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text + "\n")


def wait(look: "Callable[[], Any]", deadline: float) -> "Any":
    """Return what look() returns as soon as that is true; None at the deadline or on SIGTERM, which has to be blocked."""
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        if signal.sigtimedwait({signal.SIGTERM}, PAUSE):
            break
    return None


def main(user_name: str, request: str, store: str, seconds: str) -> None:
    """Wait for the request, do what it says, and undo that."""
    deadline = time.monotonic() + float(seconds)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    user = pwd.getpwnam(user_name)
    take_rights(user)
    name = wait(lambda: read_request(request), deadline)
    if name is None:
        return
    mounted, fault = None, ""
    try:
        mounted = fill(user, store, name)
    except NotFilledError as error:
        fault = str(error)
    try:
        answer(request + ".full", fault)
        wait(lambda: not os.path.lexists(request), deadline)
    finally:
        if mounted is not None:
            unmount(mounted)
    for path in (request, request + ".full"):
        try:
            os.unlink(path)
        except OSError:
            pass  # the round trip removes its request


if __name__ == "__main__":
    main(*sys.argv[1:])
