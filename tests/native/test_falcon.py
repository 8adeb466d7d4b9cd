# SPDX-License-Identifier: GPL-2.0-or-later
"""`falcon` packet by packet: what arrives, and what leaves then (native/transport/falcon.cpp)."""

from __future__ import annotations

import pytest

from tests.native.by_hand import BASE_RTT_NS, KEY, ByHand, fast_timing
from tests.native.rule_rows import GAP_NS, Arrive, At, Receiver, Row, Talk, options, sent_ns

PACKETS = 8
PTO_NS = 2 * BASE_RTT_NS  # the least probe timeout: the RTTs here are shorter
RTO_NS, FIRST_RTO_NS = 250_000, 1_000_000
QUIET = {"probes": False}
DISTANCE = {"detection": "ooo-distance", **QUIET}


EACH = {"coalesced_packets": 1}  # the receiver answers each packet


def begun(packets=PACKETS) -> Talk:
    return Talk("falcon", packets, **options("falcon", **EACH))


ALL_SENT_NS = sent_ns(PACKETS)
HEARD_NS = ALL_SENT_NS + 2_000  # of one packet that arrived at first


def rtt_ns(packet: int) -> int:
    """If it is the first to arrive."""
    return HEARD_NS - sent_ns(packet)


def rack_ns(packet: int) -> int:
    """The RACK timeout then: the window is a quarter of the RTT."""
    return rtt_ns(packet) + rtt_ns(packet) // 4


# ---------------------------------------------------------------- the rules, one a row


