# SPDX-License-Identifier: GPL-2.0-or-later
"""One directed link: queue, transmitter and delay, to the picosecond."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab import _native
from softroce_lab.plan.effects import Window
from tests.wire.shapes import (
    MS,
    NS,
    REORDER,
    SECOND,
    US,
    Link,
    delay,
    fault,
    packed,
    queue,
    reorder,
)

GBIT = 10**9
LENGTHS = st.integers(60, 4096)
GAPS = st.integers(0, 20 * US)
ARRIVALS = st.lists(st.tuples(GAPS, LENGTHS), min_size=1, max_size=80)


def offered(link: Link, arrivals, **facts) -> list[tuple[int, int]]:
    """Offers the frames; returns (handle, moment) of those that were taken."""
    now, taken = 0, []
    for handle, (gap, length) in enumerate(arrivals):
        now += gap
        if link.offer(now, handle, length, **facts):
            taken.append((handle, now))
    return taken


# --- Time ------------------------------------------------------------------------------------


def test_a_delay_is_added():
    link = Link(delay(1_000_000))
    link.offer(5 * US, 1)
    assert link.due == [(1, 5 * US + MS)]


@settings(deadline=None)
@given(ARRIVALS, st.integers(10**6, 400 * GBIT), st.integers(0, 10**7))
def test_every_departure_is_exact(arrivals, rate_bps, delay_ns):
    """Busy periods at the exact rate: a frame's end is the floor of the rational moment."""
    link = Link(queue(rate_bps), delay(delay_ns))
    offered(link, arrivals)
    link.finish()
    expected, now, busy_until, began, work = [], 0, 0, 0, 0
    for handle, (gap, length) in enumerate(arrivals):
        now += gap
        if now > busy_until or not handle:
            began, work = now, 0
        work += 8 * length
        busy_until = began + Fraction(work * SECOND, rate_bps)
        busy_until = int(busy_until)
        expected.append((handle, busy_until + delay_ns * NS))
    assert link.due == expected


@settings(deadline=None)
@given(ARRIVALS, st.lists(st.integers(0, 400 * US), max_size=20))
def test_when_one_looks_changes_nothing(arrivals, looks):
    shape = (queue(GBIT, limit_packets=5, trim=True), delay(10_000, 5_000))
    seen = []
    for moments in ((), sorted(looks)):
        link, now, pending = Link(*shape), 0, list(moments)
        for handle, (gap, length) in enumerate(arrivals):
            now += gap
            while pending and pending[0] <= now:
                link.advance(pending.pop(0))
            link.offer(now, handle, length, trimmed_length=60, jitter=handle * 0x9E3779B9 % 2**32)
        link.finish()
        seen.append((link.due, link.figures()._replace(late=None, residence=None)))
    assert seen[0] == seen[1]


# --- The queue -------------------------------------------------------------------------------


@settings(deadline=None)
@given(ARRIVALS, st.integers(0, 20_000), st.integers(0, 10), st.booleans())
def test_frames_are_conserved_and_the_limit_holds(arrivals, limit_bytes, limit_packets, trim):
    link = Link(queue(GBIT, limit_bytes=limit_bytes, limit_packets=limit_packets, trim=trim))
    now = 0
    for handle, (gap, length) in enumerate(arrivals):
        now += gap
        link.offer(now, handle, length, trimmed_length=100)
        figures = link.figures()
        trimmed_bytes = limit_bytes if trim else 0
        assert figures.waiting_bytes <= limit_bytes + trimmed_bytes
        assert figures.waiting_packets <= limit_packets + (1024 if trim else 0)
    link.finish()
    figures = link.figures()
    assert figures.arrived == len(arrivals)
    assert figures.arrived == figures.released + figures.dropped_limit
    assert figures.held == figures.waiting_packets == figures.waiting_bytes == 0
    assert len({handle for handle, *_ in link.gone}) == figures.released


