"""The manual page, the shell completion and the documentation of torque-ckpt, out of torque_ckpt/cli/parser.py.

  command_docs.py --write   write them
  command_docs.py --check   fail when one is stale
"""
import argparse
import pathlib
import sys

import shtab

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "plugins/module_utils"))

from torque_ckpt import config  # noqa: E402
from torque_ckpt.cli import orphans, parser  # noqa: E402
from torque_ckpt.store import catalog  # noqa: E402

ROLE = TOP / "roles/checkpoint_hooks/files"
SEE_ALSO = "ckpt-torque(7), qstat(1B), qhold(1B), qrls(1B), criu(8)"
FILES = (
    ("hooks.json", "the configuration, beside which nodes.json and nodes/ hold what is known of the nodes (/etc/ckpt-torque)"),
    (config.DEFAULTS["key_path"], "the keys that prove an image; root's alone"),
    (config.DEFAULTS["state_directory"], "counters, last failures, and since when jobs have been unknown to the server; root's alone"),
)
ABOUT = (
    "Root sees the images of all users, and becomes their owner before it looks into their directories. A user sees what is his. "
    "Images are looked for in the stores of this host, in directories that are called like a job with .CK at the end and lie fewer "
    "than %d directories deep. Where a user cannot list a store, his own directory in it is looked at, and jobs that he names."
    % catalog.DEPTH)
ORPHANS = (
    "With $remote_checkpoint_dirs TORQUE removes no image. prune --orphans does: it asks the server for its name and its jobs; where "
    "it does not answer, nothing is removed. A job's directory is an orphan when the job's id ends in this server's name and the "
    "server says of this job that it does not know it. It is removed when that has been so for orphan_grace_days (%d by default), "
    "counted from when it was first seen or from the last change in the directory, whichever is later. It is removed as its owner, "
    "and no link is followed. One run asks about %d directories of one owner at most; the next ones look at the others."
    % (config.DEFAULTS["orphan_grace_days"], orphans.ASKED))


def arguments(names):
    """Yield how each argument is written (str) and what it means (str)."""
    for name in names:
        flags, options = parser.ARGUMENTS[name]
        metavar = options.get("metavar") or ("" if options.get("action") else flags[0].lstrip("-").upper())
        yield " ".join(filter(None, (flags[0] if flags[0].startswith("-") else "", metavar))), options["help"]
    yield "--json", "print JSON instead of text"


def synopsis(name, names):
    """Return how a command is called (str)."""
    optional = {options["metavar"] for _flags, options in map(parser.ARGUMENTS.get, names) if options.get("nargs") == "?"}
    shown = ["[%s]" % how if how.startswith("-") or how in optional else how for how, _meaning in arguments(names)]
    return " ".join(["torque-ckpt", name] + shown)


# -- manual page -------------------------------------------------------------------------------------------------------

