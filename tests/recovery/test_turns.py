# SPDX-License-Identifier: GPL-2.0-or-later
"""Resends and intervals that keep step with no periodic loss, no short queue and no outage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.recovery.turns import backed_off, in_turn

ROUNDS = 100  # half of the attempts that there are


@given(st.integers(1, 5000), st.integers(0, 1 << 20))
def test_no_packet_is_lost_or_said_twice(count, resends):
    packets = np.arange(7, 7 + count, dtype=np.uint32)
    again = in_turn(packets, resends)
    assert again.dtype == np.uint32
    np.testing.assert_array_equal(np.sort(again), packets)


def test_the_first_resend_is_in_order():
    assert in_turn(np.arange(9, dtype=np.uint32), 0).tolist() == list(range(9))


@pytest.mark.parametrize("period", range(2, 20))
def test_each_packet_passes_what_loses_each_nth(period):
    for count in range(2, 65):
        for others in range(3):  # of the link, between two resends
            arrived = np.zeros(count, np.bool_)
            for resends in range(ROUNDS):
                place = resends * (count + others) + np.arange(count)
                arrived[in_turn(np.arange(count), resends)[place % period != 0]] = True
            assert arrived.all(), f"{count} packets, {others} others"


@pytest.mark.parametrize("room", [1, 2, 3])
def test_each_packet_passes_a_queue_that_holds_only_the_first(room):
    for count in range(room, 33):
        arrived = {int(i) for r in range(ROUNDS) for i in in_turn(np.arange(count), r)[:room]}
        assert len(arrived) == count


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 20), st.integers(1, 1 << 40))
def test_an_interval_grows_to_between_half_of_its_most_and_all_of_it(first_ns, doublings, most_ns):
    whole_ns = max(min(first_ns << min(doublings, 40), most_ns), first_ns)
    interval_ns = backed_off(first_ns, doublings, most_ns)
    assert max(first_ns, whole_ns // 2) <= interval_ns <= whole_ns
    assert backed_off(first_ns, 0, most_ns) == first_ns


@pytest.mark.parametrize("times_a_most", [0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 7.5])
@pytest.mark.parametrize("dead", [0.25, 0.5])
def test_no_outage_that_comes_round_meets_every_repetition(times_a_most, dead):
    """For a half of each time round, with any phase: four in the twenty that follow pass it."""
    most_ns = 64_000
    period_ns = round(most_ns / times_a_most)
    at_ns = np.cumsum([backed_off(1000, doublings, most_ns) for doublings in range(26)])
    for began_ns in range(0, period_ns, period_ns // 50):
        passed = (at_ns[6:] - began_ns) % period_ns >= dead * period_ns
        assert passed.sum() >= 4
