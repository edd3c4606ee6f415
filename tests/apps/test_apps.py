"""`make apps`: each program as a job, once undisturbed and once moved while it works: same output, same files, same exit status.

The result of each goes into docs/reference/programs.md.
"""
import itertools
import re
import time

import page
import pytest
from jobs import await_nodes
from programs import PROGRAMS, find_source, read_job
from runs import PATIENCE, HooksRun, TorqueRun

STEPS = 2
"""So many lines a program must have printed since it was started or moved, before it is moved."""
WAY = ("node2", "node1")


class Refusal(Exception):
    """The hold was refused; the text is the sentence in the job's comment."""


@pytest.fixture
def run(equipped, program):
    """Return a function that starts the program as a job."""
    if equipped.torque:
        await_nodes(equipped.nodes["head"])
    elif program.nodes > 1:
        pytest.skip("a job on several nodes needs TORQUE; name a tarball in TORQUE_SOURCE")
    if program.source and not find_source(program).exists():
        pytest.skip("there is no source; put a tarball at %s" % find_source(program))
    runs = []

    def start():
        runs.append((TorqueRun if equipped.torque else HooksRun)(equipped, program, read_job(program)))
        runs[-1].start()
        return runs[-1]

    yield start
    for entry in runs:
        entry.clean()


def await_lines(job, count):
    """Wait until a job has printed more than that many lines; return how many. It must not have ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        printed = job.printed()
        assert printed >= 0, "the program ended before it was moved as often as it must be"
        if printed > count:
            return printed
        assert time.monotonic() < deadline, "the program has printed no more than %d lines within %d seconds" % (printed, PATIENCE)
        time.sleep(0.1)


def move(job, moves):
    """Move a job along the WAY, over and over, working in between; return how many lines it had printed at its last hold.

    :param moves: how often
    :raises Refusal: if it cannot be held
    """
    printed = 0
    for node in itertools.islice(itertools.cycle(WAY), moves):
        printed = await_lines(job, printed + STEPS)
        sentence = job.hold()
        if sentence:
            raise Refusal(sentence)
        job.release(node)
    return printed


def compare(program, undisturbed, outcome):
    """See that a job left what the undisturbed one left, and was not started anew for it."""
    assert outcome.starts == 1, "the job was started %d times: it was started anew, not from its image" % outcome.starts
    assert outcome.status == undisturbed.status
    assert program.normalise(outcome.output) == program.normalise(undisturbed.output)
    assert program.normalise(outcome.errors) == program.normalise(undisturbed.errors)
    assert outcome.files == undisturbed.files


def find_version(node, program):
    """Return the version that a program on a node prints (str)."""
    printed = node.run(program.version)
    version = re.search(r"\d+[.+]\w+(?:[.+-]\w+)*", printed.out + printed.err)
    assert version, "%s printed no version: %s" % (program.version, printed.out + printed.err)
    return version.group(0)


def try_program(program, run):
    """Run a program undisturbed and moved; return result and remark (str) for the table."""
    undisturbed = run().finish()
    assert undisturbed.status == "0", "undisturbed, it ended with status %s: %s" % (undisturbed.status, undisturbed.errors[-2000:])
    job = run()
    try:
        printed = move(job, program.moves)
    except Refusal as refusal:
        compare(program, undisturbed, job.finish())
        assert program.refused and program.refused in str(refusal), "its hold was refused: %s" % refusal
        return page.REFUSED, re.sub(r"(process |ports |and |127\.0\.0\.1:)\d+", r"\1N", str(refusal))
    outcome = job.finish()
    compare(program, undisturbed, outcome)
    assert outcome.output.count("\n") > printed, "the program did nothing after its last hold"
    assert not program.refused, "it moved, and its entry says that it is refused"
    return page.MOVED, program.settings


def test_program(equipped, program, run):
    version = find_version(equipped.nodes["node1"], program)
    result, remark = page.WRONG, "the test was broken off"
    try:
        result, remark = try_program(program, run)
    except AssertionError as error:
        remark = str(error).partition("\n")[0][:300]
        raise
    finally:
        page.write_row([entry.title for entry in PROGRAMS], [program.title, version, result, remark])
