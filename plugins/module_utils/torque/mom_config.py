# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mom_priv/config: written from data, and checked as pbs_mom reads it, which reports little of what it ignores."""

import collections
import difflib
import os
import re
import stat

from ..install import replace_file
from .version import parse_version

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Callable, Collection, Iterable

LINE = 118
"""Bytes that every pbs_mom reads of a line; it takes the rest for a line of its own."""

NAME = 49
"""The longest name that pbs_mom takes, in characters."""

LIMITS = {"remote_checkpoint_dirs": 32, "pbsserver": 4}
"""How many entries pbs_mom takes; it drops the others."""

KINDS = {
    "flag": (r"(?i)(true|false|yes|no|on|off|[tfyn01])$", "true or false"),
    "number": (r"\d+$", "a whole number"),
    "positive": (r"0*[1-9]\d*$", "a whole number above 0"),
    "mask": (r"(0[xX][0-9a-fA-F]+|\d+)$", "a number"),
    "score": (r"-?(1000|\d{1,3})$", "a number from -1000 to 1000"),
    "load": (r"\d*\.?\d+$", "a number"),
    "factor": (r"(?=.*[1-9])\d*\.?\d+$", "a number above 0"),
    "size": (r"(?i)\d+([kmgt]?b)?$", "a size such as 64gb"),
    "umask": (r"[0-7]{3,4}$|userdefault$", "an octal umask or userdefault"),
    "check": (r"\d+([ ,]+(jobstart|jobend))*$", "a number, with jobstart or jobend after a comma"),
    "poll": (r"\d+\s+\S", "seconds and a command"),
    "host": (r"\S+$", "one name"),
    "path": (r"/", "an absolute path"),
    "directory": (r"/\S*$", "an absolute path without blanks"),
    "root_program": (r"/\S+$", "an absolute path without blanks"),
    "user_program": (r"/\S+$", "an absolute path without blanks"),
    "copy": (r"[^\s:]+:/\S*\s+/\S*$", "of the form HOST:/FROM /TO"),
    "images": (r"", ""),
    "text": (r"", ""),
}
"""What a value must look like (regular expression), and the words for it."""

DIRECTIVES = {name: kind for kind, names in {
    "flag": "attempt_to_make_dir cray_check_rur cuda_visible_devices down_on_error enablemomrestart exec_with_exec force_overwrite "
            "get_cray_taskstats igncput ignmem ignvmem ignwalltime job_starter_run_privileged jobdirectory_sticky login_node "
            "mom_oom_immunize node_check_on_job_end node_check_on_job_start reduce_prolog_checks reject_job_submission "
            "remote_reconfig reporter_mom source_login_batch source_login_interactive spool_as_final_name thread_unlink_calls use_smt",
    "number": "ext_pwd_retry jobstartblocktime kill_delay log_file_max_size log_keep_days loglevel max_conn_timeout_micro_sec "
              "max_updates_before_sending memory_pressure_duration memory_pressure_threshold rpp_throttle timeout",
    "positive": "check_poll_time checkpoint_interval job_exit_wait_time log_file_roll_depth max_join_job_wait_time "
                "mom_hierarchy_retry_time prologalarm resend_join_job_wait_time status_update_time",
    "mask": "logevent",
    "score": "job_oom_score_adjust",
    "load": "ideal_load max_load",
    "factor": "cputmult wallmult",
    "size": "max_physical_memory max_swap_memory",
    "umask": "job_output_file_umask",
    "check": "node_check_interval",
    "poll": "varattr",
    "host": "alias_server_name clienthost mom_host pbsclient pbsserver restricted",
    "path": "apbasil_path log_directory presetup_prologue rcp_cmd rcpcmd xauthpath",
    "directory": "tmpdir",
    "root_program": "checkpoint_script node_check_script restart_script",
    "user_program": "checkpoint_run_exe job_starter",
    "copy": "usecp",
    "images": "remote_checkpoint_dirs",
    "text": "alloc_par_cmd apbasil_protocol auto_ideal_load auto_max_load configversion log_file_suffix nodefile_suffix "
            "nospool_dir_list preexec",
}.items() for name in names.split()}
"""The directives of pbs_mom 2.4.8 to 6.1.3.h5, and the kind of value each takes."""

