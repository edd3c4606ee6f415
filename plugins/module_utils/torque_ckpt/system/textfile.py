"""Reading a file that may be missing."""


def read_text(path: str, tolerated: "type[OSError] | tuple[type[OSError], ...]" = OSError) -> str:
    """Return a file's text, empty if it cannot be read; bytes that are not UTF-8 become U+FFFD.

    :param tolerated: the errors for which it is empty; others are raised
    """
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except tolerated:
        return ""
