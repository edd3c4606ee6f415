"""What must hold on this node before the checkpoint or restart hook touches anything."""
from collections import namedtuple

from .. import config
from ..engines import registry
from ..image import seal
from ..store import location
from ..system import environment, privilege
from ..telemetry import report

Node = namedtuple("Node", "settings user store engine keys")
"""settings: dict from config.load; user: privilege.User; store: its entry in the settings; engine: engines.base.Engine;
keys: seal.Keys"""


def check(call, config_path):
    """Return the Node for a contract.Call.

    :param config_path: the hooks' configuration (str)
    :raises HookError: CONFIG, NO_USER or REFUSED
    """
    environment.check_code(config_path)
    settings = config.load(config_path)
    report.count_with(settings)
    user = privilege.account(call.user, call.group)
    place = location.find_store(settings["stores"], call.directory)
    location.check_mounted(place)
    return Node(settings, user, place, registry.get(settings), seal.Keys(settings["key_path"]))