DUE_NS = sent_ns(0) + rack_ns(2)  # of packet 0, when packet 2 has arrived
LOST = (Arrive((2,)), At(DUE_NS, (0,)), At(DUE_NS + GAP_NS, (1,)))  # 0 and 1, by RACK
SECOND_RTT_NS = HEARD_NS + 2_000 - sent_ns(3)  # when packet 3 is the second to arrive
SRTT_NS = rtt_ns(2) + (SECOND_RTT_NS - rtt_ns(2)) // 8
SECOND_DUE_NS = sent_ns(0) + SECOND_RTT_NS + SRTT_NS // 4
AGAIN_RTT_NS = 2_000  # of the retransmission of packet 1
AGAIN_DUE_NS = DUE_NS + AGAIN_RTT_NS + (rtt_ns(2) - (rtt_ns(2) - AGAIN_RTT_NS) // 8) // 4

RACK = (
    Row("rack: a packet waits (now - T1) + RTT / 4 from its transmission on",
        (Arrive((2,)), At(DUE_NS - 1), At(DUE_NS, (0,)), At(DUE_NS + GAP_NS - 1),
         At(DUE_NS + GAP_NS, (1,)))),
    Row("rack: a packet that was sent after T1 is not lost",
        (*LOST, At(HEARD_NS + PTO_NS - 1))),
    Row("rack: the window is a share of the RTT",
        (Arrive((2,)), At(sent_ns(0) + 2 * rtt_ns(2) - 1), At(sent_ns(0) + 2 * rtt_ns(2), (0,))),
        {"rack_window": 1.0}),
    Row("rack: the window has a least length",
        (Arrive((2,)), At(sent_ns(0) + rtt_ns(2) + 9_999),
         At(sent_ns(0) + rtt_ns(2) + 10_000, (0,))), {"least_rack_window": 10_000}),
    Row("rack: a newer T1 sets the timeout anew",
        (Arrive((2,)), Arrive((3,)), At(SECOND_DUE_NS - 1), At(SECOND_DUE_NS, (0,)))),
    Row("rack: an older T1 does not",
        (Arrive((3, 2)), At(sent_ns(0) + 4_374), At(sent_ns(0) + 4_375, (0,)))),
    Row("rack: the search stops at the first packet that is not old enough",
        (*LOST, Arrive((1,)), At(AGAIN_DUE_NS - 1), At(AGAIN_DUE_NS, (0, 3, 4, 5, 6, 7))), QUIET),
    Row("rack: an EACK lets all packets be lost that were sent up to T1 and are old enough",
        (*LOST, Arrive((5,)), Arrive((0,), (3, 4, 6, 7)))),
    Row("rack: a base ACK beyond the EACK's base ends the search",
        (*LOST, Arrive((1,)), Arrive((0,)), At(200_000)), QUIET),
    Row("rack: a timeout longer than the RTO leaves all to the RTO",
        (Arrive((2,)), At(sent_ns(0) + 3_099), At(sent_ns(0) + 3_100, (0,))),
        QUIET, {"timeout_ns": 3_100}),
    Row("a packet has at most `most_early` early retransmissions",
        (*LOST, Arrive((1,), (3, 4, 5, 6, 7)), At(DUE_NS + RTO_NS - 1),
         At(DUE_NS + RTO_NS, (0,))), {"most_early": 1}),
)  # fmt: skip

BY_DISTANCE = (
    Row("distance: a packet is lost if one more than 3 beyond it has arrived",
        (Arrive((4,), (0,)),), DISTANCE),
    Row("distance: not if that one is 3 beyond it", (Arrive((3,)), At(200_000)), DISTANCE),
    Row("distance: all packets that far below the highest one are lost at once",
        (Arrive((7,), (0, 1, 2, 3)),), DISTANCE),
    Row("distance: it is an option", (Arrive((2,), (0,)),), {**DISTANCE, "distance": 1}),
    Row("distance: a packet that was sent less than a round trip ago is not lost",
        (Arrive((4,), (0,)), Arrive((5,), (1,))), DISTANCE),
    Row("distance: a retransmission is lost when an EACK shows a later one",
        (Arrive((4,), (0,)), Arrive((5,), (1,)), Arrive((1,), (0,))), DISTANCE),
    Row("distance: a base ACK shows nothing", (Arrive((0, 1, 2)), At(200_000)), DISTANCE),
)  # fmt: skip

TIMERS = (
    Row("a probe leaves 2 base RTTs after the last feedback: the first packet that is missing",
        (Arrive((0,)), At(HEARD_NS + PTO_NS - 1), At(HEARD_NS + PTO_NS, (1,)))),
    Row("a probe may be the last packet that is missing",
        (Arrive((0,)), At(HEARD_NS + PTO_NS, (7,))), {"probe": "last"}),
    Row("the last one within 128 beyond the base of the newest EACK",
        (Arrive((0,)), At(sent_ns(140) + 2_000 + PTO_NS, (127,))),
        {"probe": "last", "psn_window": 140}, {"packets": 140}),
    Row("a probe waits for its multiple of the RTT",
        (Arrive((0,)), At(HEARD_NS + 40 * rtt_ns(0) - 1), At(HEARD_NS + 40 * rtt_ns(0), (1,))),
        {"probe_rtts": 40.0}),
    Row("a probe has a least timeout",
        (Arrive((0,)), At(HEARD_NS + 9_999), At(HEARD_NS + 10_000, (1,))),
        {"least_probe_timeout": 10_000}),
    Row("the timeout of a probe starts again at each transmission, that of the probe, too",
        (Arrive((0,)), At(HEARD_NS + PTO_NS, (1,)), At(HEARD_NS + 2 * PTO_NS - 1),
         At(HEARD_NS + 2 * PTO_NS, (1,)))),
    Row("the timeout of a probe starts before the first feedback",
        (At(sent_ns(7) + PTO_NS - 1), At(sent_ns(7) + PTO_NS, (0,)))),
    Row("no probe leaves if the packet has had its early retransmissions",
        (Arrive((0,)), At(HEARD_NS + PTO_NS, (1,)), At(sent_ns(2) + RTO_NS - 1),
         At(sent_ns(2) + RTO_NS, (2,))), {"most_early": 1}),
    Row("at first the RTO is 1 ms, from each packet's transmission on",
        (At(sent_ns(0) + FIRST_RTO_NS - 1), At(sent_ns(0) + FIRST_RTO_NS, (0,)),
         At(sent_ns(1) + FIRST_RTO_NS, (1,))), QUIET),
    Row("when the RTT is known the RTO is at least 250 us",
        (Arrive((0,)), At(sent_ns(1) + RTO_NS - 1), At(sent_ns(1) + RTO_NS, (1,))), QUIET),
    Row("the RTO is at least two RTTs",
        (Arrive((0,)), At(sent_ns(1) + 2 * rtt_ns(0) - 1), At(sent_ns(1) + 2 * rtt_ns(0), (1,))),
        {**QUIET, "least_timeout": 1_000}),
    Row("a retransmission starts its packet's timer again",
        (Arrive((0,)), At(sent_ns(1) + RTO_NS, (1,)), At(sent_ns(7) + RTO_NS, (2, 3, 4, 5, 6, 7)),
         At(sent_ns(1) + 2 * RTO_NS - 1), At(sent_ns(1) + 2 * RTO_NS, (1,))), QUIET),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, (0,))), QUIET, {"timeout_ns": 7_000}),
)  # fmt: skip