def test_the_frame_in_transmission_does_not_wait():
    link = Link(queue(10**6, limit_packets=2))
    taken = [link.offer(0, handle) for handle in range(4)]
    assert taken == [True, True, True, False]
    assert link.figures().most_waiting_packets == 2


def test_bytes_are_dropped_beyond_the_limit_and_not_at_it():
    link = Link(queue(10**6, limit_bytes=2000))
    taken = [link.offer(0, 0), link.offer(0, 1, 999), link.offer(0, 2, 1001), link.offer(0, 3, 60)]
    assert taken == [True, True, True, False]
    link = Link(queue(10**6, limit_bytes=2000))
    assert [link.offer(0, 0), link.offer(0, 1), link.offer(0, 2, 1001)] == [True, True, False]


@pytest.mark.parametrize(("limit", "first"), [({"ecn_packets": 3}, 4), ({"ecn_bytes": 3000}, 4)])
def test_marks_begin_exactly_at_the_threshold(limit, first):
    """Frame 0 is in transmission; frame n is the n-th that waits."""
    link = Link(queue(10**6, **limit))
    for handle in range(8):
        link.offer(0, handle, ecn_capable=True)
    link.finish()
    assert {handle for handle, _, marked, *_ in link.gone if marked} == set(range(first, 8))
    assert link.figures().marked == 8 - first


# --- Trimming --------------------------------------------------------------------------------


def test_a_trimmed_frame_overtakes_those_that_wait():
    link = Link(queue(8 * 10**6, limit_packets=2, trim=True))  # a byte a microsecond
    for handle in range(4):
        assert link.offer(0, handle, trimmed_length=100)
    link.finish()
    ends = [(0, 1000), (3, 1100), (1, 2100), (2, 3100)]
    assert link.due == [(handle, end * US) for handle, end in ends]
    assert [entry[:2] for entry in link.gone if entry[3]] == [(3, 100)]
    assert link.figures().trimmed == 1


def test_what_cannot_be_trimmed_is_dropped():
    link = Link(queue(10**6, limit_packets=1, trim=True))
    assert [link.offer(0, handle) for handle in range(3)] == [True, True, False]
    assert not link.offer(0, 3, 90, trimmed_length=90)
    assert link.figures().dropped_limit == 2


def test_trimming_begins_where_it_is_told():
    """Packets that cannot be trimmed may fill the rest of the queue."""
    link = Link(queue(8 * 10**6, limit_bytes=6000, trim=True, trim_bytes=3000))
    for handle in range(6):
        assert link.offer(0, handle, trimmed_length=100)
    assert [link.offer(0, handle) for handle in range(6, 10)] == [True, True, True, False]
    link.finish()
    assert [entry[0] for entry in link.gone if entry[3]] == [4, 5]
    assert [handle for handle, _ in link.due] == [0, 4, 1, 5, 2, 3, 6, 7, 8]


@pytest.mark.parametrize("share", [1, 250_000, 500_000, 900_000, 1_000_000])
@pytest.mark.parametrize("length", [200, 1000])
def test_trimmed_frames_get_their_share_while_others_wait(share, length):
    """To within a frame of either kind; alone they have the whole rate."""
    link = Link(queue(8 * 10**6, limit_bytes=10**6, trim=True, trim_packets=100, trim_share=share))
    for handle in range(1000):
        assert link.offer(0, handle, length, trimmed_length=100)
    link.finish()
    assert link.gone[-1][4] == (101 * length + 899 * 100) * US
    sent, waiting = {True: 0, False: 0}, {True: 899, False: 100}
    for _, size, _, trimmed, _ in link.gone[1:]:  # the first one found nothing waiting
        if not all(waiting.values()):
            break
        sent[trimmed] += size
        waiting[trimmed] -= 1
        ahead = (sent[True] * (10**6 - share) - sent[False] * share) / 10**6
        assert -length <= ahead <= 100


# --- Delay, jitter, order --------------------------------------------------------------------


