"""The manual page ckpt-torque(7), out of the page for users, docs/users.md.

  manual_docs.py --write   write it
  manual_docs.py --check   fail when it is stale
"""
import argparse
import pathlib
import re
import sys

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

TOP = pathlib.Path(__file__).resolve().parent.parent
PAGE = TOP / "docs/users.md"
MANUAL = TOP / "roles/checkpoint_hooks/files/ckpt-torque.7"
HEAD = [r'.\" generated from docs/users.md by make docs; edit that file', r'.TH CKPT\-TORQUE 7 "" "ckpt.torque" "Miscellaneous"',
        ".ad l", ".nh", ".SH NAME", r"ckpt\-torque \- checkpoint and restart of TORQUE jobs", ".SH DESCRIPTION"]
MANUALS = {"reference/torque-ckpt.md": "torque-ckpt(1)"}
"""Pages that are manual pages as well."""
SEE_ALSO = "torque-ckpt(1), qsub(1B), qhold(1B), qrls(1B), qalter(1B), qstat(1B), criu(8)"
MORE = "The documentation of the collection ckpt.torque has more, with the pages whose titles are in quotation marks above."
ESCAPED = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"})


def roff(text):
    """Escape a text (str) for troff."""
    return text.translate(ESCAPED)


def lines(text):
    """Return lines (str) none of which troff takes for a request."""
    return re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)


def marked(font, text, around):
    """Return a text (str) in a font, between text in another one."""
    return text if font == around else r"\f%s%s\f%s" % (font, text, around)


def refuse(node):
    """Raise ValueError because of something that the manual page has no form for."""
    raise ValueError("docs/users.md: %s has no form in a manual page" % node.type)


def linked(node, font):
    """Return what is left of a link (str): its text, or what the page is called whose name is its text."""
    target, text = node.attrs["href"], inline(node.children, font)
    name = target.partition("#")[0]
    if re.match("https?:", target):
        return text if text == roff(target) else "%s (%s)" % (text, roff(target))
    if text != roff(name):
        return text
    title = re.search("^# (.*)", (PAGE.parent / name).read_text(), re.MULTILINE).group(1)
    return roff(MANUALS.get(name, '"%s"' % title))


def inline(nodes, font="R"):
    """Return what is in a paragraph, a heading or a cell (str).

    :param nodes: list of SyntaxTreeNode
    :param font: what the text around is in (str)
    """
    text = ""
    for node in nodes:
        if node.type == "inline":
            text += inline(node.children, font)
        elif node.type == "text":
            text += roff(node.content)
        elif node.type == "code_inline":
            text += marked("B", roff(node.content), font)
        elif node.type in ("strong", "em"):
            inner = "B" if node.type == "strong" else "I"
            text += marked(inner, inline(node.children, inner), font)
        elif node.type == "softbreak":
            text += " "
        elif node.type == "link":
            text += linked(node, font)
        else:
            refuse(node)
    return text


def tagged(table):
    """Yield the lines (str) of a table: each row under its first cell. What further columns are called is said if there are several."""
    heading, *rows = [row for part in table.children for row in part.children]
    names = [inline(cell.children) for cell in heading.children]
    for row in rows:
        yield from (".TP", ".B " + inline(row.children[0].children, "B"))
        cells = [inline(cell.children) for cell in row.children]
        for number, (name, cell) in enumerate(zip(names[1:], cells[1:])):
            if number:
                yield ".br"
            yield lines(cell if len(names) == 2 else "%s: %s" % (name, cell))


def blocks(nodes):
    """Yield the lines (str) of paragraphs, lists, tables and what else is in a page (list of SyntaxTreeNode)."""
    for node in nodes:
        if node.type == "heading":
            title = "".join(part.content for part in node.walk() if part.type in ("text", "code_inline"))
            yield ".SH " + roff(title.upper()) if node.tag == "h2" else ".SS " + roff(title)
        elif node.type == "paragraph":
            yield from (".PP", lines(inline(node.children)))
        elif node.type == "fence":
            yield from (".PP", ".RS 4", ".nf", lines(roff(node.content.rstrip("\n"))), ".fi", ".RE")
        elif node.type == "bullet_list":
            for item in node.children:
                first, *others = item.children
                yield from (r".IP \(bu 2", lines(inline(first.children)))
                if others:
                    yield from (".RS 2", *blocks(others), ".RE")
        elif node.type == "table":
            yield from tagged(node)
        else:
            refuse(node)


def convert(text):
    """Return the lines (list of str) of a page in Markdown (str): its first paragraph, and all from its first section on."""
    nodes = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text)).children
    start = next(number for number, node in enumerate(nodes) if node.tag == "h2")
    return list(blocks(nodes[1:2] + nodes[start:]))


def manual():
    page = HEAD + convert(PAGE.read_text()) + [".SH SEE ALSO", roff(SEE_ALSO), ".PP", MORE]
    return "\n".join(text for before, text in zip([""] + page, page) if text != ".PP" or before[:3] not in (".SH", ".SS")) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    if options.parse_args().write:
        MANUAL.write_text(manual())
    elif not MANUAL.exists() or MANUAL.read_text() != manual():
        print("%s is stale; run make docs" % MANUAL.relative_to(TOP))
        return 1
    print("ckpt-torque: the manual page agrees with docs/users.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
