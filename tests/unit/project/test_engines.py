"""A further engine is a file, an entry in the registry and a role: nothing else in plugins/, playbooks/ and the other roles names one."""
import ast
import re

import pytest
import yaml

from paths import TOP
from program_texts import find_words
from torque_ckpt.engines import registry

NAMES = re.compile("|".join(registry.list_names()), re.IGNORECASE)
OWN = {
    "module_utils/engine/blcr_kernel.py": "what BLCR's modules ask of a kernel, for its role",
    "modules/blcr_info.py": "the same",
    "filter/blcr.py": "sentences of its role",
    "filter/adoption.py": "an option of TORQUE's configure, which is left out",
}
"""Files beside the room engines that name one, and why."""
FILES = [name for name in sorted(str(path.relative_to(TOP / "plugins")) for path in (TOP / "plugins").rglob("*.py"))
         if "/engines/" not in name and name not in OWN]


def find_engines(name):
    return [word for word in find_words(ast.parse((TOP / "plugins" / name).read_text())) if NAMES.search(word)]


@pytest.mark.parametrize("name", FILES)
def test_file_names_no_engine(name):
    assert find_engines(name) == []


@pytest.mark.parametrize("name", sorted(OWN))
def test_file_of_the_list_does_name_one(name):
    assert find_engines(name)


GENERATED = re.compile("# engines: begin.*# engines: end", re.DOTALL)
OPTION = "enable-blcr"
"""TORQUE's own option of that name, which is refused."""


def list_files():
    """Return the files of playbooks and of the roles that are no engine's."""
    roles = [path for path in (TOP / "roles").iterdir() if path.name not in registry.list_names()]
    return sorted(path for top in roles + [TOP / "playbooks"] for path in top.rglob("*") if path.suffix in (".yml", ".j2"))


def find_yaml_words(data):
    """Yield every key and text (str) of what a YAML file holds, descriptions apart."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield str(key)
            if key not in ("description", "short_description", "purpose", "name"):
                yield from find_yaml_words(value)
    elif isinstance(data, list):
        for value in data:
            yield from find_yaml_words(value)
    else:
        yield str(data)


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(TOP)))
def test_role_or_playbook_names_no_engine(path):
    text = GENERATED.sub("", path.read_text())
    words = find_yaml_words(yaml.safe_load(text)) if path.suffix == ".yml" else [text]
    assert not [word for word in words if NAMES.search(word) and OPTION not in word]
