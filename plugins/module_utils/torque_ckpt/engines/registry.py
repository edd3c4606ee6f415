"""Which engine the configuration means (engines/base.py says what an engine is)."""
from ..errors import HookError, CONFIG


def get(configuration):
    """Return the configured Engine.

    :param configuration: dict from config.load
    :raises HookError: CONFIG for an engine these hooks do not know
    """
    timeout = configuration["engine_timeout"]
    if configuration["engine"] == "criu":
        from .criu import Criu
        return Criu(configuration["criu_path"], configuration["criu_options"], timeout, configuration["engine_stall"])
    if configuration["engine"] == "blcr":
        from .blcr import Blcr
        return Blcr(configuration["blcr_directory"], configuration["blcr_dump_options"], configuration["blcr_restore_options"], timeout)
    raise HookError(CONFIG, "engine %s is not known to these hooks (known: blcr, criu); set checkpoint_hooks_engine"
                    % ascii(configuration["engine"]))
