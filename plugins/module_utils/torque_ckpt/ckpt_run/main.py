"""ckpt-run: start a program that takes part in a checkpoint of its job.

One that writes restart files of its own can have anything open. By the method, it is asked to write them and to end. Then the image is
written, with ckpt-run but without the program. ckpt-run starts the program again by the method's restart command when the hook that asked
is gone: at once if the job continues, or after the restart of a job that was held, on whatever node that is.

Another one is kept, and is in the image: ckpt-run runs one command before that, and another one when the hook is gone.
"""
import argparse
import os
import sys

from ..errors import HookError, USAGE
from ..job import supervisor
from ..nested import channel, methods
from ..system import privilege
from .keeper import EVENT, Keeper
from .program import PROGRAM
from .runner import Runner

PARENT = "CKPT_RUN_PARENT"
"""Variable of the program and of the method's commands: ckpt-run's own pid."""


def _parse(argv: "list[str]") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ckpt-run", usage="ckpt-run [option ...] -- PROGRAM [ARGUMENT ...]",
        description="Run a program that writes restart files of its own, so that its job can be checkpointed; or one that is to be "
                    "prepared for the job's checkpoints, and is in their images.")
    parser.add_argument("--method", metavar="NAME", help="how it is asked for them and continues (default: rerun, which sends SIGTERM and "
                        "starts the same command again; keep with --before or --after); ckpt-run --list shows all")
    parser.add_argument("--list", action="store_true", help="print the methods of this node, and exit")
    parser.add_argument("--start", metavar="COMMAND", help="start it by this shell command; {command} stands for the program with its "
                        "arguments")
    parser.add_argument("--signal", metavar="NAME", help="send this signal, for instance TERM, to have it write its files and end")
    parser.add_argument("--checkpoint", metavar="COMMAND", help="run this shell command instead; $%s is the program's process id" % PROGRAM)
    parser.add_argument("--restart", metavar="COMMAND", help="continue by this shell command; {command} stands for the program with its "
                        "arguments. With variables, quotes and the like, begin what is to be asked for checkpoints with exec")
    parser.add_argument("--file", metavar="PATH", help="what it has written when it ends; otherwise it ended by itself")
    parser.add_argument("--before", metavar="COMMAND", help="keep the program, and run this shell command before a checkpoint")
    parser.add_argument("--after", metavar="COMMAND", help="run this shell command when it continues after that; $%s is continue, or "
                        "restart if the job was restored" % EVENT)
    parser.add_argument("--seconds", metavar="NUMBER", type=int, help="how long it, or each of these two commands, may take (default: 600)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments, after --")
    return parser.parse_args(argv)


def choose_method(arguments: argparse.Namespace, known: "dict[str, dict]") -> methods.Method:
    """Return the Method of a command line.

    :param known: the methods of this node, by name
    :raises HookError: USAGE
    """
    if arguments.method is None:
        arguments.method = "keep" if arguments.before or arguments.after else "rerun"
    if arguments.method not in known:
        raise HookError(USAGE, "there is no method %s; take one of %s" % (ascii(arguments.method), ", ".join(sorted(known))))
    given = {part: getattr(arguments, part) for part in methods.Method._fields if getattr(arguments, part) is not None}
    value = dict(known[arguments.method], **given)
    if "signal" in given and "checkpoint" not in given:
        value.pop("checkpoint", None)
    elif "checkpoint" in given and "signal" not in given:
        value.pop("signal", None)
    fault = methods.find_fault("the command line", value)
    if fault:
        raise HookError(USAGE, fault + "; see ckpt-run --help")
    return methods.build_method(value)


def _run(argv: "list[str]", config_path: str) -> int:
    arguments = _parse(argv)
    known = methods.load_methods(config_path)
    if arguments.list:
        for name, value in sorted(known.items()):
            method = methods.build_method(value)
            parts = dict(method._asdict(), **{"restart": ""} if methods.keeps_program(method) else {}).items()
            sys.stdout.write("%s: %s\n" % (name, ", ".join("%s=%s" % part for part in parts if part[1])))
        return 0
    command = arguments.command[arguments.command[:1] == ["--"]:]
    if not command:
        raise HookError(USAGE, "name the program after --; see ckpt-run --help")
    method = choose_method(arguments, known)
    if PARENT in os.environ:
        raise HookError(USAGE, "ckpt-run was started by a program that ckpt-run started (%s=%s); start programs by one ckpt-run only"
                        % (PARENT, os.environ[PARENT]))
    os.environ[PARENT] = str(os.getpid())
    try:
        channel.create()
    except OSError as error:
        raise HookError(USAGE, "cannot open descriptors 100 to 103 (%s); raise the limit of open files (ulimit -n)" % error.strerror)
    keeps = methods.keeps_program(method)
    channel.set_name(channel.KEEPS if keeps else channel.ENDS)
    privilege.become_subreaper()
    supervisor.block_signals({channel.BELL})
    sys.stdout.flush()
    supervisor.end_as((Keeper(command, method) if keeps else Runner(command, arguments.method, method)).run())


def main(argv: "list[str]", config_path: str) -> int:
    """Run the program that argv names, end as it ends; return the exit code if it could not be started.

    :param argv: as from the command line
    :param config_path: the hooks' configuration
    """
    try:
        return _run(argv[1:], config_path)
    except HookError as error:
        sys.stderr.write("ckpt-run: %s; nothing was started\n" % error.sentence)
        return error.code
