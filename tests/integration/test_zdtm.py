"""A selection of CRIU's own test programs as jobs; all of them: make zdtm."""
import pytest
import zdtm

REFUSED = {
    "ptrace_sig": "is traced by process ",
    "file_lease03": "that another process is breaking; CRIU cannot checkpoint that; the job keeps running",
    "socket-tcp-close-wait": "has a half-closed TCP connection from 127.0.0.1:",
}
UNDER_WAY = "socket-tcpbuf-local"


@pytest.fixture(scope="module")
def programs(cluster):
    programs = zdtm.Programs(cluster, zdtm.SHORT + tuple(REFUSED) + (UNDER_WAY,))
    yield programs
    programs.remove()


def test_programs_of_criu(programs):
    """Held on node1 and continued on node2 each finds all as it was."""
    trials = programs.try_all(names=zdtm.SHORT)
    assert [trial.name for trial in trials] == sorted(zdtm.SHORT)
    assert [trial for trial in trials if (trial.bare.outcome, trial.hooks.outcome) != (zdtm.PASSES, zdtm.PASSES)] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_program_that_is_refused_is_unharmed(programs, name):
    """Under criu alone such a program comes back with a signal that nobody sent, or not at all."""
    trial = programs.try_program(name)
    assert trial.hooks.outcome == zdtm.REFUSED, trial
    assert REFUSED[name] in trial.hooks.text


def test_program_with_full_connections(programs):
    """Under criu alone it does not come back, as it happens: CRIU sends what waits before the other end is there."""
    assert programs.try_program(UNDER_WAY).hooks.outcome == zdtm.PASSES
