# SPDX-License-Identifier: GPL-2.0-or-later
"""`uet_rud` packet by packet: what arrives, and what leaves then (native/transport/uet_rud.cpp)."""

from __future__ import annotations

import pytest

from softroce_lab import _native
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, Sent, fast_timing
from tests.native.rule_rows import GAP_NS, Arrive, At, Receiver, Row, Talk, Trim, options, sent_ns

PACKETS = 8
RTO_NS, WITHOUT_TRIMMING_NS = 100_000, 5_000_000
EACH = {"acknowledged_bytes": 0}  # the receiver acknowledges each packet
PLAIN = {"trimming": False}
HEARD_NS = sent_ns(PACKETS) + 2_000  # of one packet that arrived at first
ALL = tuple(range(PACKETS))


def after_ns(rto_ns: int, timeouts: int) -> int:
    """How long a packet waits for its next timeout."""
    longest_ns = max(fast_timing().t_max_ns, 16 * rto_ns)
    return _native.backed_off(rto_ns, timeouts, longest_ns)


# ---------------------------------------------------------------- the rules, one a row


FIRST_NS = sent_ns(0) + RTO_NS
SECOND_NS = FIRST_NS + after_ns(RTO_NS, 1)
THIRD_NS = SECOND_NS + after_ns(RTO_NS, 2)
OTHERS = Arrive(tuple(range(1, PACKETS)))

TIMERS = (
    Row("the timeout is 100 us, from each packet's transmission on",
        (At(FIRST_NS - 1), At(FIRST_NS, (0,)), At(FIRST_NS + GAP_NS - 1),
         At(FIRST_NS + GAP_NS, (1,)))),
    Row("without trimming it is 5 ms",
        (At(sent_ns(0) + WITHOUT_TRIMMING_NS - 1), At(sent_ns(0) + WITHOUT_TRIMMING_NS, (0,)),
         At(sent_ns(1) + WITHOUT_TRIMMING_NS, (1,))), PLAIN),
    Row("it is an option",
        (At(sent_ns(0) + 59_999), At(sent_ns(0) + 60_000, (0,))), {"rto_init": 60_000}),
    Row("it is at least two base RTTs before an RTT is measured",
        (At(sent_ns(0) + 2 * BASE_RTT_NS - 1), At(sent_ns(0) + 2 * BASE_RTT_NS, (0,))),
        {"rto_init": 1_000}),
    Row("it is at least two RTTs then",
        (Arrive((0,)), At(sent_ns(1) + 2 * BASE_RTT_NS, (1, 2, 3, 4, 5, 6, 7)),
         At(sent_ns(1) + 2 * BASE_RTT_NS + after_ns(2 * (HEARD_NS - sent_ns(0)), 1) - 1),
         At(sent_ns(1) + 2 * BASE_RTT_NS + after_ns(2 * (HEARD_NS - sent_ns(0)), 1), ALL[1:])),
        {"rto_init": 1_000}),
    Row("a packet's timeout doubles at each timeout",
        (OTHERS, At(FIRST_NS, (0,)), At(SECOND_NS - 1), At(SECOND_NS, (0,)), At(THIRD_NS - 1),
         At(THIRD_NS, (0,)))),
    Row("an acknowledgement of another packet does not end the doubling",
        (At(FIRST_NS, (0,)), OTHERS, At(SECOND_NS - 1), At(SECOND_NS, (0,))), {},
        {"timeout_ns": RTO_NS}),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, (0,))), {}, {"timeout_ns": 7_000}),
    Row("an acknowledged packet has no timer", (Arrive(ALL), At(WITHOUT_TRIMMING_NS))),
    Row("a hole shows nothing", (OTHERS, At(FIRST_NS - 1), At(FIRST_NS, (0,)))),
)  # fmt: skip

