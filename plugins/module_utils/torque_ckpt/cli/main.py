"""torque-ckpt: lists the images, checks whether they are whole and where they can be restarted, and removes what nobody needs.

Root sees all images, a user sees his own. Root becomes the owner before it looks into a user's directory. No job waits for this
program, unlike the others of the package, so it may import what it likes.
"""
import functools
import json
import os
import sys

from .. import config
from ..engines import registry
from ..errors import HookError, CONFIG, DATA, REFUSED, SYSTEM, TEMPORARY, USAGE
from ..image import digest, schema
from ..job import records
from ..selftest import engine_roundtrip
from ..store import catalog, location
from ..system import environment, processes, rootfiles
from ..telemetry import metrics, syslog
from ..units import format_bytes
from ..version import VERSION
from . import check, node_down, node_records, orphans, parser
from .parser import FOUND_WRONG
from .stores import Stores

MYPY = False  # true for the type checker alone
if MYPY:
    from argparse import Namespace
    from typing import Any, Callable, TextIO


# -- text for people -------------------------------------------------------------------------------------------------

CELL, LINE = 80, 1000
"""How much of a user's text is shown in a table, and on a line of its own (characters); --json prints all of it."""


def align_rows(rows: "list[list[str]]") -> "list[str]":
    """Return rows, the first one the heading, as aligned lines."""
    rows = [[_cut_text(cell, CELL) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _cut_text(text: str, longest: int) -> str:
    """Return a text, cut to at most longest characters."""
    return text if len(text) <= longest else text[:longest - 3] + "..."


def _escape(text: object) -> str:
    """Return text from a user's file with a question mark for each character that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def _print_text(text: str, stream: "TextIO") -> None:
    """Write text to sys.stdout or sys.stderr, in whatever encoding; what that does not have is escaped."""
    stream.write(text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii"))


# -- images ----------------------------------------------------------------------------------------------------------

def format_row(image: dict) -> "list[str]":
    """Return the cells of an image (from stores.describe_image) in the table."""
    engine = "%s %s" % (image["engine"], image["engine_version"] or "") if image["engine"] else "-"
    return [image["job"], image["owner"], _escape(image["image"]), str(image["generation"] or "-"), _escape(image["created"]),
            format_bytes(image["bytes"]), format_bytes(image["plain_bytes"]) if image["compression"] else "-", _escape(engine).strip(),
            _escape(image["node"] or "-"), image["state"]]


def _list_images(stores: Stores, arguments: "Namespace", config_path: str) -> "tuple[int, dict, list[str]]":
    records = node_records.read_records(config_path) if arguments.nodes else []
    images = [image for image, _entry in stores.list_images(
        extract=functools.partial(node_records.count_nodes, records) if arguments.nodes else None)]
    if not images:
        return 0, {"images": images}, ["no images"]
    rows = [["JOB", "OWNER", "IMAGE", "GEN", "CREATED", "SIZE", "PLAIN", "ENGINE", "NODE", "STATE"]] + list(map(format_row, images))
    lines = []
    if arguments.nodes:
        rows = [row + [cell] for row, cell in zip(rows, ["NODES"] + [str(image.get("nodes", "-")) for image in images])]
        lines = ["no node can restart image %s of job %s: %s"
                 % (_escape(image["image"]), image["job"], _cut_text(_escape(image["why"]), LINE))
                 for image in images if image.get("nodes") == 0]
    return 0, {"images": images}, align_rows(rows) + lines


def describe_manifest(image: dict, manifest: dict) -> "list[list[str]]":
    """Return the content of a manifest for people: rows of label and text."""
    origin = {True: "sealed by root's hooks of this site", False: "NOT sealed by root's hooks of this site",
              None: "unknown: " + ("only root may read the key" if os.geteuid() else "no key")}
    travels = [str(part.get("path", part) if isinstance(part, dict) else part) for part in manifest.get("node_local", [])]
    return [
        ["authentic", origin[image["authentic"]]],
        ["generation", str(image["generation"] or "-")],
        ["created", image["created"]],
        ["node", "%s, kernel %s, %s, %s" % (manifest["node"], manifest["kernel"], manifest["arch"],
                                            manifest.get("libc") or "libc unknown")],
        ["engine", "%s %s" % (image["engine"], image["engine_version"] or "")],
        ["frozen", "%.3f s" % manifest["frozen_seconds"]],
        ["processes", "%d processes and threads" % len(manifest["pids"])],
        ["output", ", ".join("%s from %s" % (part["name"], part["path"]) for part in manifest["spool"]) or "none from pbs_mom's spool"],
        ["local files", ", ".join(travels) or "nothing"],
    ] + [["not in it", ", ".join(map(str, lost))] for lost in [manifest.get("lost")] if lost]


def _describe_size(image: dict) -> str:
    """Return the size of an image (from stores.describe_image) as a text for people."""
    if not image["compression"]:
        return format_bytes(image["bytes"])
    return "%s, compressed by %s from %s" % (format_bytes(image["bytes"]), _escape(image["compression"]),
                                             format_bytes(image["plain_bytes"]))


def _show_image(stores: Stores, arguments: "Namespace", config_path: str) -> "tuple[int, dict, list[str]]":
    pairs = stores.select_images(arguments.image)
    whole = [image for image, _entry in pairs if image["state"] == catalog.WHOLE]
    image, entry = stores.select_images((whole or [image for image, _entry in pairs])[-1]["path"],
                                        extract=lambda _store, manifest: {"manifest": manifest})[0]
    lines = [["job", image["job"]], ["owner", "%s (%d)" % (image["owner"], image["uid"])], ["image", _escape(image["path"])],
             ["state", image["state"] + (": " + _escape(image["problem"]) if image["problem"] else "")], ["size", _describe_size(image)]]
    manifest = entry.get("manifest")
    nodes: "list[dict]" = []
    if manifest is not None:
        lines += describe_manifest(image, manifest)
        for name, record in node_records.read_records(config_path):
            obstacle = node_records.find_obstacle(manifest, record, image["store"])
            nodes.append({"node": name, "fits": not obstacle, "why": obstacle})
    text = ["%-11s %s" % (label, _cut_text(_escape(value), LINE)) for label, value in lines]
    if manifest is not None:
        text += ["", "can be restarted on"] if nodes else ["", "no node is noted beside %s: run site.yml on this host" % config_path]
        text += ["  %s" % " ".join([entry["node"].ljust(max(len(node["node"]) for node in nodes)), "yes" if entry["fits"] else
                                    "no: " + _cut_text(_escape(entry["why"]), LINE)]) for entry in nodes]
    return 0, {"image": image, "manifest": manifest, "nodes": nodes}, text


def _verify_images(stores: Stores, arguments: "Namespace", _config_path: str) -> "tuple[int, dict, list[str]]":
    pairs = stores.select_images(arguments.image, thorough=True)
    lines, code = [], 0
    for image, entry in pairs:
        if image["state"] == catalog.WHOLE:
            verdict = "whole, and sealed by root's hooks of this site"
            if not image["authentic"]:
                verdict = "whole; %s" % ("only root can verify its seal" if os.geteuid() else "its seal cannot be verified without the key")
                code = code if os.geteuid() else max(code, CONFIG)
            lines.append("%s: %s" % (_escape(image["path"]), verdict))
        else:
            lines.append("%s: %s: %s" % (_escape(image["path"]), image["state"], _escape(image["problem"])))
            code = max(code, entry["code"]) if image["state"] != catalog.LEFTOVER else code
    if all(image["state"] == catalog.LEFTOVER for image, _entry in pairs):
        code = DATA
    return code, {"images": [image for image, _entry in pairs]}, lines


# -- removing --------------------------------------------------------------------------------------------------------

def _prune_images(stores: Stores, arguments: "Namespace", _config_path: str) -> "tuple[int, dict, list[str]]":
    settings, dry_run = stores.settings, arguments.dry_run
    removed: "list[dict]" = []
    problems: "list[str]" = []
    if arguments.orphans and os.geteuid() != 0:
        raise HookError(REFUSED, "prune --orphans is for root: it removes images of all users; %s" % orphans.NOTHING)
    lock = None if dry_run or os.geteuid() else _take_lock(settings, "prune", orphans.NOTHING)
    code = 0

    def report(fact: dict) -> None:
        removed.append(fact)
        if fact["action"] == "removed":
            syslog.log_event("prune", **{name: fact[name] for name in ("kind", "job", "owner", "path", "bytes", "action")})

    def prune(path: str, descriptor: int) -> "list[dict]":
        return catalog.prune_job_directory(path, descriptor, settings, dry_run)

    try:
        if arguments.orphans:
            orphans.prune_orphans(settings, dry_run, report, problems)
        for store in settings["stores"]:
            try:
                location.check_mounted(store)
                pruned = catalog.map_job_directories(store, prune, problems)
            except HookError as error:
                problems.append(error.sentence)
                code = error.code
                continue
            for user, facts in pruned:
                for fact in facts:
                    report(dict(fact, owner=user.name))
    finally:
        if lock is not None:
            os.close(lock)
    done = [fact for fact in removed if fact["action"] == "removed"]
    if done:
        metrics.update_counters(settings, lambda counters: _count_removed(counters, done))
    stores.problems += problems
    lines = ["%s: %s of job %s (%s, %s) %s" % (_escape(fact["path"]), fact["kind"], fact["job"], fact["owner"], format_bytes(fact["bytes"]),
                                               fact["action"]) for fact in removed]
    return code or (SYSTEM if problems else 0), {"removed": removed}, lines or [orphans.NOTHING if code else "nothing to remove"]


def _count_removed(counters: metrics.Counters, done: "list[dict]") -> None:
    for fact in done:
        counters.add("ckpt_torque_pruned_total", (fact["kind"],))
        counters.add("ckpt_torque_pruned_bytes_total", (fact["kind"],), fact["bytes"])


def _take_lock(settings: dict, command: str, consequence: str) -> int:
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
        try:
            lock = rootfiles.lock_file(directory, command + ".lock", 0)
        finally:
            os.close(directory)
    except OSError as error:
        raise HookError(SYSTEM, "cannot use %s: %s; see to that directory; %s" % (settings["state_directory"], error.strerror, consequence))
    if lock is None:
        raise HookError(TEMPORARY, "another torque-ckpt %s is at work on this host; wait until it has ended; %s" % (command, consequence))
    return lock


# -- nodes that are down -----------------------------------------------------------------------------------------------

def _handle_node_down(stores: Stores, arguments: "Namespace", _config_path: str) -> "tuple[int, dict, list[str]]":
    if os.geteuid() != 0:
        raise HookError(REFUSED, "node-down is for root: it looks at images of all users; %s" % node_down.NOTHING)
    lock = None if arguments.dry_run else _take_lock(stores.settings, "node-down", node_down.NOTHING)
    facts: "list[dict]" = []
    code = 0

    def report(fact: dict, is_new: bool) -> None:
        facts.append(fact)
        if is_new and not arguments.dry_run:
            syslog.log_event("node_down", **fact)

    try:
        node_down.handle_down_nodes(stores, arguments.dry_run, report)
    except HookError as error:
        if not facts:
            raise
        stores.problems.append(error.sentence)
        code = error.code
    finally:
        if lock is not None:
            os.close(lock)
    stores.problems += ["job %(job)s of %(node)s was %(action)s" % fact for fact in facts if fact["action"].startswith("not queued again")]
    lines = ["%(job)s: %(node)s is down for %(seconds)d s: %(action)s" % fact for fact in facts]
    return code or (SYSTEM if stores.problems else 0), {"jobs": facts}, lines or ["no job runs on a node that is down"]


# -- this node -------------------------------------------------------------------------------------------------------

def _collect_problem(work: "Callable[[], Any]", problems: "list[str]") -> "Any":
    """Return what work() returns; None if it fails, with its sentence added to problems."""
    try:
        return work()
    except HookError as error:
        problems.append(error.sentence)
        return None


def _list_restarted_jobs(settings: dict) -> "list[dict]":
    """Return the jobs that were restarted on this node and still run here."""
    jobs: "list[dict]" = []
    directory = os.path.join(settings["run_directory"], "jobs")
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return jobs
    for name in names:
        if name.endswith(".json"):
            record = records.Records(settings["run_directory"], name[:-5]).read(records.JOB)
            root = processes.find_marked(record["root"]) if record else None
            if root is not None:
                jobs.append({"job": name[:-5], "owner": catalog.find_account(root.uid, 0).name, "pid": root.pid, "name": root.name})
    return jobs


def _is_node(config_path: str) -> bool:
    """Whether this host is one of the compute nodes, and not only one from which users inspect images."""
    nodes = node_records.read_records(config_path)
    return not nodes or any(record and record["node"] == os.uname().nodename for _name, record in nodes)


def _show_status(stores: Stores, _arguments: "Namespace", config_path: str) -> "tuple[int, dict, list[str]]":
    settings = stores.settings
    problems: "list[str]" = []
    is_node = _is_node(config_path)
    engine = _collect_problem(lambda: registry.load_engine(settings), problems) if is_node else None
    version = engine and _collect_problem(engine.read_version, problems)
    if engine:
        _collect_problem(engine.check_node, problems)
    store_states = []
    for store in settings["stores"]:
        def is_mounted(store: dict = store) -> bool:
            location.check_mounted(store)
            return True

        usable = _collect_problem(is_mounted, problems)
        free = None
        if usable:
            status = os.statvfs(store["path"])
            free = status.f_bavail * status.f_frsize
        store_states.append({"path": store["path"], "id": store["id"], "usable": bool(usable), "free_bytes": free})
    keys = [name for name, _secret in stores.keys] if stores.keys is not None else None
    if is_node and keys is None and os.geteuid() == 0 and not stores.problems:
        problems.append("there is no key %s; run the role checkpoint_hooks on this node" % settings["key_path"])
    counters = metrics.read_counters(settings)
    data: "dict[str, Any]" = {
        "node": os.uname().nodename, "engine": {"name": settings["engine"] if is_node else None, "version": version},
        "stores": store_states,
        "versions": {"hooks": VERSION, "manifest": schema.READ[-1], "python": "%d.%d.%d" % sys.version_info[:3],
                     "kernel": os.uname().release},
        "key": {"path": settings["key_path"], "ids": keys}, "jobs": _list_restarted_jobs(settings), "failures": counters.failures}
    engine = "%s %s" % (settings["engine"], version or "NOT USABLE") if is_node else "none, this is not a compute node"
    rows = [["node", data["node"]],
            ["hooks", "%s, manifest format %d, Python %s" % (VERSION, schema.READ[-1], data["versions"]["python"])],
            ["kernel", data["versions"]["kernel"]], ["engine", engine]]
    rows += [["store", "%s (%s), %s" % (store["path"], store["id"], format_bytes(store["free_bytes"]) + " free" if store["usable"] else
                                        "NOT USABLE")] for store in store_states]
    rows += [["keys", ", ".join(keys) if keys else "only root may read them" if os.geteuid() else "NONE"]]
    rows += [["job", "%s of %s, process %d (%s), restarted here" % (job["job"], job["owner"], job["pid"], _escape(job["name"]))]
             for job in data["jobs"]] or [["jobs", "none that was restarted here"]]
    rows += [["failed", "%s %s %s: %s" % (entry.get("time"), entry.get("hook"), entry.get("job"), _escape(entry.get("sentence")))]
             for entry in counters.failures[-5:]]
    stores.problems += problems
    return 0, data, ["%-7s %s" % (label, value) for label, value in rows]


def _run_selftest(stores: Stores, arguments: "Namespace", _config_path: str) -> "tuple[int, dict, list[str]]":
    if os.geteuid() != 0:
        raise HookError(REFUSED, "selftest is for root: the engine needs capabilities that users do not have")
    settings = dict(stores.settings, engine_timeout=arguments.timeout)
    stores.problems[:] = []  # it uses neither stores nor keys
    try:
        result = engine_roundtrip.run_round_trip(settings, arguments.user, arguments.directory, arguments.timeout)
    except engine_roundtrip.NoDirectory as error:
        raise HookError(SYSTEM, str(error))
    result = {name: value for name, value in result.items() if name not in ("level", "nodes")}
    engine = " ".join(filter(None, (result.get("engine", {}).get("name"), result.get("engine", {}).get("version")))) or settings["engine"]
    if not result["passed"]:
        return FOUND_WRONG, result, ["failed: %s: %s" % (engine, _escape(result["cause"]))]
    return 0, result, ["passed: %s froze and revived a process tree of %s, counter %d > %d, image %s, %.2f s" % (
        engine, arguments.user, result["counter_before"], result["counter_after"], format_bytes(result["image_bytes"]),
        sum(phase["seconds"] for phase in result["phases"]))]


def _check_job(stores: Stores, arguments: "Namespace", _config_path: str) -> "tuple[int, dict, list[str]]":
    stores.problems[:] = []  # it uses neither stores nor keys
    result = check.look(stores.settings, arguments.job, arguments.pid)
    lines = [_escape(obstacle["sentence"]) for obstacle in result["obstacles"]]
    return FOUND_WRONG if lines else 0, result, lines or ["nothing stands in the way of a checkpoint"]


_WORK = {"list": _list_images, "show": _show_image, "verify": _verify_images, "prune": _prune_images, "check": _check_job,
         "node-down": _handle_node_down, "status": _show_status, "selftest": _run_selftest}


def main(argv: "list[str]", config_path: str) -> int:
    """Run the command in argv; return the exit code.

    :param argv: with the program
    :param config_path: the hooks' configuration
    """
    top = parser.build_parser()
    try:
        os.umask(0o077)
        if os.geteuid() == 0:  # an engine must find no other configuration by HOME or CRIU_CONFIG_FILE than in a hook
            environment.clear_environment("COLUMNS")
        arguments = top.parse_args(argv[1:])
        if arguments.command is None:
            raise HookError(USAGE, "name a command; see %s --help" % top.prog)
        digest.load_modules()
        stores = Stores(config.load_settings(config_path))
        code, data, lines = _WORK[arguments.command](stores, arguments, config_path)
        if arguments.json:
            sys.stdout.write(json.dumps(dict(data, problems=stores.problems), indent=1, sort_keys=True) + "\n")
        else:
            _print_text("\n".join(lines) + "\n", sys.stdout)
            for problem in stores.problems:
                _print_text("torque-ckpt: %s\n" % _escape(problem), sys.stderr)
        sys.stdout.flush()
        return code or (FOUND_WRONG if stores.problems else 0)
    except HookError as error:
        _print_text("torque-ckpt: %s\n" % _escape(error.sentence), sys.stderr)
        return error.code
    except BrokenPipeError:  # torque-ckpt list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
