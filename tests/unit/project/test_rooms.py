"""The rooms of the hooks' package: which may know which, out of the imports."""
import ast
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils/torque_ckpt"
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
"""Which rooms a room may import, beside GROUND, which all may."""

ONE_FILE = {("files", "image"): {"schema"}, ("config", "image"): {"compressors"}, ("config", "engines"): {"registry"},
            ("image", "engines"): {"registry"}, ("job", "telemetry"): {"syslog"}, ("job", "torque"): {"names"},
            ("store", "telemetry"): {"syslog"}, ("store", "torque"): {"names"}, ("telemetry", "torque"): {"contract"}}
"""Of these rooms one file alone."""

HEALTH = 20
"""How many files of the package the health hook may load: pbs_mom asks it every few minutes on each node."""


def files():
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}


def imports():
    """Return {file: set of files that it imports}, wherever in it."""
    known, imported = files(), {}
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


def test_arrows_go_downwards():
    wrong = []
    for name, others in imports().items():
        for other in others:
            importer, target = room(name), room(other)
            if importer == target or target in GROUND | {"__init__"}:
                continue
            if target not in ARROWS[importer] or other.split(".")[-1] not in ONE_FILE.get((importer, target), {other.split(".")[-1]}):
                wrong.append("%s imports %s" % (name, other))
    assert not wrong


def test_rooms_are_those_of_the_list():
    assert {room(name) for name in files()} - {"__init__"} == set(ARROWS)


def test_no_imports_go_in_a_circle():
    left = imports()
    while left:
        free = {name for name, others in left.items() if not others & set(left) - {name}}
        assert free, "these import each other: %s" % sorted(left)
        left = {name: others for name, others in left.items() if name not in free}


@pytest.mark.parametrize("engine", ["criu", "blcr"])
def test_health_loads_what_it_needs(engine):
    code = ("import sys; sys.path.insert(0, %r)\nfrom torque_ckpt.hooks import health\nimport torque_ckpt.engines.%s\n"
            "print([name for name, module in sys.modules.items() if name.startswith('torque_ckpt.') and not hasattr(module, '__path__')])")
    done = subprocess.run([sys.executable, "-c", code % (str(PACKAGE.parent), engine)], stdout=subprocess.PIPE, universal_newlines=True,
                          check=True)
    loaded = ast.literal_eval(done.stdout)
    assert len(loaded) <= HEALTH, sorted(loaded)
