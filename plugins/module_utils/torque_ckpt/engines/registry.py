"""Which engine the configuration means (engines/base.py says what an engine is)."""
from ..errors import HookError, CONFIG


def get(configuration):
    """Return the configured Engine.

    :param configuration: dict from config.load
    :raises HookError: CONFIG for an engine these hooks do not know
    """
    if configuration["engine"] == "criu":
        from .criu import Criu
        return Criu(configuration["criu_path"], configuration["criu_options"], configuration["engine_timeout"])
    raise HookError(CONFIG, "engine %s is not known to these hooks (known: criu); set checkpoint_hooks_engine"
                    % ascii(configuration["engine"]))
