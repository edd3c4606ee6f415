"""The tags of site.yml: what --list-tags prints is what docs/operate.md lists."""
import os
import pathlib
import re
import subprocess
import sys

from paths import TOP


def test_tags_are_those_of_the_documentation():
    done = subprocess.run([str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "-i", str(TOP / "examples/vault/inventory.yml"),
                           "ckpt.torque.site", "--list-tags"], stdout=subprocess.PIPE, text=True, check=True, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"),
                                   ANSIBLE_COLLECTIONS_PATH=str(TOP / ".cache/checkout")))
    plays = re.findall(r"play #\d+ \(.*?\): (.*?)\tTAGS: .*\n +TASK TAGS: \[(.*)\]", done.stdout)
    assert plays == [
        ("Check the inventory before anything is changed", "always"),
        ("Find out which hosts of the store and the server answer", "always"),
        ("Choose the engines, and find out whether they can be built", "always, engine"),
        ("Create the store", "store"),
        ("Build TORQUE, once", "build"),
        ("Install and set up the server", "server"),
        ("Set up checkpoint and restart on compute nodes", "always, engine, hooks, mom, store"),
        ("Restart pbs_mom, some nodes at a time", "mom"),
        ("Install torque-ckpt and its timers", "hooks, store"),
        ("Install torque-ckpt on login nodes", "client, hooks, store"),
        ("Name the hosts that were not reached", "always")]
    section = re.search(r"^## Run a part of site\n(.*?)^## ", (TOP / "docs/operate.md").read_text(), re.MULTILINE | re.DOTALL).group(1)
    tags = {tag for _play, names in plays for tag in names.split(", ")} - {"always"}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == tags
