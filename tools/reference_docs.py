"""The reference pages of the hooks' formats, out of the tables that the hooks check them by, and what a role takes of the engines.

  reference_docs.py --write   write docs/reference/*.md of formats and a part of the role checkpoint_hooks
  reference_docs.py --check   fail when one is stale
"""
import argparse
import functools
import json
import pathlib
import re
import sys
import textwrap

TOP = pathlib.Path(__file__).resolve().parent.parent
PAGES = TOP / "docs/reference"
sys.path[:0] = [str(TOP / "plugins/module_utils"), str(TOP / "plugins"), str(TOP / "tools")]

import sentences  # noqa: E402
from torque_ckpt import config, errors, settings  # noqa: E402
from torque_ckpt.engines import registry  # noqa: E402
from torque_ckpt.image import compatibility, schema  # noqa: E402
from module_utils.report import history, outcomes, results  # noqa: E402

MADE = "<!-- generated from %s by `make docs`; edit that file -->"
HOOKS_JSON = """\
The configuration of the hooks of one host, by default `/etc/ckpt-torque/hooks.json`. The role checkpoint_hooks writes it; its variables are
called like the settings, with `checkpoint_hooks_` in front ([its README](../../roles/checkpoint_hooks/README.md)). The file must be root's
and writable by nobody else. A setting that is unknown or wrong is refused, and the hook says which one. A path may be empty where it is so
by default.
"""
MANIFEST = """\
Each image is a directory with the engine's files, what travels with them, and `%s`, which is written last and sealed with root's
key. The hooks restart images of the formats %s; those of older formats are only listed and removed. Format %d is format %d with
compressed files.

An image is refused if a field is missing or of another type. Fields that are not in this list, as newer hooks may write them, are left
alone. A manifest has at most %d fields.
"""
NODE_RECORDS = """\
`torque-ckpt show` prints on which nodes an image can be restarted. It knows them by what the role checkpoint_hooks writes beside
`hooks.json`: `nodes.json`, `{"nodes": [str, ...]}`, names the compute nodes in the inventory's order; `nodes/NAME.json` is the record of
one. A compute node has its own record, login nodes and the server have all of them. A record is written when `site.yml` has looked at the
node; that of a host beyond `--limit` stays as it is. A record that lacks a field counts as none.
"""
RESULTS = """\
`ckpt.torque.validate` writes its report into `validate_directory`: `report.html`, a page for a browser that needs no network and no
scripts; `report.txt`, the verdict and the table that the playbook prints; `results.json`, which this page describes; `junit.xml`, the same
for continuous integration; and `history.jsonl`. All but the last are replaced by each run.

`schema` is raised if a field is removed or changes its meaning. A field may be added without that.
"""
HISTORY = """\
Each run appends a line, a JSON object with these fields. Nothing removes lines; the file may be removed or cut at any line. The page shows
the last %d runs and reads at most the last %d MiB. A line that cannot be read is left out, counted on the page, and named in a warning.
"""
MESSAGES = """\
What hooks and commands say when they fail, by exit code. Look for the first words that name nothing of your own (no job, no path). The
whole message is the first column, a semicolon, and the second one. What is in italics is not part of the message; *as above* is the advice
above the table.

| where a message is | what is around it |
|---|---|
| a job's comment after a checkpoint | nothing |
| a job's comment after a restart | `Temporary failure of the restart: ` or `Permanent failure of the restart: ` in front |
| the system log (`journalctl -t ckpt-torque`) | `code=CODE sentence='...'` |
| the message of a node (`pbsnodes NODE`) | `ERROR ckpt.torque: ` in front |
| `torque-ckpt` | `torque-ckpt: ` in front |
| `ckpt-run` | `ckpt-run: ` in front, `; nothing was started` behind |
| `ckpt.torque.validate` | the level, the nodes and the step in front ([troubleshooting](../troubleshooting.md#validate-fails)) |

A checkpoint that fails, with whatever code, leaves the job running and the older images as they were. A restart that fails leaves the image
and the job's output as they were; the code decides what becomes of the job ([how](contract.md#a-restart-that-failed)).

Words in capitals stand for what differs: REASON for the words of the operating system, of a program or of a check, CONSEQUENCE for what
became of the job or the image ("the job keeps running", "image kept", "nothing was done"), SENTENCE for another message of this page, NAME
for the name of a process, file, image or setting. Words in brackets may be missing. The last column is the file in `torque_ckpt`.
"""
TEMPORARY = "Temporary: at a restart the job is queued again after a pause, and held after `checkpoint_hooks_restart_attempts` failures " \
    "in a row on a node."
