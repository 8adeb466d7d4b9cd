# SPDX-License-Identifier: GPL-2.0-or-later
"""Random schedules of loss, duplication, reordering, delay and corruption, each from its seed."""

import pytest

from tests.transports import schedule

BLOCKS = 20
SHORT, FULL = 20_000, 1_000_000


def replay(seed: int) -> str:
    return f"replay: ./lab test -- tests/transports/test_schedules.py --case-seed {seed}"


def pytest_generate_tests(metafunc):
    if "block" in metafunc.fixturenames:
        one = metafunc.config.getoption("--case-seed") is not None
        metafunc.parametrize("block", [None] if one else range(BLOCKS))


@pytest.mark.full("schedules")
def test_every_schedule_ends_with_the_right_bytes_exactly_once(block, full, pytestconfig):
    """A million random schedules on the pair; right bytes, once, in bounded steps."""
    each = (FULL if full else SHORT) // BLOCKS
    one = pytestconfig.getoption("--case-seed")
    for seed in [one] if block is None else range(block * each, (block + 1) * each):
        try:
            schedule.run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{replay(seed)}") from error
