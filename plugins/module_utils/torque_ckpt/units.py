"""Numbers as text for people."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size):
    """Return a number of bytes (int) with its unit (str), e.g. "9.4 MiB"."""
    value = float(size)
    for unit in _UNITS:
        if round(value, 1) < 1024 or unit == _UNITS[-1]:
            return "%d B" % value if unit == "B" else "%.1f %s" % (value, unit)
        value /= 1024
