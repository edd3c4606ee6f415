import os

import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.job import retries
from torque_ckpt.job.records import Records


@pytest.fixture
def settings(tmp_path):
    return {"run_directory": str(tmp_path / "run"), "restart_attempts": 4, "restart_backoff": 10}


def assess(settings, code=errors.TEMPORARY, job="12.head"):
    pauses = []
    failure = retries.assess_failure(Records(settings["run_directory"], job), settings, HookError(code, "it would not"), pauses.append)
    return failure.code, failure.sentence, pauses


def test_pauses_double_and_the_last_attempt_is_the_last(settings):
    assert assess(settings) == (errors.TEMPORARY, "it would not (attempt 1 of 4)", [10])
    assert assess(settings) == (errors.TEMPORARY, "it would not (attempt 2 of 4)", [20])
    assert assess(settings, errors.CONFIG) == (errors.CONFIG, "it would not (attempt 3 of 4)", [40])
    assert assess(settings) == (errors.SYSTEM, "it would not (attempt 4 of 4, the last; fix the cause, then release the job)", [])
    assert assess(settings)[1] == "it would not (attempt 1 of 4)"


def test_no_pause_is_longer_than_the_longest(settings):
    settings["restart_attempts"] = 20
    assert [assess(settings)[2] for _number in range(7)] == [[10], [20], [40], [80], [160], [300], [300]]


def test_each_job_is_counted_for_itself(settings):
    assess(settings)
    assert assess(settings, job="13.head")[1] == "it would not (attempt 1 of 4)"
    assert [retries.count_failures(Records(settings["run_directory"], job)) for job in ("12.head", "14.head")] == [1, 0]


@pytest.mark.parametrize("code", [errors.DATA, errors.REFUSED, errors.ENGINE, errors.SYSTEM])
def test_a_lasting_reason_is_told_at_once_and_ends_the_count(settings, code):
    assess(settings)
    assert assess(settings, code) == (code, "it would not", [])
    assert retries.count_failures(Records(settings["run_directory"], "12.head")) == 0


def test_success_ends_the_count(settings):
    assess(settings)
    retries.reset_failures(Records(settings["run_directory"], "12.head"))
    retries.reset_failures(Records(settings["run_directory"], "12.head"))
    assert retries.count_failures(Records(settings["run_directory"], "12.head")) == 0
    assert os.listdir(settings["run_directory"] + "/jobs") == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"failed": null}'])
def test_count_that_is_damaged(settings, content):
    assess(settings)
    with open(settings["run_directory"] + "/jobs/12.head.attempts", "w") as stream:
        stream.write(content)
    assert assess(settings)[1] == "it would not (attempt 1 of 4)"


def test_count_that_cannot_be_kept(settings):
    open(settings["run_directory"], "w").close()
    assert assess(settings) == (errors.TEMPORARY, "it would not (attempt 1 of 4)", [10])
