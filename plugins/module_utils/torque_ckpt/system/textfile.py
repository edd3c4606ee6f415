"""Reading a file that may not be there."""


def read_text(path, tolerated=OSError):
    """Return a file's text (str), empty when it cannot be read; bytes that are no UTF-8 become U+FFFD.

    :param tolerated: the errors that make it empty (class or tuple of classes); others are raised
    """
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except tolerated:
        return ""
