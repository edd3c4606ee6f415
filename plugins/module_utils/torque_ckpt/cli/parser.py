"""The command line of torque-ckpt as data. Its parser, manual page, completion and documentation are generated from it."""
import argparse

from ..errors import HookError, MEANINGS, USAGE
from ..store import catalog
from ..version import VERSION

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, NoReturn

FOUND_WRONG = 1
"""Exit code of status, selftest and check when they ran and something is not as it should be."""

CODES = (
    (0, "Done; what was checked is in order."),
    (FOUND_WRONG, "Done, but something is wrong: an image could not be read (list, show), the node is set up "
     "wrongly (status), the engine fails (selftest), or something stands in the way of a checkpoint (check); the output says what."),
) + tuple(sorted(MEANINGS.items()))
"""Exit codes and what they mean; those of failures are in errors.py."""

STATES = (
    (catalog.WHOLE, "every file is there in its size; after verify, with its content"),
    (catalog.DAMAGED, "a file is missing, of another size or (verify) of another content, or the manifest is not one that hooks write"),
    (catalog.REFUSED_HERE, "of a format that the hooks of this host do not read, of another job or name than its place, or not sealed "
     "with a key of this site"),
    (catalog.WRITING, "a hook is at work on it"),
    (catalog.LEFTOVER, "what a hook that was killed has left of an image; it is never restarted, and prune removes it"),
)
"""States of an image and what they mean."""

IMAGE_KEYS = (
    ("job", "id of the job"), ("owner", "name of the job's owner"), ("uid", "the owner's uid"), ("image", "the image's name"),
    ("path", "the image, by absolute path"), ("store", "id of its store"), ("state", "see STATES OF AN IMAGE"),
    ("problem", "why it is not whole, or empty"),
    ("generation", "its number among the job's images, or null"), ("created", "when, in UTC"), ("bytes", "its size in the store"),
    ("compression", "name of the program that compressed it, or null"), ("plain_bytes", "its size decompressed, or null"),
    ("engine", "name of the engine that wrote it, or null"), ("engine_version", "the engine's version, or null"),
    ("node", "where it was written, or null"), ("bound", "whether it restarts on that node only"),
    ("key", "id of the key that its manifest names as that of its seal, or null"),
    ("authentic", "whether root's hooks of this site sealed it; null if that is not known, as for users, who may not read the key"),
)
"""Keys of an image in what --json prints."""

COMMANDS = (
    ("list", "list the images in the stores of this host",
     "Reads no image, so that it is quick: the state goes by the manifests and the sizes of the files.",
     ("nodes",), "images: list of images, with --nodes also nodes (how many can restart it) and why (what most of the others lack); "
     "problems: list of sentences"),
    ("show", "show what is in an image and on which nodes it can be restarted",
     "Of a job the newest whole image is shown. The nodes are those of the inventory, as the role checkpoint_hooks has noted them.",
     ("image",), "image: the image; manifest: its manifest; nodes: list of {node, fits, why}; problems"),
    ("verify", "read every byte of an image, or of all images of a job, and compare it with the manifest",
     "Root also verifies that the hooks wrote it; a user cannot read the key for that, which is reported.",
     ("image",), "images: list of images; problems"),
    ("prune", "remove what crashed hooks have left, and images beyond the number to be kept",
     "The newest image of a job that is whole is never removed, and nothing that a hook is working on. Root does it for all users, "
     "as them; a user for himself.",
     ("orphans", "dry_run"), "removed: list of {kind, job, owner, path, bytes, action}, kind being leftover, image or orphan; problems"),
    ("check", "list what stands in the way of a checkpoint of a job that runs on this host",
     "Looks at the job's processes and stops none of them. What a process opens later the checkpoint reports. A user may look at his own "
     "jobs, root at all. The job must run on this host: qstat -f shows where it runs (exec_host).",
     ("job", "pid"), "job: its id, or null; pid: its root process; engine: name of the engine; obstacles: list of {kind, pid, name, "
     "resource, advice, sentence}; problems"),
    ("node-down", "report the jobs of nodes that are down, or queue them again, to continue from their images on other nodes",
     "The setting node_down_action decides. A job counts when one of its nodes has been down without a report for node_down_seconds, "
     "as seen by this program, which a timer starts each minute, and when its image is whole; if its first node answers, only with "
     "TORQUE's patch sister-crash, else only with node-crash. Needs root, and asks the server first; nothing is done without its answer, "
     "nor while more than node_down_share percent of the nodes are down.",
     ("dry_run",), "jobs: list of {job, node, seconds, image, action}; problems"),
    ("status", "show how this node is set up, which jobs were restarted on it and what failed last",
     "The last failures and the key are shown to root only.",
     (), "node, versions, engine, stores, key, jobs, failures, problems"),
    ("selftest", "freeze and revive a small process tree as an ordinary user",
     "The proof of level L1, as validate.yml does it. Needs root.",
     ("user", "directory", "timeout"), "passed, cause, engine, counter_before, counter_after, exit_status, image_bytes, phases"),
)
"""Name, what it does, more of that, its arguments, the keys of what --json prints."""

ARGUMENTS: "dict[str, tuple[tuple[str, ...], dict[str, Any]]]" = {
    "image": (("image",), {"metavar": "JOB|IMAGE", "help": "a job's id (12.head, or 12 where that is clear), an image's name or its path"}),
    "job": (("job",), {"metavar": "JOB", "nargs": "?", "help": "a job's id (12.head, or 12 where that is clear)"}),
    "pid": (("--pid",), {"type": int, "metavar": "PID", "help": "look at this process and all that it has started, instead of at a job"}),
    "nodes": (("--nodes",), {"action": "store_true", "help": "count the nodes that can restart each image, by what the role "
                             "checkpoint_hooks has noted of them"}),
    "orphans": (("--orphans",), {"action": "store_true", "help": "remove the images of jobs, too, that the server has not known for longer "
                                 "than the grace time; needs root, and asks the server first"}),
    "dry_run": (("--dry-run",), {"action": "store_true", "help": "show what would be done, and do nothing"}),
    "user": (("--user",), {"default": "nobody", "help": "whom to be (default: nobody)"}),
    "directory": (("--directory",), {"default": "/var/tmp", "help": "where the image is written (default: /var/tmp)"}),
    "timeout": (("--timeout",), {"type": int, "default": 30, "metavar": "SECONDS", "help": "for each step (default: 30)"}),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> "NoReturn":
        raise HookError(USAGE, "%s; see %s --help" % (message, self.prog))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = _Parser(prog="torque-ckpt", description="Look at the images of checkpointed TORQUE jobs, and keep house among them.")
    top.add_argument("--version", action="version", version="torque-ckpt %s" % VERSION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, brief, more, arguments, keys in COMMANDS:
        subparser = commands.add_parser(name, help=brief, description="%s. %s" % (brief[0].upper() + brief[1:], more),
                                        epilog="Keys of --json: %s." % keys)
        for argument in arguments:
            flags, options = ARGUMENTS[argument]
            subparser.add_argument(*flags, **options)
        subparser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return top
