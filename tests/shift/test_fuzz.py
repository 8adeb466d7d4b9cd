# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeds of fuzz_failover: exactly once, whatever is cut, lost, delayed or duplicated."""

from tests.shift.fuzz_failover import run


def test_seeds():
    results = [run(seed) for seed in range(1, 61)]
    assert sum(moved for moved, _ in results) >= 20
    assert any(failed for _, failed in results)
