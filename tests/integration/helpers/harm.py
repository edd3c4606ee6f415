"""The cases of the fault suite (faults/node/cases.py) on a node: real jobs through the installed hooks, with a store of their own."""
import contextlib
import io
import json
import pathlib
import subprocess
import tarfile

import jinja2
import yaml
from cluster import FAULTS, TOP

NODE = pathlib.Path(__file__).resolve().parents[1] / "faults/node"
ROLE = TOP / "roles/checkpoint_hooks"
PLACE = "/opt/faults"
COUNTED = ("cases", "jobs or images lost", "files outside the store touched")
QUIET = ("/var/spool/torque/mom_logs/", "/var/spool/torque/server_logs/", "/var/spool/torque/client_logs/",
         "/usr/lib/ckpt-torque/torque_ckpt/__pycache__/")
"""Where others than the hooks write meanwhile."""


def render_entries():
    """Render the entry programs of the hooks as the role does with its defaults (dict of bytes, by hook)."""
    variables = dict(yaml.safe_load((ROLE / "defaults/main.yml").read_text()), ansible_managed="Ansible managed")
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)  # as Ansible's
    template = environment.from_string((ROLE / "templates/entry.py.j2").read_text())
    return {hook: template.render(variables, __checkpoint_hooks_room="hooks." + hook).encode() for hook in ("run", "checkpoint", "restart")}


@contextlib.contextmanager
def installed(node, packages):
    """Have the suite's programs on a node, and the Debian packages (str) that its cases need."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(TOP / "plugins/module_utils", "ansible_collections/ckpt/torque/plugins/module_utils")
        for path in sorted(NODE.glob("*.py")):
            tar.add(path, path.name)
        for hook, text in render_entries().items():
            member = tarfile.TarInfo("entries/" + hook)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    node.ask("rm -rf {0} && mkdir -p {0} && {{ dpkg -s {1} || {{ apt-get update && apt-get install -y --no-install-recommends {1}; }}; }} "
             "> /dev/null 2>&1".format(PLACE, packages))
    subprocess.run(node.command + ["tar -C %s -xf -" % PLACE], input=archive.getvalue(), check=True)
    yield
    node.run("pkill -KILL -u alice; rm -rf %s /shared/faults /shared/faults-work /shared/faults-real" % PLACE)


def lost_nothing(node, case, limit=30, **parameters):
    """Run a case; return its result (dict).

    :param limit: how long something may take that should happen at once (seconds)
    """
    script = "FAULTS_LIMIT=%d python3 %s/cases.py %s '%s'" % (limit, PLACE, case, json.dumps(parameters))
    done = subprocess.run(node.command + [script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=4 * 3600, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    result = json.loads(done.stdout.splitlines()[-1])
    strays = [path for path in result["outside"] if not path.startswith(QUIET)]
    for what, count in zip(COUNTED, (result["cases"], len(result["lost"]), len(strays))):
        FAULTS[what] = FAULTS.get(what, 0) + count
    print(case, result["cases"], result["seen"])
    assert not result["lost"], result["lost"]
    assert not strays, strays
    assert result["cases"] > 0
    return result
