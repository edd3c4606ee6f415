"""A further engine is a file, an entry in the registry and a role: nothing else in plugins/ names an engine."""
import ast
import re

import pytest

from paths import TOP
from torque_ckpt.engines import registry

NAMES = re.compile("|".join(registry.list_names()), re.IGNORECASE)
OWN = {
    "module_utils/engine/blcr_kernel.py": "what BLCR's modules ask of a kernel, for its role",
    "modules/blcr_info.py": "the same",
    "modules/torque_artifact.py": "BLCR is one of the two products that are built once",
    "modules/torque_artifact_info.py": "the same",
    "action/torque_artifact.py": "the same",
    "filter/blcr.py": "sentences of its role",
    "filter/plan.py": "what blcr_info reports, and the sentence on a node without CRIU",
}
"""Files beside the room engines that name one, and why."""
PROSE = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
FILES = [name for name in sorted(str(path.relative_to(TOP / "plugins")) for path in (TOP / "plugins").rglob("*.py"))
         if "/engines/" not in name and name not in OWN]


def find_words(node):
    """Yield every name and text (str) of a program, prose apart: docstrings, texts that stand alone, a module's documentation."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Assign) and getattr(child.targets[0], "id", "") in PROSE:
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module", "value"):
            word = getattr(child, field, None)
            if isinstance(word, str):
                yield word
        yield from find_words(child)


def find_engines(name):
    return [word for word in find_words(ast.parse((TOP / "plugins" / name).read_text())) if NAMES.search(word)]


@pytest.mark.parametrize("name", FILES)
def test_file_names_no_engine(name):
    assert find_engines(name) == []


@pytest.mark.parametrize("name", sorted(OWN))
def test_file_of_the_list_does_name_one(name):
    assert find_engines(name)
