"""The parts of documents that `make` targets write: between two comments, which name the target, and made of tables."""
import re

ROW = re.compile(r"\| \d")
"""How the row of a version, or of a number, starts."""


def mark(name):
    """Return the comments (str, str) around what the target of this name (str) writes."""
    return "<!-- make %s: begin -->" % name, "<!-- make %s: end -->" % name


def read(text, name):
    """Return what is between the comments of a document (list of str: lines)."""
    begin, end = mark(name)
    return text[text.index(begin) + len(begin):text.index(end)].strip("\n").splitlines()


def replace(text, name, lines):
    """Return the document (str) with other lines (list of str) between the comments."""
    begin, end = mark(name)
    return text[:text.index(begin)] + "\n".join([begin] + lines) + "\n" + text[text.index(end):]


def format_row(cells, longest=300):
    """Return a row of a table (str).

    :param cells: their texts (list of str)
    :param longest: of a cell, in characters; the rest is cut
    """
    return "| %s |" % " | ".join(" ".join(cell.split()).replace("|", "\\|")[:longest] for cell in cells)


def format_head(cells):
    """Return the two lines (list of str) above the rows."""
    return [format_row(cells), "|" + "---|" * len(cells)]


def first_cell(line):
    return line.split("|")[1].strip()


def read_rows(text, name):
    """Return the rows between the comments of a document, of all its tables ({first cell: line})."""
    return {first_cell(line): line for line in read(text, name) if ROW.match(line)}
