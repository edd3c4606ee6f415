"""A server that cannot be reached in the middle of an update fails each node of the batch by itself, so that each is released and noted."""
import playbooks
import yaml

DOWN = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def test_server_that_cannot_be_reached_does_not_end_the_run(tmp_path):
    tasks = yaml.safe_load((playbooks.TOP / "playbooks/tasks/update_drain.yml").read_text())
    move, = [task for task in tasks if task["name"] == "Move the jobs of the nodes to other nodes, or wait for them"]
    answer = {"ansible.builtin.set_fact": {"answer": "{{ 'moved' if __update_moved.nodes is defined else 'not moved' }}"}}
    variables = {"__update_server": "case1", "__update_torque": "/nonexistent"}  # the second of the cases
    answers = playbooks.answers(tmp_path, {"node": {}, "server": DOWN}, [move, answer], variables)
    assert answers == {"node": "not moved", "server": "not moved"}