PERMANENT = "Permanent: at a restart the job is held; `qrls` tries again."
CURES = {
    "USAGE": "If a hook says so, pbs_mom called it in another way than [the contract](contract.md#the-calls) has it: let "
             "`ckpt.torque.site` write `mom_priv/config` of the node. Users and groups may have names of letters, digits and `_.@-` only. "
             "If a command says so, its `--help` has the arguments.",
    "DATA": "Check the image with `torque-ckpt verify JOB`, on another node, too. If it is damaged there as well, its owner moves it away "
            "(`mv`) and releases the job (`qrls`), which continues from the newest of the others.",
    "NO_INPUT": "See with `torque-ckpt list` which images there are, and on the node whether the store is mounted and the job's owner "
                "may read the directory that the message names.",
    "NO_USER": "Create the account, with the same uid and gid on all nodes; then release the job (`qrls`).",
    "GONE": "See whether pbs_server and, from TORQUE 4.0 on, trqauthd run; if a process is missing, whether the job runs on this node, "
            "and whether pbs_mom had `$checkpoint_run_exe` when the job started.",
    "ENGINE": "The engine's own words are in the message. `torque-ckpt selftest` as root shows whether the engine works on this node at "
              "all, `torque-ckpt check JOB` what of the job it cannot write.",
    "SYSTEM": "The operating system's reason is in the message: see to the space, the rights, the processes or the memory that it names, "
              "then repeat the command, or release the job (`qrls`). A part of a hook that died was killed: the kernel's log says if "
              "memory was short.",
    "CANNOT_WRITE": "The reason at the end of the message is that of the file system: see to its space, its quota or its rights; then "
                    "repeat the checkpoint. After a copy that failed the job continues on its node "
                    "([how](../troubleshooting.md#a-copy-to-or-from-the-server-failed)).",
    "TEMPORARY": "Nothing need be repaired as a rule: repeat the checkpoint, or let the job be restarted. If the message comes back, see "
                 "to the reason in it.",
    "REFUSED": "Trying again does not help: change what the message names, then repeat the checkpoint, or release the job (`qrls`).",
    "CONFIG": "Run `ckpt.torque.site` for this node; `torque-ckpt status` as root shows what it is configured to do, `ckpt.torque.plan` "
              "what it lacks.",
    "ROUND_TRIP": "The engine restores processes here, but not as they were: compare kernel and version of the engine with "
                  "[what was run](support.md), and run `torque-ckpt selftest` again.",
    "AROUND": "Look for the message that is named SENTENCE here.",
}
"""What to do about a failure with a code, if its sentence does not say so."""
OWN_CURES = {
    "images of USER are shown": "run it as root or as that user",
    "node-down is for root": "run it as root",
    "process PID (NAME) is root's": "look at a job of another user",
    "prune --orphans is for root": "run it as root",
    "selftest is for root": "run it as root",
    "unexpected": "report it as a fault of the hooks, with the line of the system log",
}
"""The same for sentences (their first words) whose cure is not that of their code."""
INSIDE = re.compile(r"\?$|: (?:allow it|check the network|checkpoint the job)|\(if that is wrong,|only root may|so look for|report it to|"
                    "the next run (?:continues|looks)")
"""A sentence that says what to do, though not as an order after a semicolon."""
LISTS = {settings.check_texts: "list of str", settings.check_job_paths: "list of paths", settings.check_path: "path"}


def table(heading, rows):
    """Return a table's lines (list of str); rows yields tuples of cells (str)."""
    return ["| %s |" % " | ".join(heading), "|" + "---|" * len(heading)] + [
        "| %s |" % " | ".join(cell.replace("|", "\\|") for cell in row) for row in rows] + [""]


# -- hooks.json ------------------------------------------------------------------------------------------------------

def describe_default(row):
    """Return the default of a setting (str); of bytes with their unit."""
    if row.unit == "bytes" and row.default:
        return "`%d` (%d GiB)" % (row.default, row.default >> 30)
    return "required" if row.name == "stores" else "`%s`" % json.dumps(row.default)


