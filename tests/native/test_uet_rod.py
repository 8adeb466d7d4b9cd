# SPDX-License-Identifier: GPL-2.0-or-later
"""`uet_rod` packet by packet: what arrives, and what leaves then (native/transport/uet_rod.cpp)."""

from __future__ import annotations

import pytest

from softroce_lab import _native
from tests.native.by_hand import BASE_RTT_NS, fast_timing
from tests.native.rule_rows import Arrive, At, Receiver, Row, Talk, Trim, options, sent_ns

PACKETS = 8
RTO_NS, WITHOUT_TRIMMING_NS = 100_000, 5_000_000
EACH = {"acknowledged_bytes": 0}  # the receiver acknowledges each packet
PLAIN = {"trimming": False}
ALL = tuple(range(PACKETS))
FIRST_NS = sent_ns(0) + RTO_NS
SECOND_NS = FIRST_NS + _native.backed_off(RTO_NS, 1, max(fast_timing().t_max_ns, 16 * RTO_NS))

ORDER = (
    Row("packets in order cause nothing", (Arrive((0, 1, 2)),)),
    Row("a packet behind a gap makes the sender go back to the gap", (Arrive((1,), ALL),)),
    Row("to the first missing packet", (Arrive((0, 2), ALL[1:]),)),
    Row("the last packet of the message may show the gap", (Arrive((0, 1, 7), ALL[2:]),)),
    Row("many packets behind a gap make it go back once", (Arrive((1, 2, 3), ALL),)),
    Row("if the retransmission is lost it goes back again",
        (Arrive((1,), ALL), Arrive((1,), ALL), Arrive((1,), ALL))),
    Row("a packet behind a gap was dropped",
        (Arrive((1,), ALL), Arrive((0,)), Arrive((2,), ALL[1:]))),
    Row("what comes in order behind the retransmission is taken",
        (Arrive((1,), ALL), Arrive((0, 1, 2, 3)), Arrive((5,), ALL[4:]))),
    Row("one gap after another", (Arrive((0, 1, 3), ALL[2:]), Arrive((2, 3, 5), ALL[4:]))),
    Row("a duplicate causes nothing", (Arrive((0, 1)), Arrive((0,)), At(sent_ns(2) + RTO_NS - 1))),
    Row("no packet is behind the gap of the last one",
        (Arrive(ALL[:7]), At(sent_ns(7) + RTO_NS - 1), At(sent_ns(7) + RTO_NS, (7,)))),
)  # fmt: skip

TIMERS = (
    Row("a timeout makes the sender go back to the packet", (At(FIRST_NS - 1), At(FIRST_NS, ALL))),
    Row("of the first packet that is missing",
        (Arrive((0, 1, 2)), At(sent_ns(3) + RTO_NS - 1), At(sent_ns(3) + RTO_NS, ALL[3:]))),
    Row("without trimming it is 5 ms",
        (At(sent_ns(0) + WITHOUT_TRIMMING_NS - 1), At(sent_ns(0) + WITHOUT_TRIMMING_NS, ALL)),
        PLAIN),
    Row("it is at least two base RTTs before an RTT is measured",
        (At(sent_ns(0) + 2 * BASE_RTT_NS - 1), At(sent_ns(0) + 2 * BASE_RTT_NS, ALL)),
        {"rto_init": 1_000}),
    Row("the timeouts of all of these packets double",
        (At(FIRST_NS, ALL), At(SECOND_NS - 1), At(SECOND_NS, ALL))),
    Row("going back by a NACK does not double them",
        (Arrive((1,), ALL), At(sent_ns(PACKETS) + 2_000 + RTO_NS - 1),
         At(sent_ns(PACKETS) + 2_000 + RTO_NS, ALL))),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, ALL)), {}, {"timeout_ns": 7_000}),
)  # fmt: skip

TRIMMED = (
    Row("a trimmed packet makes the sender go back to it", (Trim((3,), ALL[3:]),)),
    Row("also if the last hop trimmed it", (Trim((3,), ALL[3:], last_hop=True),)),
    Row("those behind it were sent again when their NACKs come", (Trim((3, 4, 5), ALL[3:]),)),
    Row("a retransmission may be trimmed", (Trim((3,), ALL[3:]), Trim((3,), ALL[3:]))),
    Row("a packet that has arrived may not be missing", (Arrive((0,)), Trim((0,)))),
    Row("without the option trimmed packets are ignored",
        (Trim((0,)), At(sent_ns(0) + WITHOUT_TRIMMING_NS - 1),
         At(sent_ns(0) + WITHOUT_TRIMMING_NS, ALL)), PLAIN),
)  # fmt: skip


@pytest.mark.parametrize("row", [*ORDER, *TIMERS, *TRIMMED], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("uet_rod", PACKETS, **EACH)


def begun(packets: int = PACKETS, **settings) -> Talk:
    return Talk("uet_rod", packets, **options("uet_rod", **EACH), **settings)


def test_a_packet_that_was_sent_before_the_sender_went_back_shows_nothing():
    talk = begun()
    old = dict(talk.latest)
    assert talk.arrive(1) == list(ALL)
    assert talk.handle(old[2], old[3]) == []
    assert talk.handle(talk.latest[2]) == list(ALL)


def test_each_packet_behind_a_gap_has_a_nack_with_the_expected_packet():
    talk = Receiver("uet_rod", PACKETS)
    assert talk.arrive(0, 2, 5) == [("nack", 1, 2), ("nack", 1, 5)]
    assert talk.receiver.counters()["rx_out_of_order"] == 2
    assert talk.receiver.counters()["rx_placed"] == 1


def test_what_is_refused_behind_a_trimmed_packet_is_not_given_up():
    timing = fast_timing()
    timing.most_attempts = 3
    talk = begun(2, timing=timing)
    for _ in range(10):
        assert talk.trim(0, last_hop=False) == [0, 1]
        talk.arrive(1)
    talk.arrive(0)
    talk.arrive(1)
    assert talk.statuses() == ([0], [0])


def test_all_packets_of_a_message_take_one_path():
    talk = begun()
    talk.arrive(1)
    assert len({each.reported["path"] for each in talk.latest.values()}) == 1


def test_a_message_arrives_whole():
    talk = begun()
    talk.arrive(0, 1, 4, 2, 3, 7)
    talk.arrive(*range(2, PACKETS))
    assert talk.statuses() == ([0], [0])
    assert (talk.place == talk.data).all()


def test_the_window_holds_first_transmissions_and_no_others():
    talk = begun(200)
    assert sorted(talk.latest) == list(range(128))
    assert talk.arrive(1) == list(range(128))
    assert talk.arrive(0, 1) == [128, 129]
