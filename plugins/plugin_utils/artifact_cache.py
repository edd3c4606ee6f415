# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's cache of artifacts, for the action plugins."""
from __future__ import annotations

import os


def locate(arguments: dict, key: str, bundle: str) -> dict:
    """Return where the artifact of this key is in the cache, or would be: path (str), available (bool).

    :param arguments: of the module
    :param bundle: the directory of the bundle that is used instead of the cache; empty when there is none
    """
    cache = os.path.join(bundle, "artifacts") if bundle else os.path.expanduser(arguments["cache"])
    path = os.path.join(cache, "%s-%s.tar.gz" % (arguments.get("name", "torque"), key))
    return {"path": path, "available": os.path.isfile(path)}