def roff(text):
    """Escape a text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def manual():
    lines = [".\\\" generated from torque_ckpt/cli/parser.py by make docs; edit that file",
             '.TH TORQUE\\-CKPT 1 "" "ckpt.torque" "User Commands"', ".SH NAME",
             "torque\\-ckpt \\- look at the images of checkpointed TORQUE jobs, and keep house among them", ".SH SYNOPSIS"]
    for name, _brief, _more, names, _keys in parser.COMMANDS:
        lines += [roff(synopsis(name, names)), ".br"]
    lines[-1:] = [".SH DESCRIPTION", roff(ABOUT), ".SH COMMANDS"]
    for name, brief, more, names, keys in parser.COMMANDS:
        lines += [".SS " + roff(synopsis(name, names)), roff("%s. %s" % (brief[0].upper() + brief[1:], more))]
        for how, meaning in arguments(names):
            lines += [".TP", ".B " + roff(how), roff(meaning[0].upper() + meaning[1:] + ".")]
        lines += [".PP", roff("Keys of what --json prints: %s." % keys)]
    lines += [".SH STATES OF AN IMAGE"]
    for name, meaning in parser.STATES:
        lines += [".TP", ".B " + roff(name), roff(meaning[0].upper() + meaning[1:] + ".")]
    lines += [".SH IMAGES OF JOBS THAT ARE GONE", roff(ORPHANS), ".SH KEYS OF AN IMAGE IN JSON"]
    for name, meaning in parser.IMAGE_KEYS:
        lines += [".TP", ".B " + roff(name), roff(meaning[0].upper() + meaning[1:] + ".")]
    lines += [".SH EXIT STATUS", "Those above 1 are the ones of sysexits(3)."]
    for code, meaning in parser.CODES:
        lines += [".TP", ".B %d" % code, roff(meaning)]
    lines += [".SH FILES"]
    for name, meaning in FILES:
        lines += [".TP", ".I " + roff(name), roff(meaning[0].upper() + meaning[1:] + ".")]
    lines += [".SH SEE ALSO", roff(SEE_ALSO), ""]
    return "\n".join(lines)


# -- completion ----------------------------------------------------------------------------------------------------------

VALUES = {"image": "_torque_ckpt_image_dir", "user": "_torque_ckpt_user", "directory": "_torque_ckpt_dir"}
"""What completes an argument; shtab has what _dir ends be quoted as a path."""
FUNCTIONS = """\
_torque_ckpt_image_dir()  # jobs, and images where a word begins a path
{
    case $1 in
        /*) compgen -d -- "$1" ;;
        *) torque-ckpt list 2> /dev/null | awk -v word="$1" 'NR > 1 && index($1, word) == 1 {print $1}' | uniq ;;
    esac
}
_torque_ckpt_user() { compgen -u -- "$1"; }
_torque_ckpt_dir() { compgen -d -- "$1"; }
"""


def completion():
    top = parser.build_parser()
    for command in next(action.choices for action in top._actions if action.choices).values():
        for action in command._actions:
            if action.dest in VALUES:
                action.complete = {"bash": VALUES[action.dest]}
    text = shtab.complete(top, shell="bash", root_prefix="torque_ckpt", preamble={"bash": FUNCTIONS})
    _usage, code = text.split("\n\n", 1)
    return "# generated from torque_ckpt/cli/parser.py by make docs, with shtab (Mozilla Public License 2.0)\n\n" + code.rstrip() + "\n"


# -- documentation -------------------------------------------------------------------------------------------------------

def rows(heading, pairs):
    lines = ["| `%s` | %s |" % (name.replace("|", "\\|"), meaning.replace("|", "\\|")) for name, meaning in pairs]
    return ["| %s | %s |" % heading, "|---|---|"] + lines + [""]


def page():
    lines = ["<!-- generated from torque_ckpt/cli/parser.py by `make docs`; edit that file -->", "", "# torque-ckpt", "", ABOUT, "",
             "The same is in the manual page `torque-ckpt(1)`, which the role installs with a completion for bash.", ""]
    for name, brief, more, names, keys in parser.COMMANDS:
        lines += ["## %s" % name, "", "`%s`" % synopsis(name, names), "", "%s. %s" % (brief[0].upper() + brief[1:], more), ""]
        lines += rows(("argument", "meaning"), arguments(names))
        lines += ["Keys of what `--json` prints: %s." % keys, ""]
    lines += ["## Images of jobs that are gone", "", ORPHANS.replace("$remote_checkpoint_dirs", "`$remote_checkpoint_dirs`"), "",
              "## States of an image", ""] + rows(("state", "meaning"), parser.STATES)
    lines += ["## Keys of an image in JSON", ""] + rows(("key", "meaning"), parser.IMAGE_KEYS)
    lines += ["## Exit status", "", "Those above 1 are the ones of sysexits(3).", ""]
    lines += rows(("status", "meaning"), [(str(code), meaning) for code, meaning in parser.CODES])
    return "\n".join(lines)


WANTED = {ROLE / "torque-ckpt.1": manual, ROLE / "torque-ckpt.bash": completion, TOP / "docs/reference/torque-ckpt.md": page}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    write, stale = options.parse_args().write, []
    for path, make in WANTED.items():
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(make())
        elif not path.exists() or path.read_text() != make():
            stale.append("%s is stale; run make docs" % path.relative_to(TOP))
    print("\n".join(stale) or "torque-ckpt: manual page, completion and documentation agree with its command line")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
