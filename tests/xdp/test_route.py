# SPDX-License-Identifier: GPL-2.0-or-later
"""xdp/lab_route.h: paths are used evenly, and one switch's choice says nothing of another's."""

from __future__ import annotations

import collections
import math

import pytest

from softroce_lab import _native

FLOW = {"src": 0x0A000001, "dst": 0x0A000003, "proto": 17, "dport": 4791}


def choose(salt: int, sport: int, ways: int, **other: int) -> int:
    return _native.route_choose(salt=salt, sport=sport, ways=ways, **{**FLOW, **other})


def assert_even(counts: collections.Counter[int], ways: int) -> None:
    total = sum(counts.values())
    expected = total / ways
    chi_square = sum((counts[way] - expected) ** 2 / expected for way in range(ways))
    assert abs(chi_square - (ways - 1)) < 5 * math.sqrt(2 * (ways - 1))


@pytest.mark.parametrize("ways", [1, 2, 3, 7, 64])
def test_every_port_gets_its_share(ways):
    counts = collections.Counter(choose(1, sport, ways) for sport in range(1 << 15))
    assert set(counts) == set(range(ways))
    if ways > 1:
        assert_even(counts, ways)


def test_a_flow_has_the_same_port_in_every_version():
    chosen = [choose(9, sport, 16) for sport in range(0xC000, 0xC008)]
    assert chosen == [14, 4, 11, 3, 9, 6, 3, 9]


def test_the_second_tier_uses_all_paths_of_what_one_port_of_the_first_sends_it():
    """With one salt for both, all of it would go the same way: hash polarisation."""
    through_port_0 = [sport for sport in range(1 << 14) if choose(100, sport, 4) == 0]
    assert_even(collections.Counter(choose(101, sport, 4) for sport in through_port_0), 4)
    assert {choose(100, sport, 4) for sport in through_port_0} == {0}


def test_spray_uses_every_port_evenly():
    counts = collections.Counter(_native.spray_choose(salt=5, n=n, ways=8) for n in range(1 << 14))
    assert_even(counts, 8)
