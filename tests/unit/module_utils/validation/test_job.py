"""job: reading what the server says."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.validation.job import parse_walltime


@pytest.mark.parametrize("text, number", [
    ("00:00:05", 5), ("01:02:03", 3723), ("100:00:00", 360000), ("90", 90), ("2:30", 150), ("", None), ("-1", None), ("1:2:3:4", None),
    ("1:", None), ("x", None),
])
def test_parse_walltime(text, number):
    assert parse_walltime(text) == number
