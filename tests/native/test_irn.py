# SPDX-License-Identifier: GPL-2.0-or-later
"""`irn` packet by packet: what the paper says of NACKs, recovery, BDP-FC and the two timers."""

import numpy as np
import pytest

from tests.native.by_hand import RTO_HIGH_NS, RTO_LOW_NS, ByHand, feedback


@pytest.fixture
def talk():
    """Six packets on their way."""
    return ByHand.begun("irn", 6)


def test_reordering_without_loss_causes_one_nack_a_packet_that_is_early(talk):
    out = talk.data_out()
    answers = talk.answers(*(out[i] for i in (0, 2, 3, 1, 5, 4)))
    assert [feedback(each) for each in answers] == [
        ("ack", 1), ("nack", 1, 2), ("nack", 1, 3), ("ack", 4), ("nack", 4, 5), ("ack", 6),
    ]  # fmt: skip
    # Each gap is retransmitted once, in vain, and the receiver answers that, too.
    again = [each for answer in answers for each in talk.deliver(talk.sender, answer)]
    assert [each.reported["index"] for each in again] == [1, 4]
    assert [each.reported["attempt"] for each in again] == [1, 1]
    assert [feedback(each) for each in talk.answers(*again)] == [("ack", 6), ("ack", 6)]
    assert talk.statuses() == ([0], [0])
    assert np.array_equal(talk.data, talk.place)


@pytest.mark.parametrize(("late_ns", "samples"), [(999_000_000, True), (1_001_000_000, False)])
def test_an_acknowledgement_of_a_packet_older_than_a_second_is_no_sample(talk, late_ns, samples):
    """Its stamp of 32 bits may have wrapped by then, for all that is known."""
    [answer] = talk.answers(talk.data_out()[0])
    before = talk.sender.peer_state(0).srtt_ns
    talk.now_ns += late_ns
    talk.deliver(talk.sender, answer)
    assert (talk.sender.peer_state(0).srtt_ns != before) == samples


def test_what_is_retransmitted_first_is_at_the_cumulative_acknowledgement_then_gaps_below_a_sack(
    talk,
):
    out = talk.data_out()
    answers = talk.answers(*(out[i] for i in (0, 2, 4, 5)))
    retransmitted = [
        [each.reported["index"] for each in talk.deliver(talk.sender, answer)] for answer in answers
    ]
    assert retransmitted == [[], [1], [3], []]


def test_a_lost_retransmission_is_left_to_the_timer(talk):
    out = talk.data_out()
    lost = talk.deliver(talk.sender, *talk.answers(*(out[i] for i in (0, 2, 3, 4))))
    assert [each.reported["index"] for each in lost] == [1]
    sent_ns = talk.now_ns
    assert talk.deliver(talk.sender, *talk.answers(out[5])) == []
    assert talk.retransmitted_at(sent_ns + RTO_HIGH_NS - 1) == []
    assert talk.retransmitted_at(sent_ns + RTO_HIGH_NS) == [1]


def test_a_gap_behind_a_repaired_one_is_retransmitted_once():
    """Although the acknowledgement passes all that was sent before the first retransmission."""
    talk = ByHand("irn", 12, window_packets=6)
    talk.post()
    out = talk.data_out()  # 0 to 5; 0 is lost
    (again,) = talk.deliver(talk.sender, *talk.answers(out[1]))
    (answer,) = talk.answers(again)
    out |= {each.reported["index"]: each for each in talk.deliver(talk.sender, answer)}  # 6 and 7
    talk.deliver(talk.sender, *talk.answers(out[2], out[3]))
    # 4 is lost, too, and is retransmitted; the NACKs of all that follows name the same gap.
    answers = talk.answers(out[5], out[6], out[7])
    assert [feedback(each)[:2] for each in answers] == [("nack", 4)] * 3
    sent = [each.reported["index"] for each in talk.deliver(talk.sender, *answers)]
    assert sent.count(4) == 1


def test_after_a_timeout_a_partial_acknowledgement_tells_the_next_loss():
    """Where all that was sent is lost; receiveAck.cpp of the authors' hardware modules."""
    talk = ByHand("irn", 12, window_packets=6)
    talk.post()
    assert sorted(talk.data_out()) == [0, 1, 2, 3, 4, 5]  # all lost
    assert talk.retransmitted_at(1_000 + RTO_HIGH_NS) == [0]
    (answer,) = talk.answers(talk.latest[0])
    assert feedback(answer) == ("ack", 1)
    # The next at the cumulative acknowledgement, and a new one for which there is room now.
    assert [each.reported["index"] for each in talk.deliver(talk.sender, answer)] == [1, 6]


@pytest.mark.parametrize(
    ("packets", "after_ns", "retransmitted"),
    [(1, RTO_LOW_NS, [0]), (3, RTO_LOW_NS, [0]), (4, RTO_HIGH_NS, [0]), (40, RTO_HIGH_NS, [0])],
)
def test_the_timer_is_low_while_few_packets_are_out(packets, after_ns, retransmitted):
    talk = ByHand("irn", packets)
    talk.post()
    assert len(talk.data_out()) == packets
    assert talk.retransmitted_at(1_000 + after_ns - 1) == []
    assert talk.retransmitted_at(1_000 + after_ns) == retransmitted


def test_at_most_one_bandwidth_delay_product_is_out_past_the_cumulative_acknowledgement():
    talk = ByHand("irn", 20, window_packets=4)
    talk.post()
    out = talk.data_out()
    assert sorted(out) == [0, 1, 2, 3]
    answers = talk.answers(*(out[i] for i in (1, 2, 3, 0)))
    # NACKs open no room: nothing new, only the gap.
    assert [each.reported["index"] for each in talk.deliver(talk.sender, *answers[:3])] == [0]
    assert feedback(answers[3]) == ("ack", 4)
    sent = [each.reported["index"] for each in talk.deliver(talk.sender, answers[3])]
    assert sent == [4, 5, 6]  # what was retransmitted spuriously is in flight still
