# SPDX-License-Identifier: GPL-2.0-or-later
"""Intervals that have backed off keep step with no outage that comes round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from tests.transports.pair_rig import DATA, MILLISECOND_NS, SECOND_NS, PairRig, noise
from tests.transports.sabotage import lose

LENGTHS = st.integers(1, 1 << 40)


@given(LENGTHS, st.integers(1, 1 << 20), LENGTHS)
def test_an_interval_that_backs_off_is_neither_shorter_nor_much_longer(first, doublings, most):
    interval = _native.backed_off(first, doublings, most)
    assert first <= interval <= max(first * 3 // 2, most)
    assert interval <= first << min(doublings, 40)
    if first << min(doublings, 40) >= most >= 2 * first:
        assert most // 2 <= interval <= most
    assert _native.backed_off(first, 0, most) == first


@pytest.fixture
def unacknowledged():
    """Messages whose receiver is not heard: when they were sent again, until they were given up."""

    def run(transport, messages, *, company=True):
        rig = PairRig(transport)
        for number in range(messages):
            rig.transfer((1, 2, number), 1000)
        if company:  # acknowledgements wait while another receive does
            rig.sides[1].receive((9, 9, 9), 1000)
        rig.cables[1].down = True
        retransmitted, at_ns = 0, []
        while rig.sides[0].outstanding:
            rig.step(rig.now_ns + MILLISECOND_NS)
            now = rig.counters(0)["tx_retransmitted"]
            at_ns += [rig.now_ns] * (now > retransmitted)
            retransmitted = now
        return rig, np.diff(at_ns)

    return run


@pytest.mark.parametrize("company", [False, True])
@pytest.mark.parametrize("messages", [1, 2, 5])
def test_each_acknowledgement_that_nobody_hears_is_said_more_often(
    messages, company, unacknowledged
):
    """Whichever others are: up to 16 times, in one batch for all that are retransmitted
    together.
    """
    rig, intervals = unacknowledged("ud_rto", messages, company=company)
    rounds = np.arange(len(intervals))
    each = np.minimum(np.maximum(rounds - 2, 1), 16).sum()
    assert 0.7 * each < rig.counters(1)["tx_control"] < 1.2 * each + 80


@pytest.mark.parametrize("transport", ["ud_rto", "sdr_sr"])
def test_a_receiver_that_says_it_is_not_ready_is_no_silence(transport):
    """A loss just behind the late receive costs the timer that a first loss costs."""
    rig = PairRig(transport)
    data = noise(3, 60_000)
    rig.sides[0].send((1, 2, 3), data)
    rig.step_until(1000 * MILLISECOND_NS)
    rig.sides[1].expect(rig.sides[1].receive((1, 2, 3), data.size), data)
    ready_ns = rig.now_ns
    rig.cables[0].down = True
    rig.step_until(ready_ns + MILLISECOND_NS // 3)
    rig.cables[0].down = False
    rig.finish()
    rig.check()
    assert rig.now_ns - ready_ns < 10 * MILLISECOND_NS


@pytest.mark.parametrize("transport", ["irn", "srnic"])
def test_refusals_keep_step_with_no_outage(transport):
    """Told while the cable is down for 2.5 ms of each of the longest intervals."""
    rig = PairRig(transport)
    lose(rig, 0, kind=DATA)
    rig.transfer((1, 2, 3), 1000)
    rig.step_until(10 * SECOND_NS, lambda: rig.sides[0].outstanding == 0)
    failed_ns = rig.now_ns
    round_ns = 40 * MILLISECOND_NS
    while rig.sides[1].outstanding and rig.now_ns < failed_ns + 2 * SECOND_NS:
        rig.cables[0].down = (rig.now_ns - failed_ns + MILLISECOND_NS) % round_ns < 2_500_000
        rig.step(rig.now_ns + MILLISECOND_NS // 8)
    assert rig.sides[1].statuses() == [ibv_wc_status.IBV_WC_RETRY_EXC_ERR]
