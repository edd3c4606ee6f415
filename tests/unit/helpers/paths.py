"""Where things are in this checkout."""
import pathlib

TOP = pathlib.Path(__file__).resolve().parents[3]
MODULE_UTILS = TOP / "plugins/module_utils"
ACTION_SCRIPT = TOP / "roles/checkpoint_hooks/files/action-script"
DATA = TOP / "tests/unit/data"
