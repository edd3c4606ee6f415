"""The table in docs/reference/programs.md, which `make apps` writes."""
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/programs.md"
BEGIN, END = "<!-- make apps: begin -->", "<!-- make apps: end -->"
HEAD = "| program | version | result | what to set, or why not |\n|---|---|---|---|\n"
MOVED, REFUSED, WRONG = "moved", "refused", "WRONG"


def parse_rows(text):
    """Return the rows of the generated part of a document (str): {title: line}."""
    part = text[text.index(BEGIN):text.index(END)]
    return {line.split("|")[1].strip(): line for line in part.splitlines()[3:]}


def merge_row(text, titles, row):
    """Return the document (str) with a row put in or replaced; the other rows stay as they are.

    :param titles: of all programs, in order (list of str); rows of others are removed
    :param row: title, version, result, remark (list of str)
    """
    rows = parse_rows(text)
    rows[row[0]] = "| %s |" % " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in row)
    table = "".join(rows[title] + "\n" for title in titles if title in rows)
    return text[:text.index(BEGIN)] + BEGIN + "\n" + HEAD + table + text[text.index(END):]


def write_row(titles, row):
    """Put a row into the document."""
    DOCUMENT.write_text(merge_row(DOCUMENT.read_text(), titles, row))
