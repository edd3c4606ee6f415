"""make apps writes its own rows into docs/reference/programs.md and leaves the others; table and scripts fit together."""
import page
import pytest
import tables
from programs import PROGRAMS, SCRIPTS, sort_lines, without

BEGIN, END = tables.mark(page.TARGET)
TITLES = ["R", "NumPy", "xz"]
EMPTY = "before\n%s\n%s\nafter\n" % (BEGIN, END)


@pytest.fixture
def document():
    text = page.merge_row(EMPTY, TITLES, ["xz", "5.8", page.REFUSED, "a | b\nc"])
    return page.merge_row(text, TITLES, ["R", "4.5", page.MOVED, ""])


def test_rows_are_in_the_order_of_the_programs(document):
    assert document == (
        "before\n%s\n%s\n| R | 4.5 | moved |  |\n| xz | 5.8 | refused | a \\| b c |\n%s\nafter\n" % (BEGIN, "\n".join(page.HEAD), END))


def test_a_run_replaces_its_row_only(document):
    again = page.merge_row(document, TITLES, ["R", "4.6", page.WRONG, "why"])
    assert again == document.replace("| R | 4.5 | moved |  |", "| R | 4.6 | WRONG | why |")


def test_row_of_a_program_that_is_no_more_is_removed(document):
    assert "| xz |" not in page.merge_row(document, ["R"], ["R", "4.6", page.MOVED, ""])


def test_document_of_this_collection_has_rows_of_its_programs_only():
    text = page.DOCUMENT.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert set(page.parse_rows(text)) <= {program.title for program in PROGRAMS}


def test_each_program_has_a_script_and_names_of_its_own():
    assert {script for program in PROGRAMS for script in program.scripts} == {path.name for path in SCRIPTS.iterdir()}
    for column in ("name", "title"):
        values = [getattr(program, column) for program in PROGRAMS]
        assert len(set(values)) == len(values)


def test_normalisation():
    assert without(r"^\w+=")("frame=3\nkept\nfps=2.0\n") == "kept\n"
    assert sort_lines("b\na\n") == "a\nb\n"
