"""The export of a previous store stays while checkpoint_store_additional_stores names it: nodes have it mounted."""
import json

import playbooks
import yaml

ROLE = playbooks.TOP / "roles/checkpoint_store"
EXPORTS = "/etc/exports.d/ckpt-torque.exports"
HEADING = "# Written by the role ckpt.torque.checkpoint_store.\n"
OLD = "/srv/ckpt 192.0.2.0/24(rw,fsid=7)\n"
NEW = "/srv/new 192.0.2.0/25(rw,fsid=8)\n"


def list_tasks(top, path):
    """Return the role's tasks that read, write or remove the exports (list of dict), with another path of the file.

    :param top: a directory for the task file that is included (pathlib.Path)
    """
    def load(page):
        tasks = yaml.safe_load((ROLE / "tasks" / page).read_text())
        return {task["name"]: task for task in json.loads(json.dumps(tasks).replace(EXPORTS, path))}
    main, export = load("main.yml"), load("export.yml")["Write the export"]
    (top / "earlier_exports.yml").write_text(yaml.safe_dump(list(load("earlier_exports.yml").values())))
    export["when"] = main["Export the store"]["when"]
    export["ansible.builtin.template"]["src"] = str(ROLE / "templates/exports.j2")
    tasks = [main["Read the earlier exports"], export, main["Remove an earlier export"]]
    for task in tasks:
        task.pop("notify", None)
    return tasks


def test_export_of_a_previous_store(tmp_path):
    previous = [{"path": "/srv/ckpt", "id": "default"}]
    exports = {"checkpoint_store_export_clients": ["192.0.2.0/25"], "checkpoint_store_export_options": ["rw", "fsid=8"]}
    cases = {
        "named": (dict(exports, checkpoint_store_additional_stores=previous), HEADING + NEW + OLD),
        "not named": (exports, HEADING + NEW),
        "of another name": (dict(exports, checkpoint_store_additional_stores=[{"path": "/srv", "id": "default"}]), HEADING + NEW),
        "used again": (dict(exports, checkpoint_store_path="/srv/ckpt", checkpoint_store_additional_stores=previous),
                       HEADING + NEW.replace("new", "ckpt")),
        "named, and nothing else exported": ({"checkpoint_store_additional_stores": previous}, HEADING + OLD),
        "own one not wanted any more": ({"checkpoint_store_additional_stores": previous}, HEADING + OLD),
        "nothing exported": ({}, None),
    }
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    for case in cases:
        (tmp_path / case).write_text(HEADING + (NEW if case.startswith("own") else "") + OLD)
    hosts = {case: dict(defaults, checkpoint_store_path="/srv/new", exports=str(tmp_path / case)) for case in cases}
    for case, (variables, _expected) in cases.items():
        hosts[case].update(variables)
    load = {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")}
    end = {"ansible.builtin.set_fact": {"answer": ""}}
    for _run in range(2):
        playbooks.answers(tmp_path, hosts, [load, *list_tasks(tmp_path, "{{ exports }}"), end], {})
        assert {case: (tmp_path / case).read_text() if (tmp_path / case).exists() else None for case in cases} == {
            case: expected for case, (_variables, expected) in cases.items()}


def test_exports_that_cannot_be_read(tmp_path):
    """They are not taken for none: the host fails, and no line is lost."""
    tasks = list_tasks(tmp_path, str(tmp_path / "exports"))
    (tmp_path / "exports").mkdir()
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    case = dict(defaults, checkpoint_store_path="/srv/new", checkpoint_store_additional_stores=[{"path": "/srv/ckpt", "id": "default"}])
    rescue = [{"ansible.builtin.set_fact": {"answer": "{{ ansible_failed_task.name }}"}}]
    load = {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")}
    found = playbooks.answers(tmp_path, {"case": case}, [{"block": [load, *tasks], "rescue": rescue}], {})
    assert found == {"case": "Read the earlier exports"}
    assert (tmp_path / "exports").is_dir()