def describe_limits(row):
    """Return which values a setting may have (str), beside its type."""
    if row.choices:
        return "one of " + ", ".join("`%s`" % choice for choice in row.choices)
    if row.least is None:
        return ""
    return "%d %s %s" % (row.least, "or more" if row.most is None else "to %d" % row.most, row.unit)


def setting_rows(rows):
    for row in rows:
        yield ("`%s`" % row.name, LISTS.get(row.check, row.type), describe_default(row), describe_limits(row), row.help)


def describe_kernels(entry):
    """Return on which kernels an engine runs (str)."""
    first, last = [version and ".".join(map(str, version)) for version in (entry.first, entry.last)]
    return "kernels %s to %s" % (first, last) if last else "kernels from %s on%s" % (first, entry.mode and ", " + entry.mode)


def hooks_json():
    heading = ("setting", "type", "default", "values", "meaning")
    lines = [MADE % "torque_ckpt/config.py and torque_ckpt/engines/registry.py", "", "# hooks.json", "", HOOKS_JSON]
    lines += table(heading, setting_rows(config.SETTINGS))
    for entry in registry.ENGINES:
        lines += ["## engine_options of `%s`" % entry.name, "", "%s runs on %s." % (entry.title, describe_kernels(entry)), ""]
        lines += table(heading, setting_rows(entry.options))
    return "\n".join(lines)


# -- JSON with fields ------------------------------------------------------------------------------------------------

def describe_kind(field):
    """Return what a field is (str)."""
    kind = "an object" if field.fields else field.kind[0].replace(" from 0 to %d" % (2 ** 63 - 1), ", 0 or more")
    return "list; each %s" % kind if field.many else kind


def describe_presence(field):
    """Return when a field is there (str)."""
    conditions = ["of %s" % ", ".join(field.only)] if field.only else []
    if field.since > schema.FORMAT:
        conditions.append("format %d" % field.since)
    if field.optional:
        conditions.append("optional")
    return ", ".join(conditions) or "always"


def field_rows(fields, prefix=""):
    """Yield a row for each field and those inside of it."""
    for field in fields:
        yield "`%s%s`" % (prefix, field.name), describe_kind(field), describe_presence(field), field.help
        yield from field_rows(field.fields, prefix + field.name + ("[]." if field.many else "."))


def manifest():
    about = MANIFEST % (schema.FILE, " and ".join(map(str, schema.READ)), schema.COMPRESSED, schema.FORMAT, schema.MOST)
    lines = [MADE % "torque_ckpt/image/schema.py", "", "# manifest.json", "", about]
    return "\n".join(lines + table(("field", "type", "present", "meaning"), field_rows(schema.FIELDS)))


def node_records():
    lines = [MADE % "torque_ckpt/image/compatibility.py", "", "# Records of the nodes", "", NODE_RECORDS]
    return "\n".join(lines + table(("field", "type", "present", "meaning"), field_rows(compatibility.RECORD)))


def results_json():
    heading = ("field", "type", "present", "meaning")
    lines = [MADE % "plugins/module_utils/report/results.py", "", "# results.json", "", RESULTS]
    lines += table(heading, field_rows(results.DOCUMENT)) + ["## history.jsonl", "", HISTORY % (history.RUNS, history.LARGEST >> 20)]
    return "\n".join(lines + table(heading, field_rows(results.RUN)))


# -- messages --------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def list_sentences():
    """Return all sentences (list of sentences.Sentence) of hooks and commands."""
    return sentences.Package(TOP / "plugins/module_utils/torque_ckpt").list_sentences()


def split_sentence(text):
    """Return what failed (str) and what to do about it (str), which is empty if the sentence does not say so."""
    cause, cure = outcomes.split_cause(text, "L1")
    return (cause, cure) if cause != text else (text, "")


def message_rows(listed):
    """Yield a row for each sentence; one that several files have is one row."""
    rooms = {}
    for sentence in listed:
        rooms.setdefault(sentence.text, []).append("`%s`" % sentence.room)
    for text, named in rooms.items():
        cause, cure = split_sentence(text)
        own = [advice for words, advice in OWN_CURES.items() if text.startswith(words)]
        general = "*as it says*" if INSIDE.search(text) else "*%s*" % (own[0] if own else "as above")
        yield cause, cure or general, ", ".join(named)


