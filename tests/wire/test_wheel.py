# SPDX-License-Identifier: GPL-2.0-or-later
"""The timing wheel against a sorted list: exact (time, insertion) order, near and far."""

from __future__ import annotations

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import _native
from tests.wire.shapes import MS, NEVER, NS, SECOND, US

DISTANCES = st.one_of(
    st.integers(0, 2 * US),
    st.integers(0, 10 * MS),
    st.integers(0, 40 * SECOND),
    st.sampled_from([0, 1, 2**20 - 1, 2**20, 2**32 - 1, 2**32, 2**44 - 1, 2**44, 2**45]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "late", "move"]), DISTANCES), max_size=200)


class Model:
    """The same by a heap of (time, insertion)."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int]] = []

    def take(self, now: int) -> tuple[int, int] | None:
        return heapq.heappop(self.heap) if self.heap and self.heap[0][0] <= now else None


@settings(max_examples=500, deadline=None)
@given(STEPS)
def test_events_come_in_the_order_of_time_and_insertion(steps):
    wheel, model, now = _native.Wheel(), Model(), 0
    for number, (what, distance) in enumerate(steps):
        if what == "move":
            now += distance
            while (expected := model.take(now)) is not None:
                assert wheel.take(now) == expected
            assert wheel.take(now) is None
        else:
            at = now + distance if what == "add" else max(0, now - distance)
            wheel.add(at, number)
            heapq.heappush(model.heap, (at, number))
        assert wheel.next() == (model.heap[0][0] if model.heap else NEVER)
        assert len(wheel) == len(model.heap)
    now += 100 * SECOND
    while (expected := model.take(now)) is not None:
        assert wheel.take(now) == expected
    assert wheel.take(now) is None


def test_nothing_is_due_before_its_time():
    wheel = _native.Wheel()
    wheel.add(5 * MS + 1, 1)
    assert wheel.take(5 * MS) is None
    assert wheel.take(5 * MS + 1) == (5 * MS + 1, 1)


def test_many_events_of_one_moment_keep_their_order():
    wheel = _native.Wheel()
    for number in range(10_000):
        wheel.add(7 * US + number % 3 * NS, number)
    taken = [wheel.take(SECOND)[1] for _ in range(10_000)]
    assert taken == sorted(range(10_000), key=lambda number: (number % 3, number))


def test_events_beyond_the_last_ring_come_in_time():
    wheel = _native.Wheel()
    times = [SECOND * seconds for seconds in (600, 17, 18, 19, 3600, 0)]
    for number, at in enumerate(times):
        wheel.add(at, number)
    assert [wheel.take(2 * 3600 * SECOND)[0] for _ in times] == sorted(times)
