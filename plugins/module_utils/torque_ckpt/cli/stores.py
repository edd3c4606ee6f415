"""The images in this host's stores, as far as the caller may see them: root sees all, a user his own."""
import functools
import os

from ..errors import HookError, NO_INPUT, USAGE
from ..image import seal
from ..store import catalog, location
from ..torque.names import find_job_id, get_directory_name, get_job_number, get_name_on_disk, is_job_id

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable, Optional
    from ..system.privilege import User


def describe_image(store: dict, user: "User", job_id: str, entry: dict) -> dict:
    """Return what --json prints of an image; parser.IMAGE_KEYS names the keys."""
    fields = {name: entry[name] for name in ("path", "state", "problem", "generation", "bytes", "compression", "plain_bytes", "engine",
                                             "engine_version", "node", "bound", "key", "authentic")}
    fields.update({name: entry[name] for name in ("nodes", "why") if name in entry})
    return dict(fields, job=job_id, owner=user.name, uid=user.uid, image=entry["name"], store=store["id"],
                created=entry["created"] or entry["changed"])


class Stores:
    """The images in this host's stores, as far as we may see them.

    :param settings: from config.load_settings
    """

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.problems: "list[str]" = []
        self.keys: "seal.Keys | None" = None
        if os.geteuid() == 0:
            try:
                self.keys = seal.Keys(settings["key_path"]) if os.path.lexists(settings["key_path"]) else None
            except HookError as error:
                self.problems.append("images cannot be authenticated: %s" % error.sentence)

    def list_images(self, only: "Optional[Callable[[str], bool]]" = None, also: "Iterable[str]" = (), wanted: "set[str] | None" = None,
                    thorough: bool = False, extract: "Callable[[dict, dict], dict] | None" = None) -> "list[tuple[dict, dict]]":
        """Return [(what --json prints of an image, its entry of catalog.examine_job_directory), ...], by job and age.

        :param only, also: see catalog.map_job_directories
        :param wanted: names of images, default all
        :param thorough: read every byte
        :param extract: called with the store and each manifest that can be read, returns what else the image's entry has
        """
        check_seal = seal.ask_to_verify if self.keys is not None else None

        def read_image(store: dict, path: str, descriptor: int) -> dict:
            return catalog.examine_job_directory(path, descriptor, self.settings, thorough, wanted, check_seal,
                                                 functools.partial(extract, store) if extract else None)

        def answer_question(question: list) -> None:
            _kind, facts, image_path = question
            seal.check_seal(self.keys or [], facts, image_path)

        pairs: "list[tuple[dict, dict]]" = []
        for store in self.settings["stores"]:
            try:
                location.check_mounted(store)
                jobs = catalog.map_job_directories(store, functools.partial(read_image, store), self.problems, only, also, answer_question,
                                                   None if thorough else catalog.DEADLINE)
            except HookError as error:
                self.problems.append(error.sentence)
                continue
            pairs += [(describe_image(store, user, job["job"], entry), entry) for user, job in jobs for entry in job["images"]]
        return sorted(pairs, key=lambda pair: (int(get_job_number(pair[0]["job"])), pair[0]["job"], pair[0]["generation"] or 0,
                                               pair[0]["created"], pair[0]["image"]))

    def select_images(self, wanted: str, thorough: bool = False,
                      extract: "Callable[[dict, dict], dict] | None" = None) -> "list[tuple[dict, dict]]":
        """Return the images that wanted names, as list_images() does: of a job, of a name or at a path.

        :raises HookError: NO_INPUT when there is none, USAGE when it names several jobs
        """
        if "/" in wanted:
            path = os.path.abspath(wanted)
            is_directory = find_job_id(os.path.basename(path)) is not None
            directory = path if is_directory else os.path.dirname(path)
            pairs = self.list_images(lambda job: job == directory, [os.path.basename(directory)],
                                     None if is_directory else {os.path.basename(path)}, thorough, extract)
        elif is_job_id(wanted):
            def is_wanted(job: str) -> bool:
                job_id = find_job_id(os.path.basename(job)) or ""
                return get_name_on_disk(wanted) in map(get_name_on_disk, (job_id, job_id.partition(".")[0]))
            pairs = self.list_images(is_wanted, [get_directory_name(wanted)], None, thorough)
        else:
            pairs = self.list_images(None, (), {wanted}, thorough)
        jobs = sorted({image["job"] for image, _entry in pairs})
        if not pairs:
            raise HookError(NO_INPUT, "there is no image %s in the stores of this host (%s)%s; see torque-ckpt list for those that there "
                            "are%s" % (ascii(wanted), ", ".join(store["path"] for store in self.settings["stores"]),
                                       "" if os.geteuid() == 0 else " that is yours",
                                       "".join("; " + problem for problem in self.problems)))
        if len(jobs) > 1:
            raise HookError(USAGE, "%s means several jobs (%s); name one in full" % (ascii(wanted), ", ".join(jobs)))
        return pairs
