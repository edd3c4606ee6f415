"""A key in the vault of a site, created by the commands of the example vault."""
import os
import pathlib
import re
import subprocess
import sys

from paths import TOP

BIN = pathlib.Path(sys.executable).parent


def create_key(site, password_path):
    """Create a key in the vault of a site; return what Ansible needs in its environment to read it (dict), and the secret (str).

    :param site: the directory of its inventory (pathlib.Path)
    :param password_path: where the vault's password is written (pathlib.Path)
    """
    commands, = re.findall(r"^```\n(openssl .*?)^```", (TOP / "examples/vault/README.md").read_text(), re.MULTILINE | re.DOTALL)
    password_path.write_text("of the test\n")
    environment = {"ANSIBLE_VAULT_PASSWORD_FILE": str(password_path)}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=site, stdout=subprocess.PIPE, text=True, check=True,
                          env=dict(os.environ, PATH="%s:%s" % (BIN, os.environ["PATH"]), **environment))
    shown = re.fullmatch('vault_checkpoint_hooks_key: "([0-9a-f]{64})"', done.stdout.strip())
    assert (site / "group_vars/all/vault.yml").read_text().startswith("$ANSIBLE_VAULT;")
    return environment, shown.group(1)
