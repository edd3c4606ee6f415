"""affinity: threads that are bound to CPUs, which no engine writes."""
import os

import pytest

from torque_ckpt.job import affinity
from torque_ckpt.system import processes

CPUS = sorted(os.sched_getaffinity(0))
several = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


@several
def test_bound_threads_are_bound_again(start_job):
    job = start_job(programs=["/bin/sh"] * 2)
    root = processes.read_process(job.pids[0])._replace(ppid=job.leader)
    assert affinity.find_bound(root) == []
    os.sched_setaffinity(root.pid, {CPUS[1]})
    found = affinity.find_bound(root)
    assert found == [{"thread": root.pid, "cpus": [CPUS[1]]}]
    os.sched_setaffinity(root.pid, CPUS)
    assert affinity.bind_threads(found) == []
    assert affinity.find_bound(root) == found


@several
def test_job_whose_leader_is_bound(start_job):
    """What runs where its leader does is bound by nobody."""
    job = start_job()
    os.sched_setaffinity(job.leader, {CPUS[0]})
    os.sched_setaffinity(job.pids[0], {CPUS[0]})
    assert affinity.find_bound(processes.read_process(job.pids[0])._replace(ppid=job.leader)) == []


def test_node_without_these_cpus(start_job):
    """The thread keeps all CPUs; another one is bound."""
    job = start_job(programs=["/bin/sh"] * 2)
    missing = max(CPUS) + 1
    entries = [{"thread": job.pids[0], "cpus": [CPUS[0], missing]}, {"thread": job.pids[1], "cpus": [CPUS[0]]}]
    assert affinity.bind_threads(entries) == [
        "threads of the job were bound to CPUs that it may not use on this node (%d), and are not bound now" % missing]
    assert [sorted(os.sched_getaffinity(pid)) for pid in job.pids] == [CPUS, [CPUS[0]]]


def test_thread_that_has_ended(free_pid):
    assert affinity.bind_threads([{"thread": free_pid, "cpus": [CPUS[0]]}]) == []


def test_leader_that_has_ended(start_job, free_pid):
    assert affinity.find_bound(processes.read_process(start_job().pids[0])._replace(ppid=free_pid)) == []
