"""The completion of torque-ckpt in a real bash: commands, options, jobs, users and paths."""
import subprocess

import pytest
from paths import TOP

FILE = TOP / "roles/checkpoint_hooks/files/torque-ckpt.bash"
ASK = """\
set -u
torque-ckpt() { printf 'JOB IMAGE\\n12.head a\\n12.head b\\n13.head c\\n'; }
. "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }
_shtab_torque_ckpt
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(*words):
    """Return what bash offers for the last word (list of str)."""
    done = subprocess.run(["bash", "-c", ASK, str(FILE), "torque-ckpt", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("words, offered", [
    (("pr",), ["prune"]),
    (("node",), ["node-down"]),
    (("--v",), ["--version"]),
    (("prune", "--d"), ["--dry-run"]),
    (("show", ""), ["12.head", "13.head"]),
    (("verify", "13"), ["13.head"]),
    (("show", "12.head", "1"), [""]),
    (("show", "12.head", "--j"), ["--json"]),
    (("check", "--pid", ""), [""]),
    (("selftest", "--user", "nobod"), ["nobody"]),
])
def test_words(words, offered):
    assert complete(*words) == offered


@pytest.mark.parametrize("words", [("show",), ("selftest", "--directory")])
def test_directories(tmp_path, words):
    (tmp_path / "images").mkdir()
    (tmp_path / "with space").mkdir()
    (tmp_path / "file").write_text("")
    offered = complete(*words, "%s/" % tmp_path)
    assert sorted(path.replace("\\", "").rstrip("/") for path in offered) == ["%s/images" % tmp_path, "%s/with space" % tmp_path]
