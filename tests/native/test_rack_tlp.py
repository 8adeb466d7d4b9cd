# SPDX-License-Identifier: GPL-2.0-or-later
"""`rack_tlp` packet by packet: its reordering window, its probe and its timeout (RFC 8985)."""

import numpy as np
import pytest

from tests.native.by_hand import RTO_HIGH_NS, ByHand, fast_timing, feedback

SENT_NS = 1_000  # all packets that are there at first


def begun(packets, **settings):
    talk = ByHand.begun("rack_tlp", packets, timing=fast_timing(), **settings)
    return talk, talk.data_out()


def arrive(talk, *packets):
    """The receiver gets these, and the sender all answers at once: what it retransmits then."""
    out = talk.deliver(talk.sender, *talk.answers(*packets))
    talk.latest = {each.reported["index"]: each for each in out if each.is_data}
    return sorted(talk.latest)


def test_packets_take_all_paths_and_are_acknowledged_one_by_one():
    talk, out = begun(16)
    assert sorted(each.reported["path"] for each in out.values()) == sorted([*range(8)] * 2)
    answers = talk.answers(*(out[i] for i in (0, 2, 1, *range(3, 16))))
    assert [feedback(each) for each in answers[:3]] == [
        ("ack", 1), ("sack", 1, (0, 0b101)), ("ack", 3),
    ]  # fmt: skip
    assert talk.deliver(talk.sender, *answers) == []
    assert talk.statuses() == ([0], [0])
    assert np.array_equal(talk.data, talk.place)


def test_before_reordering_an_early_packet_waits_a_quarter_of_the_least_rtt():
    """RFC 8985, 6.2, steps 4 and 5: 2,000 ns have passed when the feedback arrives."""
    talk, out = begun(8)
    assert arrive(talk, out[2]) == []
    rtt_ns = talk.now_ns - SENT_NS
    assert rtt_ns == 2_000
    due_ns = SENT_NS + rtt_ns + rtt_ns // 4
    assert talk.retransmitted_at(due_ns - 1) == []
    assert talk.retransmitted_at(due_ns) == [0, 1]


def test_before_reordering_three_packets_past_a_gap_show_a_loss_at_once():
    talk, out = begun(8)
    assert arrive(talk, out[2], out[3]) == []
    talk, out = begun(8)
    assert arrive(talk, out[2], out[3], out[4]) == [0, 1]


def test_after_reordering_a_gap_waits_for_the_window():
    talk, out = begun(8)
    assert arrive(talk, *(out[i] for i in (1, 0, 3, 4, 5))) == []
    rtt_ns = talk.now_ns - SENT_NS
    due_ns = SENT_NS + rtt_ns + rtt_ns // 4
    assert talk.retransmitted_at(due_ns - 1) == []
    assert talk.retransmitted_at(due_ns) == [2]  # 6 and 7 were sent later than all that arrived


def window_ns(talk, out, *, is_spurious=False):
    """How long a gap waits after the feedback on the packets past it. Then the message ends."""
    assert arrive(talk, *(out[i] for i in (0, *range(2, 8)))) == []
    told_ns = talk.now_ns
    for waited_ns in range(250, 10_000, 250):
        if talk.retransmitted_at(told_ns + waited_ns):
            assert sorted(talk.latest) == [1]
            assert arrive(talk, out[1] if is_spurious else talk.latest[1]) == []
            assert talk.statuses() == ([0], [0])
            return waited_ns
    raise AssertionError("it is not retransmitted")


def again(talk):
    """The next message."""
    talk.post()
    return talk.data_out()


def test_a_spurious_retransmission_widens_the_window_for_16_recoveries():
    talk, out = begun(8)
    assert arrive(talk, *(out[i] for i in (1, 0, *range(2, 8)))) == []  # reordering
    assert talk.statuses() == ([0], [0])
    least_ns = 8_000
    assert window_ns(talk, again(talk), is_spurious=True) == least_ns // 4
    assert window_ns(talk, again(talk)) == 2 * least_ns // 4
    least_ns = 2_000  # of the retransmission
    for _ in range(15):
        assert window_ns(talk, again(talk)) == 2 * least_ns // 4
    assert window_ns(talk, again(talk)) == least_ns // 4


def test_a_lost_retransmission_is_found_by_a_later_one():
    talk, out = begun(8)
    assert arrive(talk, out[1], out[2], out[3]) == [0]  # lost once more
    assert arrive(talk, out[5], out[6], out[7]) == [4]
    assert arrive(talk, talk.latest[4]) == [0]
    assert talk.latest[0].reported["attempt"] == 2
    assert arrive(talk, talk.latest[0]) == []
    assert talk.statuses() == ([0], [0])


def test_a_lost_tail_is_probed_after_two_srtt_and_then_waits_for_the_rto():
    talk, out = begun(4)
    assert arrive(talk, out[0], out[1]) == []
    told_ns, rtt_ns = talk.now_ns, talk.now_ns - SENT_NS
    assert talk.sender.peer_state(0).srtt_ns == rtt_ns
    assert talk.retransmitted_at(told_ns + 2 * rtt_ns - 1) == []
    assert talk.retransmitted_at(told_ns + 2 * rtt_ns) == [3]  # the packet that was sent last
    probe_ns = talk.now_ns
    rto_ns = rtt_ns + 4 * (rtt_ns // 2)  # RFC 6298, section 2, after one sample
    assert talk.retransmitted_at(probe_ns + rto_ns - 1) == []
    assert talk.retransmitted_at(probe_ns + rto_ns) == [2, 3]


def test_an_answered_probe_shows_the_losses_before_it():
    talk, out = begun(4)
    assert arrive(talk, out[0], out[1]) == []
    assert talk.retransmitted_at(talk.now_ns + 2 * (talk.now_ns - SENT_NS)) == [3]
    assert arrive(talk, talk.latest[3]) == [2]
    assert arrive(talk, talk.latest[2]) == []
    assert talk.statuses() == ([0], [0])


def test_before_the_first_sample_the_timeout_is_rto_high():
    talk, _ = begun(2)
    assert talk.retransmitted_at(SENT_NS + RTO_HIGH_NS - 1) == []
    assert 0 in talk.retransmitted_at(SENT_NS + RTO_HIGH_NS)


def test_after_a_timeout_and_progress_a_tail_is_probed_again():
    talk, out = begun(4)
    assert arrive(talk, out[0], out[1]) == []
    while talk.retransmitted_at(talk.now_ns + 100) != [2, 3]:
        pass
    assert arrive(talk, talk.latest[2], talk.latest[3]) == []
    assert talk.statuses() == ([0], [0])
    out = again(talk)
    assert arrive(talk, out[0], out[1]) == []
    told_ns, srtt_ns = talk.now_ns, talk.sender.peer_state(0).srtt_ns
    assert talk.retransmitted_at(told_ns + 2 * srtt_ns) == [3]


@pytest.mark.parametrize("timeout_ns", [2_000, 7_000])
def test_a_timeout_that_is_set_is_the_rto_and_bounds_the_probe(timeout_ns):
    talk, out = begun(4, timeout_ns=timeout_ns)
    arrive(talk, out[0], out[1])
    told_ns, rtt_ns = talk.now_ns, talk.now_ns - SENT_NS
    probe_ns = told_ns + min(2 * rtt_ns, timeout_ns)
    assert talk.retransmitted_at(probe_ns - 1) == []
    assert talk.retransmitted_at(probe_ns) == [3]
    assert talk.retransmitted_at(probe_ns + timeout_ns - 1) == []
    assert 2 in talk.retransmitted_at(probe_ns + timeout_ns)
