# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the attributes of a job say of whether it can be moved."""

import re

HOLD = "o"
"""The hold that is set and taken off, of TORQUE's u (user), o (operator) and s (system)."""


def is_checkpointable(checkpoint: str) -> bool:
    """Return whether a job with this Checkpoint attribute is checkpointed when it is held."""
    return bool({word.partition("=")[0].strip() for word in checkpoint.split(",")} & {"enabled", "c", "s"})


def is_pinned(request: str, node: str) -> bool:
    """Return whether a request such as "node1:ppn=2+fast" (Resource_List.nodes) names a node."""
    return node in re.split(r"[+:#]", request)


def find_obstacle(job: "dict[str, str]") -> str:
    """Return why a job, by its attributes, cannot be moved; empty when it can."""
    state = job.get("job_state", "")
    if state != "R":
        return "it is ending" if state == "E" else "it is in state %s" % state
    if job.get("interactive", "False") not in ("False", "0", ""):
        return "it is interactive"
    if not is_checkpointable(job.get("Checkpoint", "")):
        return "it was submitted without qsub -c enabled"
    return ""


def get_holds(job: "dict[str, str]") -> "set[str]":
    """Return the letters of a job's holds, none for "n"."""
    return set(job.get("Hold_Types", "n")) - {"n"}


def has_our_hold(job: "dict[str, str]") -> bool:
    """Return whether a job that has not ended has an operator's hold."""
    return job.get("job_state", "C") != "C" and HOLD in get_holds(job)


def get_comment(job: "dict[str, str]") -> str:
    """Return a job's comment as one line."""
    return " ".join(job.get("comment", "").split())
