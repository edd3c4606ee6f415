"""The table in docs/reference/programs.md, which `make apps` writes."""
import pathlib

import tables

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/programs.md"
TARGET = "apps"
HEAD = tables.format_head(["program", "version", "result", "what to set, or why not"])
MOVED, REFUSED, WRONG = "moved", "refused", "WRONG"


def parse_rows(text):
    """Return the rows of the generated part of a document (str): {title: line}."""
    return {tables.first_cell(line): line for line in tables.read(text, TARGET)[len(HEAD):]}


def merge_row(text, titles, row):
    """Return the document (str) with a row put in or replaced; the other rows stay as they are.

    :param titles: of all programs, in order (list of str); rows of others are removed
    :param row: title, version, result, remark (list of str)
    """
    rows = parse_rows(text)
    rows[row[0]] = tables.format_row(row, longest=None)
    return tables.replace(text, TARGET, HEAD + [rows[title] for title in titles if title in rows])


def write_row(titles, row):
    """Put a row into the document."""
    DOCUMENT.write_text(merge_row(DOCUMENT.read_text(), titles, row))