SINCE = {name: version for version, names in {
    "2.5.3": "alias_server_name",
    "2.5.12": "attempt_to_make_dir exec_with_exec ext_pwd_retry job_starter reduce_prolog_checks rpp_throttle thread_unlink_calls",
    "2.5.13": "job_oom_score_adjust mom_oom_immunize",
    "4.1.0": "apbasil_path apbasil_protocol login_node max_updates_before_sending memory_pressure_duration "
             "memory_pressure_threshold reject_job_submission reporter_mom use_smt",
    "4.1.6": "job_exit_wait_time max_join_job_wait_time resend_join_job_wait_time",
    "4.2.6": "mom_hierarchy_retry_time",
    "4.2.7": "jobdirectory_sticky",
    "4.2.10": "cuda_visible_devices",
    "6.0.0": "job_starter_run_privileged",
    "6.0.2": "cray_check_rur",
    "6.0.3": "force_overwrite",
    "6.0.4": "max_physical_memory max_swap_memory",
    "6.1.0": "presetup_prologue",
    "6.1.2": "get_cray_taskstats node_check_on_job_end node_check_on_job_start",
}.items() for name in names.split()}
"""The first version, of those examined, that knows a directive younger than 2.4.8."""

UNTIL = {"kill_delay": "2.5.3", "rpp_throttle": "4.2.0"}
"""The first version that no longer knows a directive."""

REPEATED = frozenset(["clienthost", "pbsclient", "pbsserver", "remote_checkpoint_dirs", "restricted", "usecp", "varattr"])
"""Directives whose lines add up; of the others the last one counts."""

RELOADED = frozenset([
    "check_poll_time", "checkpoint_interval", "checkpoint_run_exe", "checkpoint_script", "configversion", "cputmult",
    "down_on_error", "igncput", "ignmem", "ignvmem", "ignwalltime", "job_output_file_umask", "job_starter",
    "jobstartblocktime", "log_file_max_size", "log_file_roll_depth", "log_keep_days", "logevent", "loglevel",
    "node_check_script", "preexec", "prologalarm", "rcp_cmd", "rcpcmd", "restart_script", "source_login_batch",
    "source_login_interactive", "spool_as_final_name", "status_update_time", "timeout", "tmpdir", "wallmult", "xauthpath",
])
"""Directives whose new value a SIGHUP brings into force below RELOAD_ENDS; one that is gone keeps its old value."""

RELOAD_ENDS = "5.0"
"""From here on a SIGHUP also clears what pbs_mom sets at its start alone: its own name and the programs that copy files."""

SLASH_BEGINS = "2.5.3"
"""From here on a job's images are in a directory of their own beneath the one named; before, they were in that one."""

Fault = collections.namedtuple("Fault", "line text")


class ConfigError(Exception):
    """The data cannot be written as a configuration; the text says why."""


def clean(name: str, value: object) -> str:
    """Return a value as the text of one line.

    :raises ConfigError: when pbs_mom would not read back what was meant
    """
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if not text:
        raise ConfigError("%s has an empty value" % name)
    if "#" in text or any(ord(character) < 32 and character != "\t" for character in text):
        raise ConfigError("%s '%s' holds a '#', where pbs_mom begins a comment, or a line break" % (name, text))
    return text


def values_of(name: str, value: "Any", version: "str | None") -> "list[str]":
    """Return the lines' values of a directive given as one value or a list."""
    texts = []
    for item in value if isinstance(value, list) else [value]:
        copy = name == "usecp" and isinstance(item, dict)
        if copy and sorted(item) != ["from", "host", "to"] or isinstance(item, (dict, list)) and not copy:
            raise ConfigError("%s takes %s, not %s" % (
                name, "HOST:/FROM /TO or host, from and to" if name == "usecp" else "a value or a list of values", item))
        text = clean(name, "%(host)s:%(from)s %(to)s" % item if copy else item)
        if name == "remote_checkpoint_dirs" and text != "*" and (version is None or parse_version(version) >= parse_version(SLASH_BEGINS)):
            text = text.rstrip("/") + "/"  # pbs_mom compares beginnings: /ckpt would be /ckpt-old too
        texts.append(text)
    return [" ".join(texts)] if texts and name == "nospool_dir_list" else texts


def render(directives: "dict[str, Any]", resources: "Iterable[str]" = (), version: "str | None" = None) -> str:
    """Return the text of a configuration.

    :param directives: values by name, in their order; a list is written as so many lines
    :param resources: lines without $, as pbs_mom reports them to the scheduler
    :param version: TORQUE's
    :raises ConfigError: when a value cannot be written
    """
    lines = ["# Written by ckpt.torque.mom_config; changes made here are lost."]
    for key, value in directives.items():
        name = key.lstrip("$").lower()
        lines.extend("$%s %s" % (name, text) for text in ([] if value is None else values_of(name, value, version)))
    lines.extend(clean("resources", line) for line in resources)
    return "".join(line + "\n" for line in lines)


