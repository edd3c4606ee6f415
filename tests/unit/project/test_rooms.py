"""The rooms of module_utils, and those of the hooks' package in it: which may know which, out of the imports."""
import ast
import pathlib
import subprocess
import sys

import pytest

MODULE_UTILS = pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils"
PACKAGE = MODULE_UTILS / "torque_ckpt"
GROUND = {"errors", "phases", "settings", "units", "version"}
ARROWS = {
    "hooks": {"config", "engines", "files", "image", "job", "nested", "store", "system", "telemetry", "torque"},
    "cli": {"config", "engines", "files", "image", "job", "nested", "selftest", "store", "system", "telemetry", "torque"},
    "ckpt_run": {"job", "nested", "system"},
    "selftest": {"engines", "system"},
    "store": {"image", "system", "telemetry", "torque"},
    "files": {"image", "system"},
    "job": {"system", "telemetry", "torque"},
    "config": {"engines", "image"},
    "nested": {"system"},
    "engines": {"system"},
    "image": {"engines", "system"},
    "telemetry": {"system", "torque"},
    "torque": set(),
    "system": set(),
    "errors": set(), "phases": set(), "settings": set(), "units": set(), "version": set(),
}
"""Which rooms of PACKAGE a room may import, beside GROUND, which all may."""

ONE_FILE = {("files", "image"): {"schema"}, ("config", "image"): {"compressors"}, ("config", "engines"): {"registry"},
            ("image", "engines"): {"registry"}, ("job", "telemetry"): {"syslog"}, ("job", "torque"): {"names"},
            ("store", "telemetry"): {"syslog"}, ("store", "torque"): {"names"}, ("telemetry", "torque"): {"contract"}}
"""Of these rooms one file alone."""

MODULE_ARROWS = {
    "validation": {"torque", "torque_ckpt"},
    "report": {"torque_ckpt"},
    "build": {"torque", "torque_ckpt"},
    "torque": {"install", "torque_ckpt"},
    "store": {"torque_ckpt"},
    "engine": {"torque_ckpt"},
    "snapshot": {"install"},
    "install": set(), "daemon": set(), "inventory": set(), "packages": set(),
    "torque_ckpt": set(),
}
"""Which rooms of MODULE_UTILS a room may import; torque_ckpt is on the nodes without the others."""

HEALTH = 20
"""How many files of the package the health hook may load: pbs_mom asks it every few minutes on each node."""


def files(top):
    return {".".join(path.relative_to(top).with_suffix("").parts): path for path in top.rglob("*.py")}


def imports(top):
    """Return {file: set of files that it imports}, wherever in it."""
    known, imported = files(top), {}
    for name, path in known.items():
        imported[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                parts = name.split(".")[:-node.level] + (node.module.split(".") if node.module else [])
                for alias in node.names:
                    inner = ".".join(parts + [alias.name])
                    outer = ".".join(parts) if ".".join(parts) in known else ".".join(parts + ["__init__"])
                    imported[name].add(inner if inner in known else outer)
    return imported


def room(name):
    return name.split(".")[0]


def find_circle(left):
    """Return those (list of str) that lead to each other, or to such, in a dict of sets; empty if none do."""
    while left:
        free = {name for name, others in left.items() if not others & set(left) - {name}}
        if not free:
            return sorted(left)
        left = {name: others for name, others in left.items() if name not in free}
    return []


@pytest.mark.parametrize("top, arrows, ground, one_file", [
    (PACKAGE, ARROWS, GROUND, ONE_FILE), (MODULE_UTILS, MODULE_ARROWS, set(), {})], ids=["torque_ckpt", "module_utils"])
def test_arrows_go_downwards(top, arrows, ground, one_file):
    wrong = []
    for name, others in imports(top).items():
        for other in others:
            importer, target = room(name), room(other)
            if importer == target or target in ground | {"__init__"}:
                continue
            if target not in arrows[importer] or other.split(".")[-1] not in one_file.get((importer, target), {other.split(".")[-1]}):
                wrong.append("%s imports %s" % (name, other))
    assert not wrong
    assert not find_circle(arrows)


@pytest.mark.parametrize("top, arrows", [(PACKAGE, ARROWS), (MODULE_UTILS, MODULE_ARROWS)], ids=["torque_ckpt", "module_utils"])
def test_rooms_are_those_of_the_list(top, arrows):
    assert {room(name) for name in files(top)} - {"__init__"} == set(arrows)


def test_no_imports_go_in_a_circle():
    assert not find_circle(imports(MODULE_UTILS))


def test_imports_are_relative():
    """Of others imports() knows nothing."""
    assert not [name for name, path in files(MODULE_UTILS).items() if "import ansible_collections" in path.read_text()
                or "from ansible_collections" in path.read_text()]


@pytest.mark.parametrize("engine", ["criu", "blcr"])
def test_health_loads_what_it_needs(engine):
    code = ("import sys; sys.path.insert(0, %r)\nfrom torque_ckpt.hooks import health\nimport torque_ckpt.engines.%s\n"
            "print([name for name, module in sys.modules.items() if name.startswith('torque_ckpt.') and not hasattr(module, '__path__')])")
    done = subprocess.run([sys.executable, "-c", code % (str(PACKAGE.parent), engine)], stdout=subprocess.PIPE, universal_newlines=True,
                          check=True)
    loaded = ast.literal_eval(done.stdout)
    assert len(loaded) <= HEALTH, sorted(loaded)
