"""What is done with a program for a checkpoint, and how it continues. Methods are data: the known ones, and those of the site."""
import json
import os
import re
import shlex
import signal
import stat
from collections import namedtuple

from ..errors import HookError, CONFIG

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any

Method = namedtuple("Method", "start signal checkpoint restart file before after seconds")
"""One method. With a signal or a checkpoint command the program ends, and is continued; without, it is kept, and is in the image.

start       str: shell command that starts the program; {command} stands for it with its arguments. What the shell then runs is the program
            only if the command begins with exec or needs no shell
signal      str: sent to the program to have it write its restart files and end, such as "TERM"; "" for none
checkpoint  str: shell command that has the program write them and end; "" for none. CKPT_RUN_PID holds the program's pid
restart     str: shell command that continues; {command} stands for the program with its arguments. What the shell then runs is asked for
            checkpoints only if the command begins with exec, or needs no shell
file        str: what the program has written when it ends; if it is not newer than the request, the program ended by itself. "" for none.
            Variables of the job stand for their values
before      str: shell command that prepares a program that is kept; "" for none. CKPT_RUN_PID holds the program's pid
after       str: shell command for when it continues; "" for none. CKPT_RUN_EVENT holds "continue" or "restart"
seconds     int: how long the program may take to end, or each of these two commands

In all commands, and in file, CKPT_RUN_PARENT holds the pid of ckpt-run, which is the same after a restart.
"""

_COMMAND = "{command}"
_PLAIN = re.compile(r"[-\w@%+:,./][-\w@%+:,./=]*\Z", re.ASCII)
"""A word that a shell would leave as it is, and that sets no variable as the first one."""

_DEFAULTS = {"start": _COMMAND, "signal": "", "checkpoint": "", "restart": _COMMAND, "file": "", "before": "", "after": "", "seconds": 600}

_DMTCP = '"dmtcp-$PBS_JOBID-$CKPT_RUN_PARENT"'
"""Where DMTCP has its images, the script that names those of its last checkpoint, and the port of its coordinator."""
_WITH_DMTCP = "exec env DMTCP_CHECKPOINT_DIR=%s %%s --quiet --quiet --new-coordinator --coord-port 0 --port-file %s/port" % (_DMTCP, _DMTCP)
"""For the command's name. By --ckptdir the coordinator that dmtcp_restart starts would not learn of the directory."""

_OMPI = '"ompi-$PBS_JOBID-$CKPT_RUN_PARENT"'
"""Where Open MPI has its snapshots, and what ompi-checkpoint printed when the last one was whole: its number and its name."""
_WITH_OMPI = 'exec env -u OMPI_MCA_pml OMPI_MCA_snapc_base_global_snapshot_dir="$PWD"/' + _OMPI + \
             ' OMPI_MCA_snapc_base_global_snapshot_ref="ompi_global_snapshot_$(date +%s)-$$.ckpt" '
"""By the environment, since ompi-restart passes no parameters on. The default name, of mpirun's pid, may be that of an old one. With
OMPI_MCA_pml=ob1, which jobs on one node have for CRIU, its component for checkpoints would be left out."""
_OMPI_CHECKPOINT = (
    "while age=$(ps -o etimes= -p $CKPT_RUN_PID) && [ $age -lt 10 ]; do sleep 0.5; done && "
    "ompi-checkpoint --term $CKPT_RUN_PID > %s/part && while kill -0 $CKPT_RUN_PID 2> /dev/null; do sleep 0.2; done && "
    "read -r _ _ number name < %s/part && "
    'grep -q "^# Finished Seq: $number$" %s/"$name"/global_snapshot_meta.data && mv %s/part %s/newest') % ((_OMPI,) * 5)
"""A rank that is asked before its MPI_Init ends by SIGUSR1; during it, it may wait for ever. Neither can be seen from outside.

ompi-checkpoint has succeeded also if nothing could be written; mpirun writes the line that is looked for last, after the answer."""

KNOWN = {
    "rerun": {"signal": "TERM"},
    "gromacs": {"signal": "TERM", "restart": "{command} -cpi"},
    "dmtcp": {
        "start": "mkdir -p %s && %s {command}" % (_DMTCP, _WITH_DMTCP % "dmtcp_launch"),
        # --kcheckpoint does not wait, and says nothing of whether it succeeds: the file does; the coordinator ends when it has written that
        "checkpoint": 'ask() { dmtcp_command --coord-port "$(cat %s/port)" "$1"; }; ask --status > /dev/null || exit; '
                      "ask --kcheckpoint > /dev/null 2>&1; while ask --status > /dev/null 2>&1; do sleep 0.2; done" % _DMTCP,
        "restart": "%s $(sed -n 's/^given_ckpt_files=\"\\(.*\\)\"$/\\1/p' %s/dmtcp_restart_script.sh)" % (
            _WITH_DMTCP % "dmtcp_restart", _DMTCP),
        "file": _DMTCP.strip('"') + "/dmtcp_restart_script.sh"},
    # LAMMPS has no handler for signals: its input looks for the first file, and writes the second one (docs/parallel-jobs.md)
    "lammps": {
        "start": "rm -f lammps.leave && exec {command}",
        "checkpoint": "touch lammps.leave",
        "restart": "rm -f lammps.leave && exec {command} -var continue yes",
        "file": "lammps.restart"},
    "ompi": {
        "start": "mkdir -p " + _OMPI + " && " + _WITH_OMPI + "{command}",
        "checkpoint": _OMPI_CHECKPOINT,
        "restart": "read -r _ _ number name < " + _OMPI + "/newest && " + _WITH_OMPI + 'ompi-restart --seq "$number" "$name"',
        "file": _OMPI.strip('"') + "/newest"},
    "keep": {},
}
"""The methods that every site has: "rerun" for programs that continue by themselves when they are started again, "dmtcp" for programs whose
image DMTCP writes, "keep" for programs that stay."""


