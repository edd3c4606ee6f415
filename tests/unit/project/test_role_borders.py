"""Roles keep to themselves: a private variable stays in the role or playbook that sets it, and no path leads into another role."""
import itertools
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (TOP / "roles").iterdir())
PLAYBOOKS = sorted(path.stem for path in TOP.glob("playbooks/*.yml"))
PARTS = sorted(path.stem for path in TOP.glob("playbooks/parts/*.yml"))
PRIVATE = re.compile(r"(?<![A-Za-z0-9_%])__[a-z]\w*(?!\w)")

OUTSIDE = re.compile(r"role_path.*\.\./|(include|import)_\w+: .*\.\./|\b(src|file|vars_files): .*\.\./|lookup\(.*\.\./")


def find_texts(role):
    """Return {path: text} of a role's files that Ansible templates."""
    top = TOP / "roles" / role
    files = itertools.chain(*(top.glob(kind + "/*.yml") for kind in ("defaults", "handlers", "meta", "tasks", "vars")),
                            top.glob("templates/*.j2"))
    return {path.relative_to(TOP): path.read_text() for path in files}


def find_set_names(data):
    """Yield the names of variables that a YAML file sets: keys, results that are registered, variables of loops, of templates."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in ("register", "loop_var", "index_var"):
                yield value
            yield str(key)
            yield from find_set_names(value)
    elif isinstance(data, list):
        for value in data:
            yield from find_set_names(value)
    elif isinstance(data, str):
        for names in re.findall(r"template_vars=\{([^}]*)\}", data):
            yield from re.findall(r"'(\w+)':", names)


def find_private(texts):
    """Return (names used, names set), each a set of str."""
    used = {name for text in texts.values() for name in PRIVATE.findall(text)}
    known = {name for path, text in texts.items() if path.suffix == ".yml" for name in find_set_names(yaml.safe_load(text))}
    known |= {name for text in texts.values() for name in re.findall(r"\{% for (__\w+) in ", text)}
    return used - {"__os_install_post", "__cplusplus"}, known  # RPM's and C++'s


@pytest.mark.parametrize("role", ROLES)
def test_role_uses_its_own_private_variables(role):
    used, known = find_private(find_texts(role))
    assert not used - known  # who else would set them?
    local = {name for text in find_texts(role).values() for names in re.findall(r"template_vars=\{([^}]*)\}", text)
             for name in re.findall(r"'(\w+)':", names)}
    assert not {name for name in used if not name.startswith("__%s_" % role)} - local


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbook_uses_its_own_private_variables(playbook):
    """rollback.yml does with a node what update.yml does, by the same tasks."""
    names = {"rollback": ("rollback", "update")}.get(playbook, (playbook,))
    files = [path for path in TOP.glob("playbooks/**/*.yml")
             if path.stem == playbook or path.stem.startswith(tuple(name + "_" for name in names))]
    files += [path for name in names[1:] for path in TOP.glob("playbooks/vars/%s.yml" % name)]
    used, known = find_private({path.relative_to(TOP): path.read_text() for path in files})
    groups = {name for path in files for name in re.findall(r"(?:key|groups): (__\w+)", path.read_text())}
    assert not used - known - groups
    assert not {name for name in used if not name.startswith(tuple("__%s_" % prefix for prefix in names))}


@pytest.mark.parametrize("part", PARTS)
def test_part_of_several_playbooks_uses_its_own_private_variables(part):
    """What one of these playbooks has found out, another has not."""
    used, known = find_private({path: path.read_text() for path in TOP.glob("playbooks/parts/%s.yml" % part)})
    assert not used - known
    assert not {name for name in used if not name.startswith("__%s_" % part)}


@pytest.mark.parametrize("role", ROLES)
def test_no_path_leaves_its_role(role):
    assert not {path: line for path, text in find_texts(role).items() for line in text.splitlines() if OUTSIDE.search(line)}


def test_every_entry_point_that_others_use_is_specified():
    """Other roles, playbooks and scenarios enter by tasks_from; what an entry point takes, its argument_specs say."""
    entry_points = {}
    for path in itertools.chain(TOP.glob("roles/*/*/*.yml"), TOP.glob("playbooks/**/*.yml"), TOP.glob("molecule/**/*.yml")):
        for role, entry in re.findall(r"name: ckpt\.torque\.(\w+)\n\s+tasks_from: (\w+)", path.read_text()):
            entry_points.setdefault(role, set()).add(entry)
    assert entry_points["torque_build"] == {"ask", "bundle", "install", "package", "ports", "publish", "repack", "space", "tarball"}
    for role, entries in entry_points.items():
        specs = yaml.safe_load((TOP / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
        assert not entries - set(specs), role
