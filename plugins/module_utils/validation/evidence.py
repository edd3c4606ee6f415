# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The job of levels L2 and L3: its script, the manifests of its images, and the check of what it left."""

import json
import shlex

from ..torque_ckpt.selftest import roundtrip, workload
from ..torque_ckpt.selftest.roundtrip import RoundTripError

COMMAND = "python3 {work}/program.py {work}/stop {tick} {status}"
"""What a job runs, if nothing else is said."""

SCRIPT = """\
#!/bin/bash
echo "{job} starts" >&2
%s{tail}
status=${{PIPESTATUS[0]}}
echo "{job} ends with $status" >&2
exit $status
"""


def build_script(job: str, work: str, tick: float, tail: str = "", command: str = COMMAND, ckpt_run: str = "",
                 commands: str = "", memory: int = 0) -> str:
    """Return the job's script.

    :param job: what the job calls itself on stderr; a shell's variables in it are replaced there
    :param work: the directory that holds program.py and is to hold the file stop, which ends it
    :param tick: pause between two numbers, in seconds
    :param tail: what the program's stdout goes through, from the pipe sign on
    :param command: shell command that runs the program; the names of the other parameters and of the exit status in braces are replaced
    :param ckpt_run: path of ckpt-run, for the command
    :param commands: directory of TORQUE's commands, for the command
    :param memory: how much memory it fills, in MiB, for the command
    """
    return (SCRIPT % command).format(job=job, work=shlex.quote(work), tick=tick, status=workload.STATUS, tail=tail,
                                     ckpt_run=shlex.quote(ckpt_run), commands=shlex.quote(commands), memory=memory)


def judge_job(evidence: workload.Evidence, status: int, errors: "list[str]", job: str, output: str = "the job's output",
              least: int = 0) -> None:
    """Check what the job of build_script left.

    :param evidence: of its stdout
    :param status: its exit status
    :param errors: lines of its stderr
    :param job: what it calls itself there, variables replaced
    :param output: what its stdout is called in sentences
    :param least: the counter of the image that it was restarted from last
    :raises RoundTripError: when an undisturbed job would have left something else
    """
    roundtrip.check_evidence(evidence, status, "the job", output, least)
    expected = ["%s starts" % job, "%s ends with %d" % (job, workload.STATUS)]
    if errors != expected:
        raise RoundTripError("the job's stderr is %s, expected %s" % (errors, expected))


def parse_manifest(text: str, image: str) -> dict:
    """Return the manifest in a text; it names an engine.

    :param image: the image's path, for the sentence
    :raises RoundTripError: when there is none in it
    """
    try:
        manifest = json.loads(text)
        dict(manifest["engine"])
    except (ValueError, KeyError, TypeError):
        raise RoundTripError("the image %s has no manifest that can be read" % image)
    return manifest


def describe_image(manifest: dict) -> dict:
    """Return what results report of an image, by its manifest: {"engine": dict, "compression": str}."""
    return {"engine": dict(manifest["engine"]), "compression": str(manifest.get("compression", ""))}