@given(ARRIVALS, st.integers(0, 100_000), st.sampled_from(["uniform", "normal", "pareto"]))
def test_jitter_never_lets_a_frame_overtake_and_never_is_negative(arrivals, jitter_ns, kind):
    link = Link(delay(20_000, jitter_ns, kind))
    now = 0
    for handle, (gap, length) in enumerate(arrivals):
        now += gap
        link.offer(now, handle, length, jitter=handle * 0x9E3779B9 % 2**32)
        assert link.gone[-1][4] >= now
    assert [handle for handle, _ in link.due] == list(range(len(arrivals)))
    link.finish()
    assert link.figures().overtaken == 0


def test_jitter_reorders_where_that_is_allowed():
    link = Link(delay(100_000, 100_000, preserve=False))
    link.offer(0, 1, jitter=2**32 - 1)
    link.offer(0, 2, jitter=0)
    link.finish()
    assert [handle for handle, _ in link.due] == [2, 1]
    assert (link.figures().overtaken, link.figures().reordered) == (1, 0)


def test_a_chosen_frame_skips_the_delay_and_drags_none():
    link = Link(delay(1_000_000), reorder())
    link.offer(0, 1)
    link.offer(US, 2, effects=REORDER)
    link.offer(2 * US, 3)
    link.finish()
    assert link.due == [(2, US), (1, MS), (3, MS + 2 * US)]
    assert link.figures().reordered == 1


def test_a_chosen_frame_waits_longer_and_holds_up_none():
    link = Link(delay(1_000_000), reorder(5_000))
    link.offer(0, 1, effects=REORDER)
    link.offer(US, 2)
    link.finish()
    assert link.due == [(2, MS + US), (1, MS + 5 * US)]
    assert (link.figures().reordered, link.figures().overtaken) == (1, 1)


def test_a_copy_leaves_right_behind_its_original():
    link = Link(queue(8 * 10**6), delay(1_000, 500))
    link.offer(0, 1, jitter=7)
    link.offer(0, 2, jitter=7, copy=True)
    link.finish()
    (_, first), (_, second) = link.due
    assert second - first == MS  # its own time in the transmitter
    assert (link.figures().arrived, link.figures().duplicated) == (1, 1)


# --- Changes ---------------------------------------------------------------------------------


def test_held_frames_keep_their_times_when_the_shape_changes():
    link = Link(queue(8 * 10**6), delay(1_000_000))
    for handle in range(3):
        link.offer(0, handle)
    link.shape()
    link.offer(US, 3)
    link.finish()
    assert link.due == [(handle, (handle + 2) * MS) for handle in range(3)] + [(3, 4 * MS)]


def test_of_the_parts_whose_windows_act_the_last_counts():
    link = Link(
        delay(1_000),
        fault(delay(9_000, preserve=False), Window(begin_ns=1_000_000, length_ns=1_000_000)),
    )
    for handle, now in enumerate((0, MS - NS, MS, 2 * MS - NS, 2 * MS)):
        link.offer(now, handle)
        assert link.gone[-1][4] - now == (9 if handle in (2, 3) else 1) * US


# --- Room ------------------------------------------------------------------------------------


def needed(*parts) -> int:
    return _native.frames_needed(packed(*parts))


def test_room_is_a_full_queue_and_a_full_delay():
    assert needed() == 0
    assert needed(delay(1_000_000)) == 400
    assert needed(delay(1_000_000, 500_000)) == 600
    assert needed(delay(1_000_000), reorder(1_000_000)) == 800
    assert needed(queue(8 * 256 * 1000, limit_packets=50), delay(10**9)) == 50 + 1001
    assert needed(queue(GBIT, limit_bytes=25_600)) == 101
    assert needed(queue(GBIT, limit_packets=10, trim=True)) == 10 + 1024
    assert needed(queue(GBIT)) > 10**15  # without a limit nothing is enough
