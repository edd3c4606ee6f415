"""What the tests of torque-ckpt share."""
import pytest
from fleet import Fleet


@pytest.fixture
def fleet(open_directory, program):
    return Fleet(open_directory, program)