def entries(text: str) -> "list[tuple[int, str, str]]":
    """Return what pbs_mom sees in a configuration: (line number, name, value); the name begins with $ in a directive."""
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        name, value = next(re.finditer(r"\s*(\$?[A-Za-z0-9:_]*)([^#]*)", line)).groups()  # it matches any line
        if name or value.strip():
            lines.append((number, name.lower() if name.startswith("$") else name, value.strip()))
    return lines


def split(text: str) -> "tuple[dict[str, list[str]], list[str]]":
    """Return the directives of a configuration, values by name without $, and its other lines."""
    directives: "dict[str, list[str]]" = collections.OrderedDict()
    resources = []
    for _number, name, value in entries(text):
        if name.startswith("$"):
            directives.setdefault(name[1:], []).append(value)
        else:
            resources.append((name + ("" if value.startswith("[") else " ") + value).strip())
    return directives, resources


def directories(value: str) -> "list[str]":
    """Return the paths in a value of $remote_checkpoint_dirs."""
    return re.findall(r"[^\s:,]+", value)


def contents(text: str) -> "dict[str, list[str]]":
    """Return the values by name of a configuration, images one by one."""
    values: "dict[str, list[str]]" = collections.OrderedDict()
    for _number, name, value in entries(text):
        values.setdefault(name, []).extend(directories(value) if name == "$remote_checkpoint_dirs" else [value])
    return values


def program_fault(status: os.stat_result, kind: str) -> str:
    """Return what is wrong with a program that pbs_mom starts, empty when nothing is."""
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & (0o001 if kind == "user_program" else 0o100):
        return "cannot be executed by %s, and pbs_mom would not use it" % ("every user" if kind == "user_program" else "root")
    if status.st_uid != 0:
        return "belongs to user %d, who could change what root runs; it must be root's" % status.st_uid
    if status.st_mode & 0o022:
        return "has mode %04o: others could change what runs; take their right to write" % stat.S_IMODE(status.st_mode)
    return ""


def value_fault(name: str, value: str, read_status: "Callable[[str], os.stat_result | None]") -> str:
    """Return what is wrong with a directive's value, empty when nothing is.

    :param read_status: os.stat, or a function like it that returns None for what shall not be checked
    """
    kind = DIRECTIVES[name]
    pattern, words = KINDS[kind]
    if not re.match(pattern, value):
        return "is not %s" % words
    if kind == "copy":
        source, target = value.partition(":")[2].split()
        if source.endswith("/") != target.endswith("/"):
            return "has a / at the end of one path only, and pbs_mom replaces one by the other letter by letter"
    if kind in ("directory", "root_program", "user_program"):
        try:
            status = read_status(value)
        except OSError as error:
            return "cannot be used: %s; pbs_mom would %s" % (
                error.strerror, "not start" if kind == "directory" else "ignore the line and continue without it")
        if status is None:
            return ""
        if kind == "directory":
            return "" if stat.S_ISDIR(status.st_mode) else "is no directory"
        return program_fault(status, kind)
    return ""


def images_fault(named: "list[str]", seen: "list[str]") -> str:
    """Return what is wrong with the directories named in a line, empty when nothing is; seen gathers them."""
    for directory in named:
        bare = directory.rstrip("/")
        if directory != "*" and (not bare.startswith("/") or os.path.normpath(bare) != bare):
            return "names %s, which is no plain absolute path of a directory; blank, comma and colon part paths" % directory
        if bare in seen:
            return "names %s again" % directory
        seen.append(bare)
    return ""


def name_fault(name: str, version: "str | None") -> str:
    """Return what is wrong with a directive's name (without $), empty when nothing is."""
    if name not in DIRECTIVES:
        near = difflib.get_close_matches(name, sorted(DIRECTIVES), 1)
        return "is no directive of pbs_mom, which ignores the line%s" % ("; perhaps $%s was meant" % near[0] if near else "")
    if version is not None and name in SINCE and parse_version(version) < parse_version(SINCE[name]):
        return "is not known to TORQUE %s, which ignores the line; it came with %s" % (version, SINCE[name])
    if version is not None and name in UNTIL and parse_version(version) >= parse_version(UNTIL[name]):
        return "is not known to TORQUE %s, which ignores the line; it went with %s" % (version, UNTIL[name])
    return ""


