"""maui.cfg: what the role maui does to one that the site has tuned."""
import playbooks
import pytest
import yaml

ROLE = playbooks.TOP / "roles/maui"
TUNED = "SERVERHOST head\nFSPOLICY DEDICATEDPS\n"


@pytest.mark.root
def test_configuration_of_the_site_is_kept(tmp_path):
    (tmp_path / "maui.cfg").write_text(TUNED)
    defaults, internal = [yaml.safe_load((ROLE / kind / "main.yml").read_text()) for kind in ("defaults", "vars")]
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    task, = [task for task in tasks if task["name"] == "Write Maui's configuration"]
    task["ansible.builtin.template"]["src"] = str(ROLE / "templates/maui.cfg.j2")
    given = dict(defaults, maui_home=str(tmp_path), __maui_found={"stdout_lines": ["head"]})
    steps = [dict(task, register="written"), {"ansible.builtin.set_fact": {"answer": "{{ written.backup_file }}"}}]
    answers = playbooks.answers(tmp_path, {"tuned": given}, steps, internal)
    assert (tmp_path / "maui.cfg").read_text().startswith("# Written by the role ckpt.torque.maui.\n")
    kept, = tmp_path.glob("maui.cfg.*~")
    assert (answers, kept.read_text()) == ({"tuned": str(kept)}, TUNED)