@pytest.mark.parametrize("row", [*RACK, *BY_DISTANCE, *TIMERS], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("falcon", PACKETS, **EACH)


# ---------------------------------------------------------------- coalesced feedback


COALESCED_NS = 8_000


def test_ten_packets_are_answered_at_once():
    talk = Receiver("falcon", 32, coalescing_time=1_000_000)
    assert talk.arrive(*range(9)) == []
    assert talk.arrive(9) == [("ack", 10)]
    assert talk.arrive(*range(10, 19)) == []
    assert talk.arrive(10) == [("ack", 19)]  # a duplicate


def test_fewer_packets_are_answered_8_us_after_the_first():
    talk = Receiver("falcon", 32)
    assert talk.arrive(0) == []
    due_ns = talk.now_ns + COALESCED_NS
    assert talk.arrive(2) == []
    assert talk.at(due_ns - 1) == []
    assert talk.at(due_ns) == [("sack", 1, (0, 0b101))]
    assert talk.arrive(1) == []
    assert talk.at(talk.now_ns + COALESCED_NS) == [("ack", 3)]


def test_a_complete_message_is_answered_at_once():
    talk = Receiver("falcon", 64)
    assert talk.arrive(*range(60)) == [("ack", 10 * n) for n in range(1, 7)]
    assert talk.arrive(60, 61, 62, 63) == [("ack", 64)]


def test_each_word_of_the_bitmap_in_which_something_came_has_an_answer():
    talk = Receiver("falcon", 128)
    assert talk.arrive(*range(1, 9)) == []
    assert talk.arrive(70) == []
    assert talk.arrive(9) == [("sack", 0, (64, 1 << 6)), ("sack", 0, (0, 0x3FE))]


def test_a_probe_waits_for_coalesced_feedback():
    """2 RTT of 30 us, and 8 us."""
    rtt_ns = 30_000
    talk = ByHand.begun("falcon", 4, timing=fast_timing(), **options("falcon", coalesced_packets=2))
    out = talk.data_out()
    talk.now_ns += rtt_ns - 3_000
    answers = talk.answers(out[0], out[1])
    assert talk.deliver(talk.sender, *answers) == []
    due_ns = talk.now_ns + 2 * rtt_ns + COALESCED_NS
    assert talk.retransmitted_at(due_ns - 1) == []
    assert talk.retransmitted_at(due_ns) == [2]


# ---------------------------------------------------------------- the connection


def test_the_window_holds_first_transmissions_and_no_others():
    """128 PSNs, from the oldest unacknowledged one on."""
    talk = begun(200)
    assert sorted(talk.latest) == list(range(128))
    lost = talk.latest[0]
    assert talk.arrive(1) == []
    rtt_ns = talk.now_ns - sent_ns(1)
    assert talk.at(sent_ns(0) + rtt_ns + rtt_ns // 4) == [0]
    assert talk.latest[0].reported["path"] != lost.reported["path"]
    assert talk.arrive(0) == [128, 129]


LATER = (*KEY[:2], KEY[2] + 1)


def test_messages_to_a_peer_share_the_connection():
    """The next message's first packet shows that all of this one is lost."""
    talk = begun()
    talk.receiver.post_receive(0, LATER, talk.keys[1], 0, len(talk.place), 1)
    talk.sender.post_send(0, LATER, talk.keys[0], 0, len(talk.data), 1)
    talk.latest = talk.spaced()
    first_ns = sent_ns(PACKETS)
    out = talk.arrive(0)
    rtt_ns = talk.now_ns - first_ns
    due_ns = rtt_ns + rtt_ns // 4
    late = [packet for packet in range(PACKETS) if sent_ns(packet) + due_ns <= talk.now_ns]
    assert out == late == [0, 1]
    assert talk.at(sent_ns(7) + due_ns) == list(range(2, PACKETS))


def test_a_message_without_a_receive_does_not_close_the_window():
    talk = ByHand(
        "falcon", PACKETS, timing=fast_timing(), **options("falcon", psn_window=PACKETS, **EACH)
    )
    talk.post_send()
    refused = talk.data_out()
    assert len(refused) == PACKETS
    talk.receiver.post_receive(0, LATER, talk.keys[1], 0, len(talk.place), 1)
    talk.sender.post_send(0, LATER, talk.keys[0], 0, len(talk.data), 1)
    assert talk.data_out() == {}
    assert talk.deliver(talk.sender, *talk.deliver(talk.receiver, refused[0])) == []
    assert talk.retransmitted_at(talk.now_ns) == list(range(PACKETS))
    assert {each.reported["message"] for each in talk.latest.values()} == {LATER[2]}
    talk.deliver(talk.sender, *talk.answers(*talk.latest.values()))
    assert talk.statuses() == ([0], [0])
    talk.post_receive()
    again = talk.deliver(talk.sender, *talk.out(talk.receiver))
    assert sorted(each.reported["index"] for each in again) == list(range(PACKETS))
    talk.deliver(talk.sender, *talk.answers(*again))
    assert talk.statuses() == ([0], [0])