def faults(text: str, version: "str | None" = None, read_status: "Callable[[str], os.stat_result | None]" = os.stat,
           allowed: "Collection[str]" = ()) -> "list[Fault]":
    """Return what pbs_mom would ignore, misread or refuse of a configuration.

    :param version: TORQUE's
    :param read_status: see value_fault
    :param allowed: names of directives that a changed pbs_mom knows
    """
    faulty = [Fault(number, "it has %d bytes, of which pbs_mom reads %d and takes the rest for another line" % (
        len(line.encode("utf-8", "surrogateescape")), LINE)) for number, line in enumerate(text.split("\n"), 1)
        if len(line.encode("utf-8", "surrogateescape")) > LINE]
    first: "dict[str, int]" = {}
    images: "list[str]" = []
    count: "collections.Counter[str]" = collections.Counter()
    for number, shown, value in entries(text):
        name = shown.lstrip("$")
        if len(name) > NAME:
            faulty.append(Fault(number, "the name %s... is longer than the %d characters pbs_mom has room for" % (name[:NAME], NAME)))
        elif not shown.startswith("$"):
            if not name or name in DIRECTIVES:
                faulty.append(Fault(number, "%s lacks its $" % name if name else "'%s' is neither a directive nor a resource" % value))
            elif not value:
                faulty.append(Fault(number, "%s has no value" % name))
        elif name not in allowed:
            fault = name_fault(name, version)
            if fault:
                faulty.append(Fault(number, "%s %s" % (shown, fault)))
                continue
            again = name in first and name not in REPEATED
            fault = ("stands in line %d already, and pbs_mom takes the last one" % first[name] if again else "has no value" if not value
                     else images_fault(directories(value), images) if name == "remote_checkpoint_dirs"
                     else value_fault(name, value, read_status))
            if fault:
                faulty.append(Fault(number, "%s %s%s" % (shown, value + " " if value else "", fault)))
            first.setdefault(name, number)
            count[name] += 1
    count["remote_checkpoint_dirs"] = len(images)
    for name, limit in sorted(LIMITS.items()):
        if count[name] > limit:
            faulty.append(Fault(first[name], "$%s has %d entries, and pbs_mom has room for %d" % (name, count[name], limit)))
    return sorted(faulty)


def traps(text: str, version: "str | None" = None) -> "list[str]":
    """Return sentences on what pbs_mom would take for a directory of images besides the one meant."""
    if version is not None and parse_version(version) < parse_version(SLASH_BEGINS):
        return []
    return ["%s also stands for every path that begins so, such as %s-old; write %s/" % (directory, directory, directory)
            for directory in contents(text).get("$remote_checkpoint_dirs", []) if directory != "*" and not directory.endswith("/")]


def changes(before: str, after: str) -> "list[str]":
    """Return the names (sorted; with $ in a directive) whose values differ between two configurations."""
    old, new = contents(before), contents(after)
    return sorted(name for name in set(old) | set(new) if old.get(name) != new.get(name))


def restart_needed(before: str, after: str, version: "str | None" = None) -> bool:
    """Return whether pbs_mom must be restarted for the change between two configurations; otherwise a SIGHUP is enough."""
    changed = changes(before, after)
    if not changed:
        return False
    if version is None or parse_version(version) >= parse_version(RELOAD_ENDS):
        return True
    left = contents(after)
    return any(name.startswith("$") and (name[1:] not in RELOADED or name not in left) for name in changed)


# -- the file -------------------------------------------------------------

TRUSTED = 10
"""pbs_mom takes a configuration of the users 0 to 10."""


def read_config(path: str) -> "tuple[str, os.stat_result | None]":
    """Return text and lstat of a file, ("", None) when there is none."""
    try:
        status = os.lstat(path)
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape"), status
    except FileNotFoundError:
        return "", None


def make_printable(text: str) -> str:
    """Return a text without what JSON cannot hold."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_config(path: str, text: str) -> None:
    """Put the file in its place in one step."""
    with replace_file(path) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))
        os.fchown(stream.fileno(), 0, 0)
        os.fchmod(stream.fileno(), 0o644)


def find_file_faults(path: str, text: str, version: "str | None", allowed: "list[str]") -> "list[str]":
    """Return what pbs_mom would ignore, misread or refuse of a configuration file (sentences).

    :param path: the file
    :param text: what is in it
    :param version: TORQUE's
    :param allowed: names of directives that a changed pbs_mom knows
    """
    status, sentences = os.stat(path), []
    if status.st_uid > TRUSTED or status.st_mode & 0o022:
        sentences.append("it belongs to user %d with mode %04o, and pbs_mom takes only what is root's and writable by nobody else"
                         % (status.st_uid, stat.S_IMODE(status.st_mode)))
    sentences += ["line %d: %s" % fault for fault in faults(text, version, allowed=[name.lower() for name in allowed])]
    return [make_printable(sentence) for sentence in sentences]
