"""A queue may lead to the store itself, or to the directories of its users, by what the store is."""
import playbooks
import yaml

PREFLIGHT = playbooks.TOP / "roles/torque_server/tasks/preflight.yml"
TASK = "Check that queues lead to the directories of users"
CASES = {
    "the store itself": ({}, {"batch": {"checkpoint_dir": "/shared/ckpt"}}, ""),
    "directories of users": ({"checkpoint_store_user_directories_enabled": True},
                             {"batch": {"checkpoint_dir": "/shared/ckpt/$USER"}, "own": {"checkpoint_dir": "/shared/ckpt/alice"},
                              "fast": {"checkpoint_dir": "/fast/ckpt"}, "none": {"checkpoint_dir": None}, "plain": {}}, ""),
    "the store itself instead": ({"checkpoint_store_user_directories_enabled": "yes", "checkpoint_store_path": "/s/ckpt"},
                                 {"batch": {"checkpoint_dir": "/s/ckpt"}, "long": {"checkpoint_dir": "/s/ckpt/"},
                                  "own": {"checkpoint_dir": "/s/ckpt/$USER"}},
                                 "case2: the checkpoint_dir of batch, long (torque_server_queues) is the store itself, but with "
                                 "checkpoint_store_user_directories_enabled images lie in the directories of their users; set it to "
                                 "/s/ckpt/$USER; nothing was changed."),
}


def test_which_directories_are_refused(tmp_path):
    check, = [task for task in yaml.safe_load(PREFLIGHT.read_text()) if task["name"] == TASK]
    cases = {name: dict(variables, torque_server_queues={"old": "absent", **queues})
             for name, (variables, queues, _sentence) in CASES.items()}
    answers = playbooks.answers(tmp_path, cases, [
        dict(check, register="__checked", ignore_errors=True),
        {"ansible.builtin.set_fact": {"answer": "{{ __checked.msg if __checked is failed else '' }}"}}], {})
    assert answers == {name: sentence for name, (_variables, _queues, sentence) in CASES.items()}
