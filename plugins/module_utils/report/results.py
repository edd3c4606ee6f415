# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What results.json and history.jsonl hold: a row of a table for each field. docs/reference/results-json.md is generated from it."""

from ..torque_ckpt.image.schema import Field
from ..torque_ckpt.system import strict_json
from ..torque_ckpt.system.strict_json import FLAG

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterable

SCHEMA = 1
"""The version of both formats. It is raised if a field is removed or changes its meaning, not if one is added."""

LEVELS = ("L0", "L1", "L2", "L3")
PROOFS = LEVELS[1:]
"""Those that try it; L0 only looks."""
STATES = ("passed", "failed", "class", "unproven")

TEXT = "a text", lambda value: isinstance(value, str)
INTEGER = "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
SIZE = "a whole number or null", lambda value: value is None or INTEGER[1](value)
SECONDS = "a number", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
OUTCOME = "true, false or null", lambda value: value is None or isinstance(value, bool)
LEVEL = "one of %s" % ", ".join(LEVELS), lambda value: value in LEVELS
STATE = "one of %s" % ", ".join(STATES), lambda value: value in STATES
WORD = "passed, FAILED or not run", lambda value: value in ("passed", "FAILED", "not run")
OBJECT = "an object", lambda value: isinstance(value, dict)

PHASE = (
    Field("step", TEXT, "What was done, for instance `hold`.", optional=True),
    Field("node", TEXT, "The node.", optional=True),
    Field("seconds", SECONDS, "How long it took, in seconds."),
    Field("engine_seconds", SECONDS, "Of these, how long the engine froze the job.", optional=True),
    Field("running_seconds", SECONDS, "Of these, how long the job waited in the queue, in seconds.", optional=True),
    Field("counter", INTEGER, "The counter of the program at the end of the step.", optional=True),
)
RESULT = (
    Field("level", LEVEL, "The level of proof; of L0, which only looks, each fault is a result."),
    Field("nodes", TEXT, "The nodes that it went to, in their order.", many=True),
    Field("passed", OUTCOME, "Null if it was not run."),
    Field("cause", TEXT, "Why it failed or was not run; empty if it passed."),
    Field("case", TEXT, "The case of a job, or `refused` if a node had to refuse it.", optional=True),
    Field("engine", None, "The engine of the image.", (
        Field("name", TEXT, "Its name.", optional=True), Field("version", TEXT, "Its version.", optional=True)), optional=True),
    Field("torque", TEXT, "The version of TORQUE.", optional=True),
    Field("compression", TEXT, "The program that compressed the image; empty if none did.", optional=True),
    Field("image_bytes", SIZE, "The size of the image.", optional=True),
    Field("image_bytes_per_second", INTEGER, "How fast the engine wrote the image, of the case `memory`.", optional=True),
    Field("store_bytes_per_second", INTEGER, "How fast its node wrote a file of that size, of the case `memory`.", optional=True),
    Field("phases", None, "The steps, in their order.", PHASE, many=True, optional=True),
)
"""A result as the round-trip modules return it. Their documentation has the fields that only one of them returns."""

NODE = (
    Field("name", TEXT, "The node, as in the inventory."),
    Field("class", INTEGER, "The number of its class, from 1; missing if level L1 has no result.", optional=True),
    Field("store", TEXT, "The path and the id of its store.", optional=True),
    Field("kernel", TEXT, "Its kernel.", optional=True),
    Field("libc", TEXT, "Its C library.", optional=True),
    Field("lacks", TEXT, "What CPUs of other classes have and its own has not; missing if there is nothing.", optional=True),
    Field("engine", TEXT, "Name and version of its engine, by level L1.", optional=True),
)
LEVEL_STATES = tuple(Field(level, STATE, "What is known of level %s on the node. `class`: proven on another node of its class." % level)
                     for level in PROOFS)
JUDGED = NODE + (Field("L0", STATE, "What is known of level L0 on the node; never `class`."),) + LEVEL_STATES + (
    Field("outcome", STATE, "`passed` if L1, L2 and L3 are `passed` or `class` and L0 is not `failed`."),)

STORED = (
    Field("store", TEXT, "The path and the id of the store, after the node's name if each node has its own."),
    Field("images", INTEGER, "How many images are in it."),
    Field("bytes", INTEGER, "Their size."),
    Field("everywhere", INTEGER, "How many of them can be restarted on every node."),
    Field("somewhere", INTEGER, "How many on some nodes."),
    Field("nowhere", INTEGER, "How many on no node, or are damaged."),
    Field("faults", None, "These.", (
        Field("job", TEXT, "The id of the job."), Field("owner", TEXT, "The job's owner."), Field("image", TEXT, "The image's name."),
        Field("why", TEXT, "Why it cannot be restarted.")), many=True),
    Field("problems", TEXT, "What could not be read.", many=True),
)
"""What images.summarize_images returns."""

DOCUMENT = (
    Field("schema", INTEGER, "The version of this format, %d." % SCHEMA),
    Field("created", TEXT, "When the report was written, in UTC."),
    Field("collection", TEXT, "The version of the collection."),
    Field("passed", FLAG, "Whether at least one round trip was run and none failed."),
    Field("verdict", TEXT, "The result in one sentence."),
    Field("levels", None, "What became of each level.", tuple(Field(level, WORD, "Of level %s." % level) for level in LEVELS)),
    Field("failures", TEXT, "Level, nodes and cause of each failure.", many=True),
    Field("nodes", None, "The compute nodes.", JUDGED, many=True),
    Field("results", None, "The round trips.", RESULT, many=True),
    Field("images", None, "The images in the stores.", STORED, many=True, optional=True),
)
RUN = (
    Field("schema", INTEGER, "The version of this format, %d." % SCHEMA),
    Field("time", TEXT, "When the report was written, in UTC."),
    Field("passed", FLAG, "As in `results.json`."),
    Field("verdict", TEXT, "As in `results.json`, at most 1000 characters."),
    Field("collection", TEXT, "The version of the collection."),
    Field("torque", TEXT, "The version of TORQUE; empty if level L3 was not run."),
    Field("nodes", OBJECT,
          "For each node, by its name, `L0`, `L1`, `L2`, `L3`, `outcome`, `engine` and `kernel`, as in `results.json`."),
)
RUN_NODE = LEVEL_STATES + (
    Field("L0", STATE, "", optional=True), Field("outcome", STATE, ""), Field("engine", TEXT, ""), Field("kernel", TEXT, ""))


def find_fault(value: "Any", fields: "Iterable[Field]", where: str = "") -> str:
    """Return why a value does not have these fields, empty if it has them; where is its name."""
    try:
        strict_json.check_kind(value, {field.name + ("?" if field.optional else ""): field.get_kind() for field in fields}, where)
    except strict_json.Wrong as error:
        return str(error)
    return ""
