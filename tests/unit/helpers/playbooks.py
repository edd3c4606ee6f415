"""What a role's variables come to, asked of ansible-playbook on this host: each case is a host of its own, all in one run."""
import json
import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[3]
ANSWERS = "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'answer'))) | to_json }}"


def answers(top, cases, tasks, variables, serial=0, check=False):
    """Return what the tasks have set as the fact "answer" of each case: {case: answer}.

    :param top: a directory for inventory and play (pathlib.Path)
    :param cases: {case (str): its variables (dict)}
    :param tasks: list of tasks (dict)
    :param variables: of the play (dict)
    :param serial: how many cases at a time; 0: all
    :param check: whether the tasks are run in check mode
    """
    names = {"case%d" % number: case for number, case in enumerate(cases)}
    (top / "hosts.json").write_text(json.dumps({"all": {"hosts": {name: cases[case] for name, case in names.items()}}}))
    copy = {"ansible.builtin.copy": {"dest": str(top / "answers.json"), "mode": "0644", "content": ANSWERS}, "run_once": True,
            "check_mode": False}
    plays = [{"vars": variables, "serial": serial, "tasks": tasks}, {"tasks": [copy]}]
    (top / "play.yml").write_text(json.dumps([dict(play, hosts="all", gather_facts=False) for play in plays]))
    done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(top / "hosts.json"), "-c", "local",
                           str(top / "play.yml")] + ["--check"] * check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, check=False, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"),
                                   ANSIBLE_COLLECTIONS_PATH=str(TOP / ".cache/checkout")))
    assert done.returncode == 0, done.stdout
    return {names[name]: answer for name, answer in json.loads((top / "answers.json").read_text()).items()}
