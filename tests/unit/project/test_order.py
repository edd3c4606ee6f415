"""What roles write and say has the same order in each run."""
import itertools
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[3]


def test_no_filter_loses_the_order():
    """Ansible's filters for sets give their lists in any order: configurations would change, and daemons be restarted."""
    files = itertools.chain(TOP.glob("roles/**/*.yml"), TOP.glob("roles/**/*.j2"), TOP.glob("playbooks/**/*.yml"))
    wrong = re.compile(r"\|\s*(difference|intersect|union|symmetric_difference)\(")
    filters = {str(path.relative_to(TOP)): wrong.findall(path.read_text()) for path in files}
    assert len(filters) > 100
    assert not {path: names for path, names in filters.items() if names}
