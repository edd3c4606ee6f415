"""waiting: how often it asks, and what it returns."""
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.waiting import wait_until


def test_wait_until_asks_once_at_least():
    asked = []
    assert wait_until(lambda: asked.append(1), -1) is None
    assert asked == [1]


def test_wait_until_returns_the_last_value():
    answers = iter([0, "", [], "yes", "never asked for"])
    assert wait_until(lambda: next(answers), 60, step=0) == "yes"
    assert next(answers) == "never asked for"


def test_wait_until_gives_up():
    asked = []

    def never():
        asked.append(1)
        return 0

    assert wait_until(never, 0.05, step=0.001) == 0
    assert len(asked) > 1


def test_wait_until_by_another_clock():
    now = [5.0]

    def sleep(seconds):
        now[0] += seconds

    assert wait_until(lambda: False, 3, 1, lambda: now[0], sleep) is False
    assert now == [8.0]
