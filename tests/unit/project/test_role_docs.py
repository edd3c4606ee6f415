"""The roles' README.md are Markdown."""
import importlib.util
import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("role_docs", TOP / "tools/role_docs.py")
role_docs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(role_docs)


@pytest.mark.parametrize("description, wanted", [
    ("As C(/proc) has it.", "As `/proc` has it."),
    ("In the words of C(exports(5)), V(0) or O(blcr_source).", "In the words of `exports(5)`, `0` or `blcr_source`."),
    ("See M(ckpt.torque.files) and P(ckpt.torque.plan_node#filter).", "See `ckpt.torque.files` and `ckpt.torque.plan_node`."),
    ("I(often), B(always), U(https://example.org) and L(here, https://example.org).",
     "*often*, **always**, <https://example.org> and [here](https://example.org)."),
    ("CRIU (or BLCR) is not markup, nor is proc(5).", "CRIU (or BLCR) is not markup, nor is proc(5)."),
])
def test_markup(description, wanted):
    assert role_docs.markdown(description) == wanted


@pytest.mark.parametrize("path", sorted(TOP.glob("roles/*/README.md")), ids=lambda path: path.parent.name)
def test_no_markup_of_ansible_is_left(path):
    assert not re.findall(r"\b[BCEILMOPUV]\([^)]*\)", path.read_text())


def test_every_attribute_that_the_server_gets_is_told():
    """A site that set one by hand finds it replaced."""
    names = yaml.safe_load((TOP / "roles/torque_server/vars/main.yml").read_text())
    specs = yaml.safe_load((TOP / "roles/torque_server/meta/argument_specs.yml").read_text())["argument_specs"]
    about = " ".join(specs["main"]["description"])
    attributes = [*names["__torque_server_common"], *names["__torque_server_members"],
                  *re.findall(r"'(\w+)': false", names["__torque_server_since_6_0_3"])]
    assert len(attributes) == 13
    assert not [name for name in attributes if not re.search(r"\b%s\b" % name, about)]