def keeps_program(method: Method) -> bool:
    """Whether the program stays, in the image, too."""
    return not method.signal and not method.checkpoint


def find_fault(name: str, value: "dict[str, Any]") -> str:
    """Return what is wrong with a method, the end of a sentence; empty if nothing is."""
    unknown = sorted(set(value) - set(_DEFAULTS))
    if unknown:
        return "%s has unknown parts: %s" % (name, ", ".join(unknown))
    whole = dict(_DEFAULTS, **value)
    for part, text in sorted(whole.items()):
        if not isinstance(text, type(_DEFAULTS[part])) or isinstance(text, bool) or isinstance(text, str) and "\0" in text:
            kind = "text without NUL" if isinstance(_DEFAULTS[part], str) else "a whole number"
            return "%s sets %s to %s; it must be %s" % (name, part, ascii(text), kind)
    if whole["seconds"] < 1:
        return "%s sets seconds to less than 1" % name
    if whole["signal"] and whole["checkpoint"]:
        return "%s must have either a signal or a checkpoint command" % name
    keeps = keeps_program(Method(**whole))
    if keeps and (whole["file"] or whole["restart"] != _DEFAULTS["restart"]):
        return "%s has a file or a restart command, but neither a signal nor a checkpoint command, which end the program" % name
    if not keeps and (whole["before"] or whole["after"]):
        return "%s has a command before or after a checkpoint, which is for programs that stay, and ends the program by a signal or a " \
               "checkpoint command" % name
    if whole["signal"] and not hasattr(signal.Signals, "SIG" + whole["signal"]):
        return "%s names the signal %s, which this system does not know" % (name, ascii(whole["signal"]))
    for part in ("start", "restart"):
        if not whole[part]:
            return "%s has no %s command" % (name, part)
    return ""


def find_site_fault(name: str, value: "dict[str, Any]") -> str:
    """Return what is wrong with a method of the site, as find_fault does. One that does nothing is a mistake; "keep" is there already."""
    fault = find_fault(name, value)
    if fault:
        return fault
    method = build_method(value)
    if keeps_program(method) and not method.before and not method.after:
        return "%s has neither a signal nor a checkpoint command, which end the program, nor a command before or after a checkpoint" % name
    return ""


def load_methods(config_path: str, owner: int = 0) -> "dict[str, dict]":
    """Return all methods of this host by name.

    :param config_path: the hooks' configuration; the site's methods are in the file methods.json beside it
    :param owner: uid that must own that file; others may not write to it
    :raises HookError: CONFIG when it cannot be read, or a method is wrong
    """
    path = os.path.join(os.path.dirname(config_path), "methods.json")
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _make_error(path, "must be root's and writable by nobody else")
            given = json.loads(stream.read().decode("utf-8"))["methods"]
        faults = [find_site_fault(name, value) for name, value in given.items()]
    except OSError as error:
        raise _make_error(path, "cannot be read (%s)" % error.strerror)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _make_error(path, "holds no methods")
    for fault in filter(None, faults):
        raise _make_error(path, "is wrong: %s" % fault)
    return dict(KNOWN, **given)


def _make_error(path: str, why: str) -> HookError:
    return HookError(CONFIG, "%s %s; have the administrator run the role checkpoint_hooks on this host" % (path, why))


def build_method(value: "dict[str, Any]") -> Method:
    """Return the Method of a value without fault."""
    return Method(**dict(_DEFAULTS, **value))


def format_command(text: str, command: "list[str]") -> "list[str]":
    """Return what starts or continues a program, as arguments. A shell is started only for what needs one: it would be asked instead of the
    program.

    :param text: Method.start or Method.restart
    :param command: the program with its arguments
    """
    words = text.split()
    if words and all(word == _COMMAND or _PLAIN.match(word) for word in words) and (words[0] == _COMMAND or _is_program(words[0])):
        return [part for word in words for part in (command if word == _COMMAND else [word])]
    return ["/bin/sh", "-c", text.replace(_COMMAND, " ".join(map(shlex.quote, command)))]


def _is_program(name: str) -> bool:
    """Whether the first word of a command names a program, and not something of the shell's own."""
    return "=" not in name and ("/" in name or any(os.access(os.path.join(directory, name), os.X_OK) for directory in os.get_exec_path()))
