"""A node to be crashed that does not answer costs its own result, not the report of the run."""
import playbooks
import pytest
import yaml

DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
CRASH = {"unit": "crash.service", "seconds": 1, "user": "nobody", "file": "/nonexistent/crash"}
ROUND = {"__validate_crashes": True, "__validate_crash": CRASH, "validate_crash_node": "case1",  # the second of the cases
         "validate_boot_timeout": 1}


@pytest.mark.parametrize("name", ["Schedule the crash of the node", "Wait until the node is back", "Cancel the crash of the node"])
def test_run_goes_on_without_the_node(tmp_path, name):
    tasks = yaml.safe_load((playbooks.TOP / "playbooks/tasks/validate_round.yml").read_text())
    task, = [task for task in tasks if task["name"] == name]
    answer = {"ansible.builtin.set_fact": {"answer": "goes on"}}
    assert playbooks.answers(tmp_path, {"up": {}, "down": DOWN}, [task, answer], ROUND) == {"up": "goes on", "down": "goes on"}
