"""What the sentences of failures advise is what the report of a validation shows as their cure."""
import ast
import re

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.files import obstacles
from ansible_collections.ckpt.torque.plugins.module_utils.report import outcomes
from paths import TOP
from program_texts import find_words

OTHERS = {
    "a", "blank", "can", "ckpt", "done", "from", "how", "if", "image", "is", "it", "its", "jobs", "journalctl", "keep", "no",
    "not", "nothing", "only", "otherwise", "passed", "pbsnodes", "perhaps", "still", "that", "the", "there", "this", "torque",
    "waited", "was", "what"}
"""What a part of a sentence begins with that is no advice."""
PROSE = re.compile(r"[.\n]$|\n.|\$\(")
"""Descriptions and shell programs; what a failure is reported with is one line without a full stop."""


def test_verbs_of_all_sentences_are_known():
    words = set()
    for path in (TOP / "plugins").rglob("*.py"):
        if path.name != "parser.py":  # what the help of a command says
            texts = [text for text in find_words(ast.parse(path.read_text())) if not PROSE.search(text)]
            words.update(word for text in texts for word in re.findall(r"; ([a-z]+)\b", text))
    verbs = set(outcomes.VERBS.split("|"))
    assert words - OTHERS - verbs == set()
    assert OTHERS - words == set() == OTHERS & verbs


@pytest.mark.parametrize("kind", obstacles.KINDS)
def test_obstacle_has_a_cure_of_its_own(kind):
    obstacle = obstacles.Obstacle(kind, 7, "x", "has it open", obstacles.KINDS[kind])
    sentence = obstacles.format_sentence(obstacle, "criu", "the job keeps running")
    assert outcomes.split_cause(sentence, "L2") == (
        "process 7 (x) has it open; criu cannot checkpoint that; the job keeps running", obstacles.KINDS[kind])
