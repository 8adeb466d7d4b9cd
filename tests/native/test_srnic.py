# SPDX-License-Identifier: GPL-2.0-or-later
"""`srnic` packet by packet: ACKs, SACKs, gaps, and the timer behind them."""

import numpy as np
import pytest

from tests.native.by_hand import BASE_RTT_NS, RTO_HIGH_NS, ByHand, fast_timing, feedback


@pytest.fixture
def talk():
    """Six packets on their way."""
    return ByHand.begun("srnic", 6)


def test_packets_in_order_are_acknowledged_others_by_a_word_of_the_bitmap(talk):
    out = talk.data_out()
    answers = talk.answers(*(out[i] for i in (0, 2, 5, 1, 3, 4)))
    assert [feedback(each) for each in answers] == [
        ("ack", 1),
        ("sack", 1, (0, 0b000101)),
        ("sack", 1, (0, 0b100101)),
        ("ack", 3),
        ("ack", 4),
        ("ack", 6),
    ]
    again = [each for answer in answers for each in talk.deliver(talk.sender, answer)]
    assert [each.reported["index"] for each in again] == [1, 3, 4]
    assert talk.statuses() == ([0], [0])
    assert np.array_equal(talk.data, talk.place)


def test_the_word_is_that_of_the_packet():
    talk = ByHand("srnic", 200)
    talk.post()
    out = talk.data_out()
    (answer,) = talk.answers(out[130])
    assert feedback(answer) == ("sack", 0, (128, 0b100))
    retransmitted = [each.reported["index"] for each in talk.deliver(talk.sender, answer)]
    assert retransmitted == list(range(130))


def test_a_lost_sack_is_made_up_for_by_the_next(talk):
    out = talk.data_out()
    answers = talk.answers(*(out[i] for i in (0, 2, 5)))
    again = talk.deliver(talk.sender, answers[2])
    assert [each.reported["index"] for each in again] == [1, 3, 4]  # not 2


def test_a_gap_is_retransmitted_once_then_by_the_timer_with_all_that_is_out(talk):
    out = talk.data_out()
    answers = talk.answers(out[0], out[2], out[3])
    retransmitted = [
        each.reported["index"] for a in answers for each in talk.deliver(talk.sender, a)
    ]
    assert retransmitted == [1]
    sent_ns = talk.now_ns - 1_000  # when the SACK that told it came; one more followed
    assert talk.retransmitted_at(sent_ns + 10 * BASE_RTT_NS - 1) == []
    assert talk.retransmitted_at(sent_ns + 10 * BASE_RTT_NS) == [1, 4, 5]


MILLISECOND_NS = 1_000_000


@pytest.mark.parametrize("name", ["irn", "srnic"])
def test_a_measured_timer_lasts_rto_high_before_the_first_sample(name):
    talk = ByHand.begun(name, 1, timeout_measured=True)
    talk.data_out()
    assert talk.retransmitted_at(1_000 + RTO_HIGH_NS - 1) == []
    assert talk.retransmitted_at(1_000 + RTO_HIGH_NS) == [0]


@pytest.mark.parametrize("name", ["irn", "srnic"])
@pytest.mark.parametrize("rtt_ns", [400, 10_000, 2 * MILLISECOND_NS])
def test_a_measured_timer_is_srtt_and_four_rttvar_at_least_the_clocks_granularity(name, rtt_ns):
    """After one sample R: R + max(G, 4 R / 2) (RFC 6298, section 2)."""
    talk = ByHand.begun(name, 2, timeout_measured=True, timing=fast_timing())
    out = talk.data_out()
    (answer,) = talk.answers(out[0])
    talk.now_ns = rtt_ns  # one more thousand until it is delivered: sent at 1,000
    talk.deliver(talk.sender, answer)
    rto_ns = rtt_ns + max(4 * rtt_ns // 2, 1_000)
    assert talk.retransmitted_at(rtt_ns + 1_000 + rto_ns - 1) == []
    assert talk.retransmitted_at(rtt_ns + 1_000 + rto_ns) == [1]
