"""torque-ckpt: what images there are, whether they are whole and where they can be restarted; and removing what nobody needs.

For root, who sees everything, and for users, who see what is theirs. Root becomes the owner before it looks into a user's
directory. This is the one program of the package that is not on a job's way, so it may import what it likes.
"""
import json
import os
import sys

from .. import VERSION, config
from ..engines import registry
from ..errors import HookError, CONFIG, DATA, NO_INPUT, REFUSED, SYSTEM, TEMPORARY, USAGE
from ..image import digest, schema, seal
from ..job import records
from ..selftest import engine_roundtrip
from ..store import catalog, location
from ..system import environment, processes, rootfiles
from ..telemetry import metrics, syslog
from ..torque.names import find_job_id, get_directory_name, get_job_number, is_job_id
from ..units import format_bytes
from . import node_down, node_records, orphans, parser
from .parser import FOUND_WRONG


# -- what people read ------------------------------------------------------------------------------------------------

CELL, LINE = 80, 1000
"""How much of a text of a user's is shown in a table, and on a line of its own (characters); --json has all of it."""


def table(rows):
    """Return rows (lists of str, the first one the heading) as aligned lines (list of str)."""
    rows = [[_cut(cell, CELL) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _cut(text, most):
    """Return a text (str), or what there is room for of it (int, characters)."""
    return text if len(text) <= most else text[:most - 3] + "..."


def _plain(text):
    """Return text from a user's file without what a terminal would obey (str)."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def _print(text, stream):
    """Write text (str) to sys.stdout or sys.stderr, in whatever encoding; what that does not have is escaped."""
    stream.write(text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii"))


# -- images ----------------------------------------------------------------------------------------------------------

def describe(place, user, job_id, entry):
    """Return what --json says of an image; parser.IMAGE_KEYS names the keys."""
    found = {name: entry[name] for name in ("path", "state", "problem", "generation", "bytes", "compression", "plain_bytes", "engine",
                                            "engine_version", "node", "bound", "authentic")}
    return dict(found, job=job_id, owner=user.name, uid=user.uid, image=entry["name"], store=place["id"],
                created=entry["created"] or entry["changed"])


class Stores:
    """The images in this host's stores, as far as we may see them.

    :param settings: dict from config.load
    """

    def __init__(self, settings):
        self.settings = settings
        self.problems = []
        self.keys = None
        if os.geteuid() == 0:
            try:
                self.keys = seal.Keys(settings["key_path"]) if os.path.lexists(settings["key_path"]) else None
            except HookError as error:
                self.problems.append("images cannot be authenticated: %s" % error.sentence)

    def images(self, only=None, also=(), wanted=None, thorough=False, full=False):
        """Return [(what --json says of an image, its entry of catalog.examine_job_directory), ...], by job and age.

        :param only, also: see catalog.map_job_directories
        :param wanted: names of images (set of str), default all
        :param thorough: read every byte (bool)
        :param full: with the manifests, for few images (bool)
        """
        prove = seal.ask_to_verify if self.keys is not None else None

        def look(path, descriptor):
            return catalog.examine_job_directory(path, descriptor, self.settings, thorough, wanted, prove, full)

        def answer(question):
            _kind, facts, shown = question
            return seal.check_seal(self.keys, facts, shown)

        found = []
        for place in self.settings["stores"]:
            try:
                location.check_mounted(place)
                jobs = catalog.map_job_directories(place, look, self.problems, only, also, answer, None if thorough else catalog.DEADLINE)
            except HookError as error:
                self.problems.append(error.sentence)
                continue
            found += [(describe(place, user, job["job"], entry), entry) for user, job in jobs for entry in job["images"]]
        return sorted(found, key=lambda pair: (int(get_job_number(pair[0]["job"])), pair[0]["job"], pair[0]["generation"] or 0,
                                               pair[0]["created"], pair[0]["image"]))

    def select(self, what, thorough=False, full=False):
        """Return the images that what (str) means, as images() does: of a job, of a name or at a path.

        :raises HookError: NO_INPUT when there is none, USAGE when it means several jobs
        """
        if "/" in what:
            path = os.path.abspath(what)
            directory, name = (path, None) if find_job_id(os.path.basename(path)) else os.path.split(path)
            found = self.images(lambda job: job == directory, [os.path.basename(directory)], name and {name}, thorough, full)
        elif is_job_id(what):
            def is_meant(job):
                job_id = find_job_id(os.path.basename(job))
                return job_id == what or job_id.partition(".")[0] == what
            found = self.images(is_meant, [get_directory_name(what)], None, thorough)
        else:
            found = self.images(None, (), {what}, thorough)
        jobs = sorted({image["job"] for image, _entry in found})
        if not found:
            raise HookError(NO_INPUT, "there is no image %s in the stores of this host (%s)%s%s" % (
                ascii(what), ", ".join(place["path"] for place in self.settings["stores"]),
                "" if os.geteuid() == 0 else " that is yours", "".join("; " + problem for problem in self.problems)))
        if len(jobs) > 1:
            raise HookError(USAGE, "%s means several jobs (%s); name one in full" % (ascii(what), ", ".join(jobs)))
        return found


def row(image):
    """Return the cells (list of str) of an image (what --json says of it) in the table."""
    engine = "%s %s" % (image["engine"], image["engine_version"] or "") if image["engine"] else "-"
    return [image["job"], image["owner"], _plain(image["image"]), str(image["generation"] or "-"), _plain(image["created"]),
            format_bytes(image["bytes"]), format_bytes(image["plain_bytes"]) if image["compression"] else "-", _plain(engine).strip(),
            _plain(image["node"] or "-"), image["state"]]


def _list(stores, _arguments, _config_path):
    images = [image for image, _entry in stores.images()]
    heading = ["JOB", "OWNER", "IMAGE", "GEN", "CREATED", "SIZE", "PLAIN", "ENGINE", "NODE", "STATE"]
    return 0, {"images": images}, table([heading] + [row(image) for image in images]) if images else ["no images"]


def facts_of(image, facts):
    """Return what a manifest (dict) says, for people: rows of label and text."""
    origin = {True: "made by root's hooks of this site", False: "NOT made by root's hooks of this site",
              None: "cannot be told: " + ("only root may read the key" if os.geteuid() else "no key")}
    carried = [str(part.get("path", part) if isinstance(part, dict) else part) for part in facts.get("carried", [])]
    return [
        ["authentic", origin[image["authentic"]]],
        ["generation", str(image["generation"] or "-")],
        ["created", image["created"]],
        ["made on", "%s, kernel %s, %s, %s" % (facts["node"], facts["kernel"], facts["arch"], facts.get("libc") or "libc unknown")],
        ["engine", "%s %s" % (image["engine"], image["engine_version"] or "")],
        ["frozen", "%.3f s" % facts["frozen_seconds"]],
        ["processes", "%d processes and threads" % len(facts["pids"])],
        ["output", ", ".join("%s from %s" % (part["name"], part["path"]) for part in facts["spool"]) or "none from pbs_mom's spool"],
        ["carried", ", ".join(carried) or "nothing"],
    ] + [["not in it", ", ".join(map(str, lost))] for lost in [facts.get("lost")] if lost]


def _size(image):
    """Return how large an image (what --json says of it) is, for people (str)."""
    if not image["compression"]:
        return format_bytes(image["bytes"])
    return "%s, compressed by %s from %s" % (format_bytes(image["bytes"]), _plain(image["compression"]), format_bytes(image["plain_bytes"]))


def _show(stores, arguments, config_path):
    found = stores.select(arguments.what)
    whole = [image for image, _entry in found if image["state"] == catalog.WHOLE]
    image, entry = stores.select((whole or [image for image, _entry in found])[-1]["path"], full=True)[0]
    lines = [["job", image["job"]], ["owner", "%s (%d)" % (image["owner"], image["uid"])], ["image", _plain(image["path"])],
             ["state", image["state"] + (": " + _plain(image["problem"]) if image["problem"] else "")], ["size", _size(image)]]
    facts, nodes = entry.get("manifest"), []
    if facts is not None:
        lines += facts_of(image, facts)
        for name, record in node_records.nodes(config_path):
            why = node_records.why_not(facts, record, image["store"])
            nodes.append({"node": name, "fits": not why, "why": why})
    text = ["%-11s %s" % (label, _cut(_plain(value), LINE)) for label, value in lines]
    if facts is not None:
        text += ["", "can be restarted on"] if nodes else ["", "no node is noted beside %s: run site.yml on this host" % config_path]
        text += ["  %s" % " ".join([entry["node"].ljust(max(len(node["node"]) for node in nodes)), "yes" if entry["fits"] else
                                    "no: " + _cut(_plain(entry["why"]), LINE)]) for entry in nodes]
    return 0, {"image": image, "manifest": facts, "nodes": nodes}, text


def _verify(stores, arguments, _config_path):
    found = stores.select(arguments.what, thorough=True)
    lines, code = [], 0
    for image, entry in found:
        if image["state"] == catalog.WHOLE:
            said = "whole, and made by root's hooks of this site"
            if not image["authentic"]:
                said = "whole; who made it %s" % ("can be told by root only" if os.geteuid() else "cannot be told without the key")
                code = code if os.geteuid() else max(code, CONFIG)
            lines.append("%s: %s" % (_plain(image["path"]), said))
        else:
            lines.append("%s: %s: %s" % (_plain(image["path"]), image["state"], _plain(image["problem"])))
            code = max(code, entry["code"]) if image["state"] != catalog.LEFTOVER else code
    if all(image["state"] == catalog.LEFTOVER for image, _entry in found):
        code = DATA
    return code, {"images": [image for image, _entry in found]}, lines


# -- removing --------------------------------------------------------------------------------------------------------

def _prune(stores, arguments, _config_path):
    settings, dry_run, removed, problems = stores.settings, arguments.dry_run, [], []
    if arguments.orphans and os.geteuid() != 0:
        raise HookError(REFUSED, "prune --orphans is for root: it removes images of all users; nothing was removed")
    lock = None if dry_run or os.geteuid() else _lock(settings, "prune", "nothing was removed")

    def say(fact):
        removed.append(fact)
        if fact["action"] == "removed":
            syslog.log_event("prune", **{name: fact[name] for name in ("kind", "job", "owner", "path", "bytes", "action")})

    try:
        if arguments.orphans:
            orphans.prune(settings, dry_run, say, problems)
        for place in settings["stores"]:
            location.check_mounted(place)
            for user, facts in catalog.map_job_directories(
                    place, lambda path, descriptor: catalog.prune_job_directory(path, descriptor, settings, dry_run), problems):
                for fact in facts:
                    say(dict(fact, owner=user.name))
    finally:
        if lock is not None:
            os.close(lock)
    done = [fact for fact in removed if fact["action"] == "removed"]
    if done:
        metrics.update(settings, lambda counters: _count(counters, done))
    stores.problems += problems
    lines = ["%s: %s of job %s (%s, %s) %s" % (_plain(fact["path"]), fact["kind"], fact["job"], fact["owner"], format_bytes(fact["bytes"]),
                                               fact["action"]) for fact in removed]
    return SYSTEM if problems else 0, {"removed": removed}, lines or ["nothing to remove"]


def _count(counters, done):
    for fact in done:
        counters.add("ckpt_torque_pruned_total", (fact["kind"],))
        counters.add("ckpt_torque_pruned_bytes_total", (fact["kind"],), fact["bytes"])


def _lock(settings, command, nothing):
    try:
        directory = rootfiles.open_directory(settings["state_directory"])
        try:
            lock = rootfiles.lock_file(directory, command + ".lock", 0)
        finally:
            os.close(directory)
    except OSError as error:
        raise HookError(SYSTEM, "cannot use %s: %s; %s" % (settings["state_directory"], error.strerror, nothing))
    if lock is None:
        raise HookError(TEMPORARY, "another torque-ckpt %s is at work on this host; %s" % (command, nothing))
    return lock


# -- nodes that are down -----------------------------------------------------------------------------------------------

def _node_down(stores, arguments, _config_path):
    if os.geteuid() != 0:
        raise HookError(REFUSED, "node-down is for root: it looks at images of all users; %s" % node_down.NOTHING)
    lock = None if arguments.dry_run else _lock(stores.settings, "node-down", node_down.NOTHING)
    found = []

    def say(fact, is_new):
        found.append(fact)
        if is_new and not arguments.dry_run:
            syslog.log_event("node_down", **fact)

    try:
        node_down.look(stores, arguments.dry_run, say)
    finally:
        if lock is not None:
            os.close(lock)
    stores.problems += ["job %(job)s of %(node)s was %(action)s" % fact for fact in found if fact["action"].startswith("not queued again")]
    lines = ["%(job)s: %(node)s is down for %(seconds)d s: %(action)s" % fact for fact in found]
    return SYSTEM if stores.problems else 0, {"jobs": found}, lines or ["no job runs on a node that is down"]


# -- this node -------------------------------------------------------------------------------------------------------

def _attempt(work, problems):
    """Return what work() returns; where it fails, None, with its sentence added to problems."""
    try:
        return work()
    except HookError as error:
        problems.append(error.sentence)
        return None


def _jobs(settings):
    """Return the jobs that were restarted on this node and still run here (list of dict)."""
    found, top = [], os.path.join(settings["run_directory"], "jobs")
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return found
    for name in names:
        if name.endswith(".json"):
            record = records.Records(settings["run_directory"], name[:-5]).read(records.JOB)
            root = processes.find_marked(record["root"]) if record else None
            if root is not None:
                found.append({"job": name[:-5], "owner": catalog.find_account(root.uid, 0).name, "pid": root.pid, "name": root.name})
    return found


def _is_node(config_path):
    """Whether this host is one of the nodes, and not only one where people look at images."""
    noted = node_records.nodes(config_path)
    return not noted or any(record and record["node"] == os.uname().nodename for _name, record in noted)


def _status(stores, _arguments, config_path):
    settings, problems = stores.settings, []
    is_node = _is_node(config_path)
    engine = _attempt(lambda: registry.get(settings), problems) if is_node else None
    version = engine and _attempt(engine.version, problems)
    if engine:
        _attempt(engine.check, problems)
    places = []
    for place in settings["stores"]:
        usable = _attempt(lambda place=place: location.check_mounted(place) is None, problems)
        free = None
        if usable:
            there = os.statvfs(place["path"])
            free = there.f_bavail * there.f_frsize
        places.append({"path": place["path"], "id": place["id"], "usable": bool(usable), "free_bytes": free})
    keys = [name for name, _secret in stores.keys] if stores.keys is not None else None
    if is_node and keys is None and os.geteuid() == 0 and not stores.problems:
        problems.append("there is no key %s; run the role checkpoint_hooks on this node" % settings["key_path"])
    counters = metrics.read(settings)
    data = {"node": os.uname().nodename, "engine": {"name": settings["engine"] if is_node else None, "version": version}, "stores": places,
            "versions": {"hooks": VERSION, "manifest": schema.READ[-1], "python": "%d.%d.%d" % sys.version_info[:3],
                         "kernel": os.uname().release},
            "key": {"path": settings["key_path"], "ids": keys}, "jobs": _jobs(settings), "failures": counters.failures}
    engine = "%s %s" % (settings["engine"], version or "NOT USABLE") if is_node else "none, this is not a compute node"
    said = [["node", data["node"]],
            ["hooks", "%s, manifest format %d, Python %s" % (VERSION, schema.READ[-1], data["versions"]["python"])],
            ["kernel", data["versions"]["kernel"]], ["engine", engine]]
    said += [["store", "%s (%s), %s" % (place["path"], place["id"], format_bytes(place["free_bytes"]) + " free" if place["usable"] else
                                        "NOT USABLE")] for place in places]
    said += [["keys", ", ".join(keys) if keys else "only root may read them" if os.geteuid() else "NONE"]]
    said += [["job", "%s of %s, process %d (%s), restarted here" % (job["job"], job["owner"], job["pid"], _plain(job["name"]))]
             for job in data["jobs"]] or [["jobs", "none that was restarted here"]]
    said += [["failed", "%s %s %s: %s" % (entry.get("time"), entry.get("hook"), entry.get("job"), _plain(entry.get("sentence")))]
             for entry in counters.failures[-5:]]
    stores.problems += problems
    return 0, data, ["%-7s %s" % (label, value) for label, value in said]


def _selftest(stores, arguments, _config_path):
    if os.geteuid() != 0:
        raise HookError(REFUSED, "selftest is for root: the engine needs capabilities that users do not have")
    settings = dict(stores.settings, engine_timeout=arguments.timeout)
    stores.problems[:] = []  # it uses neither stores nor keys
    try:
        found = engine_roundtrip.run(settings, arguments.user, arguments.directory, arguments.timeout)
    except engine_roundtrip.NoPlace as error:
        raise HookError(SYSTEM, str(error))
    found = {name: value for name, value in found.items() if name not in ("level", "nodes")}
    engine = " ".join(filter(None, (found.get("engine", {}).get("name"), found.get("engine", {}).get("version")))) or settings["engine"]
    if not found["passed"]:
        return FOUND_WRONG, found, ["failed: %s: %s" % (engine, _plain(found["cause"]))]
    return 0, found, ["passed: %s froze and revived a process tree of %s, counter %d > %d, image %s, %.2f s" % (
        engine, arguments.user, found["counter_before"], found["counter_after"], format_bytes(found["image_bytes"]),
        sum(phase["seconds"] for phase in found["phases"]))]


_WORK = {"list": _list, "show": _show, "verify": _verify, "prune": _prune, "node-down": _node_down, "status": _status,
         "selftest": _selftest}


def main(argv, config_path):
    """Do what argv says; return the exit code (int).

    :param argv: list of str
    :param config_path: the hooks' configuration (str)
    """
    top = parser.parser()
    try:
        os.umask(0o077)
        if os.geteuid() == 0:  # an engine must find no other configuration by HOME or CRIU_CONFIG_FILE than in a hook
            environment.clear_environment("COLUMNS")
        arguments = top.parse_args(argv[1:])
        if arguments.command is None:
            raise HookError(USAGE, "name a command; see %s --help" % top.prog)
        digest.load_modules()
        stores = Stores(config.load(config_path))
        code, data, lines = _WORK[arguments.command](stores, arguments, config_path)
        if arguments.json:
            sys.stdout.write(json.dumps(dict(data, problems=stores.problems), indent=1, sort_keys=True) + "\n")
        else:
            _print("\n".join(lines) + "\n", sys.stdout)
            for problem in stores.problems:
                _print("torque-ckpt: %s\n" % _plain(problem), sys.stderr)
        sys.stdout.flush()
        return code or (FOUND_WRONG if stores.problems else 0)
    except HookError as error:
        _print("torque-ckpt: %s\n" % _plain(error.sentence), sys.stderr)
        return error.code
    except BrokenPipeError:  # torque-ckpt list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