TRIMMED = (
    Row("a trimmed packet is retransmitted", (Trim((3,), (3,)),)),
    Row("each of several", (Trim((5, 1, 2), (1, 2, 5)),)),
    Row("also if the last hop trimmed it", (Trim((3,), (3,), last_hop=True),)),
    Row("once for each trimming", (Trim((3, 3), (3,)), At(FIRST_NS - 1))),
    Row("a retransmission that is trimmed is retransmitted", (Trim((3,), (3,)), Trim((3,), (3,)))),
    Row("if another copy has arrived nothing is retransmitted",
        (Arrive((3,)), Trim((3,)), At(FIRST_NS - 1))),
    Row("the header of such a packet acknowledges it again",
        (Arrive((0, 1, 2, 3, 4, 5, 6)), Trim((6,)), At(sent_ns(7) + RTO_NS, (7,)))),
    Row("a retransmission starts the packet's timer again",
        (Trim((0,), (0,)), At(FIRST_NS + 6 * GAP_NS, ALL[1:7]), At(HEARD_NS + RTO_NS - 1, (7,)),
         At(HEARD_NS + RTO_NS, (0,)))),
    Row("without the option trimmed packets are ignored",
        (Trim((0,)), At(sent_ns(0) + WITHOUT_TRIMMING_NS - 1),
         At(sent_ns(0) + WITHOUT_TRIMMING_NS, (0,))), PLAIN),
)  # fmt: skip

SLEEK = {"sleek": True, "sleek_cwnds": 0.0, **PLAIN}  # five packets begin a recovery
PROBE_NS = HEARD_NS + 2 * BASE_RTT_NS  # after the first acknowledgement
PROBED = (Arrive((0,)), At(PROBE_NS, (1,)))
FIVE = tuple(range(1, 6))

