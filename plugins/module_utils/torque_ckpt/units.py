"""Numbers as text for people."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size: int) -> str:
    """Return a number of bytes with its unit, e.g. "9.4 MiB"."""
    value = float(size)
    for unit in _UNITS:
        if round(value, 1) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return "%d B" % value if unit == "B" else "%.1f %s" % (value, unit)