def describe_code(name, meanings):
    """Return a code's heading and what it means (str), and what becomes of a job.

    :param meanings: {code (int): str} of the hooks
    """
    if name == "ROUND_TRIP":
        return "## A round trip failed", "`torque-ckpt selftest` ends with 1; `ckpt.torque.validate` reports a failure of L1."
    if name == "AROUND":
        return "## Words around a message", "The code is that of the other message."
    code = getattr(errors, name)
    about = "A hook: %s. %s" % (meanings[code], TEMPORARY if errors.is_temporary(code) else PERMANENT)
    if code in errors.MEANINGS:
        about += " `torque-ckpt`: %s" % re.sub(r"\b(prune|node-down|verify|check)(?=[,:])", r"`\1`", errors.MEANINGS[code])
    return "## %d: %s" % (code, errors.CAUSES[code].replace("_", " ")), about


def messages():
    contract = (PAGES / "contract.md").read_text().replace("](#", "](contract.md#")
    meanings = {int(code): meaning for code, meaning in re.findall(r"^\| (\d\d) \| (.*) \|$", contract, re.MULTILINE)}
    lines = [MADE % "torque_ckpt and tools/reference_docs.py", "", "# Messages", "", MESSAGES]
    listed = list_sentences()
    for name, cure in CURES.items():
        chosen = [sentence for sentence in listed if sentence.code in (name, {"GONE": "NO_SERVER"}.get(name))]
        lines += ["%s\n\n%s\n\n%s\n" % (*describe_code(name, meanings), cure)]
        lines += table(("what failed", "what to do", "file"), message_rows(chosen))
    return "\n".join(lines)


# -- the role's options ----------------------------------------------------------------------------------------------

SPECS = TOP / "roles/checkpoint_hooks/meta/argument_specs.yml"
BEGIN, END = "      # engines: begin, written by `make docs`\n", "      # engines: end\n"
ENGINE = """\
      checkpoint_hooks_engine:
        description: >-
          The engine that the hooks use. The default is the one that engine_info has chosen (O(checkpoint_hooks_engine_info)); on hosts that
          are not nodes it is the first of the choices.
        type: str
        choices: [%s]
        default: "%s"
      checkpoint_hooks_engine_options:
        description: >-
          What the hooks' engine is to do otherwise than by default, a dictionary for each engine, so that a group may have nodes of
          several.
          The paths have their defaults from the engines' roles.
        type: dict
        default: {}
        options:
"""
CHOSEN = "{{ checkpoint_hooks_engine_info.engine | default(lookup('ckpt.torque.engine_options') | first) }}"
TYPES = {settings.check_texts: "list", settings.check_path: "path"}


def spec_lines(entry):
    """Yield the lines of an engine's part of the argument specs. Defaults are the hooks' to know, so that none stands in two places."""
    yield "          %s:" % entry.name
    yield "            description: Options of %s." % entry.title
    yield "            type: dict"
    yield "            options:"
    for row in entry.options:
        yield "              %s:" % row.name
        yield "                description: >-"
        limits = " In %s, %d to %d." % (row.unit, row.least, row.most) if row.most is not None else ""
        text = re.sub("`([^`]*)`", r"C(\1)", row.help + limits)
        yield from textwrap.wrap(text, 150, initial_indent=" " * 18, subsequent_indent=" " * 18, break_on_hyphens=False)
        yield "                type: %s" % TYPES.get(row.check, row.type)
        if row.check is settings.check_texts:
            yield "                elements: str"


def argument_specs():
    text = SPECS.read_text()
    lines = [line + "\n" for entry in registry.ENGINES for line in spec_lines(entry)]
    before, after = text[:text.index("      # engines: begin")], text[text.index(END):]
    return before + BEGIN + ENGINE % (", ".join(registry.list_names()), CHOSEN) + "".join(lines) + after


WANTED = {SPECS: argument_specs,
          PAGES / "hooks-json.md": hooks_json, PAGES / "manifest.md": manifest, PAGES / "node-records.md": node_records,
          PAGES / "results-json.md": results_json, PAGES / "messages.md": messages}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    write, stale = parser.parse_args().write, []
    for path, make in WANTED.items():
        if write:
            path.write_text(make())
        elif not path.exists() or path.read_text() != make():
            stale.append("%s is stale; run make docs" % path.relative_to(TOP))
    print("\n".join(stale) or "docs/reference, argument_specs: what is generated agrees with its tables")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