RECOVERY = (
    Row("sleek: five packets beyond a hole begin a recovery of all that is missing",
        (Arrive(FIVE[:4]), Arrive((5,), (0, 6, 7))), SLEEK),
    Row("sleek: it is off by default", (Arrive(FIVE), At(RTO_NS))),
    Row("sleek: their number is an option", (Arrive((1,)), Arrive((2,), (0, 3, 4, 5, 6, 7))),
        {**SLEEK, "sleek_packets": 2}),
    Row("sleek: cwnd shares count if they are more",  # of 1,024 packets
        (Arrive(ALL[1:7]), Arrive((7,), (0,))), {**SLEEK, "sleek_cwnds": 0.0069}),
    Row("sleek: half of the window of PSNs is the most",
        (Arrive(tuple(range(1, 8))), Arrive((8,), (0, 9, 10, 11))),
        {**SLEEK, "sleek_cwnds": 1.5, "psn_window": 16}, {"packets": 12}),
    Row("sleek: the bandwidth-delay product is the most",
        (Arrive(FIVE, (6,)), Arrive((6,), (0,))),
        {**SLEEK, "sleek_cwnds": 16.0, "sleek_packets": 1},
        {"window_packets": 6, "packets": 7}),
    Row("sleek: a PSN is retransmitted once",
        (Arrive(FIVE, (0, 6, 7)), Arrive((6,)), At(PROBE_NS)), SLEEK),
    Row("sleek: packets that no recovery contains need another one",
        (Arrive((1, 2, 3, 4, 5), (0, 6, 7)), Arrive((0, 6, 7), (8, 9, 10, 11, 12, 13, 14, 15)),
         Arrive((9, 10, 11, 12)), Arrive((13,), (8, 14, 15))),
        {**SLEEK, "psn_window": 8}, {"packets": 16}),
    Row("sleek: a probe leaves a base RTT and the target delay after an acknowledgement",
        (Arrive((0,)), At(PROBE_NS - 1), At(PROBE_NS, (1,))), SLEEK),
    Row("sleek: with trimming the target delay is three quarters of a base RTT",
        (Arrive((0,)), At(PROBE_NS - BASE_RTT_NS // 4 - 1), At(PROBE_NS - BASE_RTT_NS // 4, (1,))),
        {**SLEEK, "trimming": True}),
    Row("sleek: each acknowledgement puts the probe off",
        (Arrive((0,)), Arrive((1,)), At(PROBE_NS + 1_999), At(PROBE_NS + 2_000, (2,))), SLEEK),
    Row("sleek: no probe leaves before the first acknowledgement", (At(1_000_000),), SLEEK),
    Row("sleek: while packets wait to be sent it leaves after three base RTTs",
        (Arrive((1,)), At(HEARD_NS + 3 * BASE_RTT_NS - 1), At(HEARD_NS + 3 * BASE_RTT_NS, (0,))),
        {**SLEEK, "psn_window": PACKETS}, {"packets": 12}),
    Row("sleek: a probe without an answer is repeated after five base RTTs",
        (*PROBED, At(PROBE_NS + 5 * BASE_RTT_NS - 1), At(PROBE_NS + 5 * BASE_RTT_NS, (1,))),
        SLEEK),
    Row("sleek: a probe that is acknowledged soon begins a recovery",
        (*PROBED, Arrive((1,), (2, 3, 4, 5, 6, 7))), SLEEK),
    Row("sleek: one that was delayed does not",
        (*PROBED, At(PROBE_NS + 2 * BASE_RTT_NS - 2_000), Arrive((1,))), SLEEK),
    Row("sleek: after a probe a PSN may be retransmitted once more",
        (Arrive(FIVE, (0, 6, 7)), At(sent_ns(PACKETS) + 10_000 + 2 * BASE_RTT_NS, (0,)),
         Arrive((0,), (6, 7))), SLEEK),
    Row("sleek: its retransmissions do not double timeouts",
        (Arrive(FIVE, (0, 6, 7)), Arrive((6, 7)),
         At(sent_ns(PACKETS) + 6_000 + RTO_NS - 1), At(sent_ns(PACKETS) + 6_000 + RTO_NS, (0,))),
        {**SLEEK, "rto_init": RTO_NS, "psn_window": PACKETS, "probe_rtts": 100},
        {"packets": 12}),
)  # fmt: skip


@pytest.mark.parametrize("row", [*TIMERS, *TRIMMED, *RECOVERY], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("uet_rud", PACKETS, **EACH)


# ---------------------------------------------------------------- acknowledgements


COUNTED = 16  # packets of 1,024 bytes, as which shorter ones count, in 16,384 bytes
COALESCED_NS = BASE_RTT_NS // 4


def test_packets_of_16384_bytes_are_acknowledged_at_once():
    talk = Receiver("uet_rud", 64)
    assert talk.arrive(*range(COUNTED - 1)) == []
    assert talk.arrive(COUNTED - 1) == [("ack", COUNTED)]


def test_fewer_are_acknowledged_a_quarter_of_a_base_rtt_after_the_first():
    talk = Receiver("uet_rud", 64)
    assert talk.arrive(0) == []
    due_ns = talk.now_ns + COALESCED_NS
    assert talk.arrive(2) == []
    assert talk.at(due_ns - 1) == []
    assert talk.at(due_ns) == [("sack", 1, (0, 0b101))]


def test_a_complete_message_is_acknowledged_at_once():
    assert Receiver("uet_rud", 3).arrive(0, 1, 2) == [("ack", 3)]


def test_a_packet_with_a_congestion_mark_is_acknowledged_at_once():
    talk = Receiver("uet_rud", 64)
    frame = bytearray(talk.latest[1].frame)
    frame[frames.IP_AT + 1] |= 3
    talk.latest[1] = Sent(frames.seal(bytes(frame)), talk.latest[1].reported)
    assert talk.arrive(0, 1) == [("ack", 2)]


def test_a_retransmission_is_acknowledged_at_once():
    talk = Talk("uet_rud", 64, **options("uet_rud"))
    assert talk.at(FIRST_NS) == [0]
    assert len(talk.answers(talk.latest[1])) == 0
    assert len(talk.answers(talk.latest[0])) == 1


# ---------------------------------------------------------------- the connection


def test_the_window_holds_first_transmissions_and_no_others():
    """128 PSNs, from the oldest unacknowledged one on. A retransmission has the same PSN."""
    talk = Talk("uet_rud", 200, **options("uet_rud", **EACH))
    assert sorted(talk.latest) == list(range(128))
    assert talk.arrive(1) == []
    assert talk.trim(0, last_hop=False) == [0]
    assert talk.arrive(0) == [128, 129]
