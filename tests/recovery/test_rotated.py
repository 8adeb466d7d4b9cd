# SPDX-License-Identifier: GPL-2.0-or-later
"""Retransmissions that begin elsewhere each time keep step with no periodic loss and no short
queue.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.recovery.api import rotated

ROUNDS = 100  # half of the attempts that there are


@given(st.integers(1, 5000), st.integers(0, 1 << 20))
def test_no_packet_is_lost_or_said_twice(count, retransmissions):
    packets = np.arange(7, 7 + count, dtype=np.uint32)
    again = rotated(packets, retransmissions)
    assert again.dtype == np.uint32
    np.testing.assert_array_equal(np.sort(again), packets)


def test_the_first_retransmission_is_in_order():
    assert rotated(np.arange(9, dtype=np.uint32), 0).tolist() == list(range(9))


@pytest.mark.parametrize("period", range(2, 20))
def test_each_packet_passes_what_loses_each_nth(period):
    for count in range(2, 65):
        for others in range(3):  # of the link, between two retransmissions
            arrived = np.zeros(count, np.bool_)
            for retransmissions in range(ROUNDS):
                place = retransmissions * (count + others) + np.arange(count)
                arrived[rotated(np.arange(count), retransmissions)[place % period != 0]] = True
            assert arrived.all(), f"{count} packets, {others} others"


@pytest.mark.parametrize("room", [1, 2, 3])
def test_each_packet_passes_a_queue_that_holds_only_the_first(room):
    for count in range(room, 33):
        arrived = {int(i) for r in range(ROUNDS) for i in rotated(np.arange(count), r)[:room]}
        assert len(arrived) == count
