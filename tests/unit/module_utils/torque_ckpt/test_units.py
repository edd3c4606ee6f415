import pytest

from torque_ckpt import units

KIB, MIB, GIB, TIB = (1024 ** power for power in range(1, 5))


@pytest.mark.parametrize("size, text", [
    (0, "0 B"), (1, "1 B"), (KIB - 1, "1023 B"), (KIB, "1.0 KiB"), (1536, "1.5 KiB"), (MIB, "1.0 MiB"), (9856614, "9.4 MiB"),
    (int(3.1 * GIB), "3.1 GiB"), (5 * TIB, "5.0 TiB"), (5000 * TIB, "5000.0 TiB"),
    (MIB - 1, "1.0 MiB"),  # rounded before its unit is chosen
])
def test_bytes(size, text):
    assert units.format_bytes(size) == text
