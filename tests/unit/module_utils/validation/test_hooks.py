"""hooks: the order of a round trip's steps."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation import hooks

STATE = {"job_id": "5.server"}

ORDERS = [
    ("run continue hold restart finish", {}, ""),
    ("run hold", {}, ""),
    ("abandon", STATE, ""),
    ("", {}, "there are no steps"),
    ("run finish", {}, ""),
    ("run continue continue hold", {}, ""),
    ("run hold restart hold restart finish", {}, ""),
    ("restart finish", STATE, ""),
    ("restart hold", STATE, ""),
    ("restart continue hold restart finish", STATE, ""),
    ("run", {}, "the last step must be hold, refused or finish, not run: the job cannot outlive this call"),
    ("run continue", {}, "the last step must be hold, refused or finish, not continue: the job cannot outlive this call"),
    ("run hold restart", {}, "the last step must be hold, refused or finish, not restart: the job cannot outlive this call"),
    ("restart", STATE, "the last step must be hold, refused or finish, not restart: the job cannot outlive this call"),
    ("run abandon", {}, "the last step must be hold, refused or finish, not abandon: the job cannot outlive this call"),
    ("continue hold", {}, "step 1 (continue) cannot follow nothing"),
    ("continue hold", STATE, "step 1 (continue) cannot follow nothing"),
    ("hold", STATE, "step 1 (hold) cannot follow nothing"),
    ("finish", STATE, "step 1 (finish) cannot follow nothing"),
    ("run run finish", {}, "step 2 (run) cannot follow run"),
    ("refused", {}, "the first step refused needs a state"),
    ("run hold refused", {}, "step 3 (refused) cannot follow hold"),
    ("refused restart finish", STATE, "step 2 (restart) cannot follow refused"),
    ("run restart finish", {}, "step 2 (restart) cannot follow run"),
    ("run continue restart finish", {}, "step 3 (restart) cannot follow continue"),
    ("run hold hold", {}, "step 3 (hold) cannot follow hold"),
    ("run hold continue hold", {}, "step 3 (continue) cannot follow hold"),
    ("run hold finish", {}, "step 3 (finish) cannot follow hold"),
    ("run finish finish", {}, "step 3 (finish) cannot follow finish"),
    ("run finish hold", {}, "step 3 (hold) cannot follow finish"),
    ("run hold restart run finish", {}, "step 4 (run) cannot follow restart"),
    ("run finish", STATE, "the first step run does not take a state"),
    ("restart finish", {}, "the first step restart needs a state"),
]
NOT_SEEN = [
    ("abandon hold", STATE), ("abandon finish", STATE), ("run hold run finish", {}), ("run finish run finish", {}),
    ("run finish restart finish", {}), ("restart hold run hold", STATE),
]


@pytest.mark.parametrize("steps, state, fault", ORDERS, ids=["%s, %s" % (order[0], "state" if order[1] else "none") for order in ORDERS])
def test_order_fault(steps, state, fault):
    assert hooks.find_order_fault(steps.split(), bool(state)) == fault


@pytest.mark.parametrize("steps, state", NOT_SEEN, ids=[order[0] for order in NOT_SEEN])
def test_order_that_cannot_work(steps, state):
    assert hooks.find_order_fault(steps.split(), bool(state)) != ""
