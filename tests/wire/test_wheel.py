# SPDX-License-Identifier: GPL-2.0-or-later
"""The timing wheel against a sorted list: exact (time, tie, insertion) order, near and far."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import _native
from tests.wire.shapes import MS, NEVER, SECOND, US

DISTANCES = st.one_of(
    st.integers(0, 2 * US),
    st.integers(0, 10 * MS),
    st.integers(0, 40 * SECOND),
    st.sampled_from([0, 1, 2**20 - 1, 2**20, 2**32 - 1, 2**32, 2**44 - 1, 2**44, 2**45]),
)
TIES = 2048
KINDS = st.sampled_from(["add", "late", "move"])
STEPS = st.lists(st.tuples(KINDS, DISTANCES, st.integers(0, TIES - 1)), max_size=200)


class Model:
    """The same by a heap of (time, tie, insertion)."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, int]] = []

    def take(self, now: int) -> tuple[int, int] | None:
        if not self.heap or self.heap[0][0] > now:
            return None
        at, _, number = heapq.heappop(self.heap)
        return at, number


@pytest.mark.parametrize("tied", [False, True])
@settings(max_examples=500, deadline=None)
@given(steps=STEPS)
def test_events_come_in_the_order_of_time_tie_and_insertion(tied, steps):
    wheel, model, now = _native.TiedWheel() if tied else _native.Wheel(), Model(), 0
    for number, (what, distance, drawn) in enumerate(steps):
        if what == "move":
            now += distance
            while (expected := model.take(now)) is not None:
                assert wheel.take(now) == expected
            assert wheel.take(now) is None
        else:
            at = now + distance if what == "add" else max(0, now - distance)
            tie = drawn if tied else 0
            wheel.add(at, number, tie)
            heapq.heappush(model.heap, (at, tie, number))
        assert wheel.next() == (model.heap[0][0] if model.heap else NEVER)
        assert len(wheel) == len(model.heap)
    now += 100 * SECOND
    while (expected := model.take(now)) is not None:
        assert wheel.take(now) == expected
    assert wheel.take(now) is None


def test_many_events_of_one_moment_come_in_the_order_of_their_ties():
    wheel = _native.TiedWheel()
    ties = [number * 7919 % TIES for number in range(10_000)]
    for number, tie in enumerate(ties):
        wheel.add(7 * US, number, tie)
    taken = [wheel.take(SECOND)[1] for _ in ties]
    assert taken == sorted(range(10_000), key=lambda number: (ties[number], number))


def test_a_tie_that_has_no_room_is_refused():
    with pytest.raises(ValueError, match="too large a tie"):
        _native.TiedWheel().add(0, 0, TIES)
    with pytest.raises(ValueError, match="too large a tie"):
        _native.Wheel().add(0, 0, 1)
