import os
import subprocess
import sys

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.store import catalog
from torque_ckpt.system import privilege

pytestmark = pytest.mark.root


def test_limit_where_it_cannot_be_counted_what_there_is(in_child, open_directory, somebody):
    """Directories without end would otherwise count for nothing."""
    deep = os.path.join(open_directory, "12.head.CK")
    os.mkdir(deep)
    code = "import os\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=deep, check=True)
    os.chown(deep, somebody.uid, somebody.gid)

    def work():
        privilege.become_user(somebody)
        try:
            catalog.count_used_bytes({"path": open_directory, "id": "main"}, "alice")
        except HookError as error:
            return error.code, error.sentence
    try:
        assert tuple(in_child(work).result) == (
            errors.CANNOT_WRITE, "what the images of alice take in store {0} cannot be counted (checkpoint_hooks_user_limit): "
            "{0}/12.head.CK cannot be read: its directories are nested too deep; the job keeps running; remove what is in the way"
            .format(open_directory))
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)
