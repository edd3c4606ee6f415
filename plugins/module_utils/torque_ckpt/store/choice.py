"""Which image a job is restarted from.

That is the one that pbs_mom names, unless the same life of the job (incarnation.py) has newer ones and kept running after each of
them: its node has failed, and the server had not heard of them. When the last one is that of a hold, somebody has chosen an older one
(qalter -W checkpoint_name). When the one that is named is gone, pruned since or removed by its owner, it is the newest whole one. One
that is named and damaged is refused: it may be only this node that cannot read it.
"""
import os

from ..errors import HookError, TEMPORARY, quote_name
from ..image import manifest
from ..telemetry import syslog
from . import generations, location

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable


def _is_good(job: "Any", call: "Any", directory: int, prove: "Callable[[dict, str], None]") -> bool:
    """Whether the image that a Call of a Job names is whole, each byte of it, root's, and for this node."""
    image_path = os.path.join(call.directory, call.name)
    try:
        image = location.open_image(directory, call.name, image_path)
        try:
            manifest.check_files(image, manifest.verify_manifest(image, call, job.user, image_path, prove), image_path)
        finally:
            os.close(image)
    except HookError as error:
        if error.code == TEMPORARY:
            raise
        syslog.log_event("restart", job=call.job_id, outcome="image not taken", sentence=repr(error.sentence))
        return False
    return True


def _is_gone(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except OSError:
        pass  # opening it will report why
    return False


def _follows(image: generations.Image, named: generations.Image, life: "dict | None") -> bool:
    """Whether an image was created after another by the same life, or by one (incarnation) that continues from that very one.

    In a store of the node's own the incarnation may be one that was on this node before and continued elsewhere.
    """
    maker = image.manifest.get("incarnation")
    return image.generation > named.generation and (maker == named.manifest.get("incarnation") or
                                                    life is not None and (maker, named.generation) == (life["id"], life["generation"]))


def choose(job: "Any", directory: int, life: "dict | None", prove: "Callable[[dict, str], None]") -> "tuple[Any, str]":
    """As the user: return the contract.Call with the name of the image to take, and why it is not the one that it named (empty if it is).

    :param job: preflight.Job
    :param directory: descriptor of the job's directory
    :param life: the incarnation of the job's life before this restart, None if it is unknown
    :param prove: see manifest.verify_manifest
    :raises HookError: TEMPORARY when this node lacks the key of one that might be taken
    """
    call = job.call
    images = generations.list_images(directory, call.job_id)
    named = next((image for image in images if image.name == call.name), None)
    if named is None and not _is_gone(directory, call.name):
        return call, ""
    wanted = [image for image in images if generations.belongs_to(image, life) and (named is None or _follows(image, named, life))]
    if named is not None and any(image.manifest.get("held") is not False for image in wanted):
        return call, ""
    for image in wanted:
        if not image.whole:
            continue
        alternative = call._replace(name=image.name)
        if _is_good(job, alternative, directory, prove):
            return alternative, _explain_choice(call.name, image, named is None)
    return call, ""


def _explain_choice(name: str, image: generations.Image, gone: bool) -> str:
    created = quote_name(str(image.manifest.get("created")))
    if not gone:
        return "restarted from image %s of %s, newer than %s, of which the server knew" % (image.name, created, name)
    older = generations.get_epoch(image.name) < generations.get_epoch(name)
    return "restarted from image %s of %s, because %s is gone%s" % (
        image.name, created, name, "; it is older: what the job did since is done again" if older else "")
