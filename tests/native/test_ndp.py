# SPDX-License-Identifier: GPL-2.0-or-later
"""`ndp` packet by packet: what arrives, and what leaves then (native/transport/ndp.cpp)."""

from __future__ import annotations

import struct

import pytest

from softroce_lab.dissect.description import PACKET_ACK, PACKET_PULL, PACKET_TRIMMED
from tests.native.by_hand import KEY, MTU, fast_timing
from tests.native.rule_rows import Arrive, At, Row, Talk, Trim, options, sent_ns

PACKETS = 8
WINDOW = {"first_window": 4}
FIRST = (0, 1, 2, 3)
FIRST_RTO_NS, RTO_NS = 20_000_000, 5_000_000
HEARD_NS = sent_ns(4) + 2_000  # of one packet that arrived at first
RTT_NS = HEARD_NS - sent_ns(0)

PULLS = (
    Row("a first window leaves without pulls, and no more", (At(FIRST_RTO_NS),)),
    Row("each packet that arrives pulls one", (Arrive((0,), (4,)), Arrive((1, 2), (5, 6)))),
    Row("whichever it is", (Arrive((3,), (4,)), Arrive((1,), (5,)))),
    Row("a packet that arrives again pulls one, too", (Arrive((0, 0), (4, 5)),)),
    Row("no packet is lost because others overtook it",
        (Arrive((3, 2, 1), (4, 5, 6)), Arrive((6, 5, 4), (7,)), At(RTO_NS))),
    Row("a trimmed packet pulls one, which is itself", (Trim((2,), (2,)),)),
    Row("also if the last hop cut it", (Trim((2,), (2,), last_hop=True),)),
    Row("each trimming has one retransmission",
        (Trim((2,), (2,)), Trim((2,), (2,)), Arrive((2,), (4,)))),
    Row("several trimmed packets pull each other", (Trim((3, 1), (1, 3)), Arrive((0,), (4,)))),
    Row("a trimmed packet that has arrived pulls a new one",
        (Arrive((0,), (4,)), Trim((0,), (5,)))),
    Row("the message ends when the trimmed packet has arrived",
        (Trim((0,), (0,)), Arrive((0, 1, 2, 3), (4, 5, 6, 7)), Arrive((4, 5, 6, 7)),
         At(2 * FIRST_RTO_NS))),
    Row("the congestion window holds beside the first window",
        (Arrive((0,), (2,)), At(RTO_NS)), settings={"window_packets": 2}),
)  # fmt: skip

TIMERS = (
    Row("at first the timeout is 20 ms, of each packet",
        (At(sent_ns(0) + FIRST_RTO_NS - 1), At(sent_ns(0) + FIRST_RTO_NS, (0,)),
         At(sent_ns(1) + FIRST_RTO_NS, (1,)))),
    Row("when the RTT is known it is at least 5 ms",
        (Arrive((0,), (4,)), At(sent_ns(1) + RTO_NS - 1), At(sent_ns(1) + RTO_NS, (1,)))),
    Row("it is SRTT + 4 RTTVAR otherwise",
        (Arrive((0,), (4,)), At(sent_ns(1) + 3 * RTT_NS - 1), At(sent_ns(1) + 3 * RTT_NS, (1,))),
        {"least_timeout": 1_000}),
    Row("the first timeout is an option",
        (At(sent_ns(0) + 999_999), At(sent_ns(0) + 1_000_000, (0,))),
        {"initial_timeout": 1_000_000}),
    Row("a packet whose timer ended leaves without a pull, and pulls one when it arrives",
        (At(sent_ns(0) + FIRST_RTO_NS, (0,)), Arrive((0,), (4,)))),
    Row("a retransmission starts its packet's timer again",
        (At(sent_ns(3) + FIRST_RTO_NS, FIRST), At(sent_ns(3) + 2 * FIRST_RTO_NS - 1),
         At(sent_ns(3) + 2 * FIRST_RTO_NS, FIRST))),
    Row("so does one after a trimming",
        (Trim((1,), (1,)), At(sent_ns(3) + FIRST_RTO_NS, (0, 2, 3)),
         At(HEARD_NS + FIRST_RTO_NS - 1), At(HEARD_NS + FIRST_RTO_NS, (1,)))),
    Row("after three timeouts without progress the timeout backs off",
        (*(At(sent_ns(3) + n * FIRST_RTO_NS, FIRST) for n in range(1, 5)),
         At(sent_ns(3) + 5 * FIRST_RTO_NS), At(sent_ns(3) + 6 * FIRST_RTO_NS, FIRST))),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, (0,))), settings={"timeout_ns": 7_000}),
)  # fmt: skip


@pytest.mark.parametrize("row", [*PULLS, *TIMERS], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("ndp", PACKETS, **WINDOW)


# ---------------------------------------------------------------- answers and pulls apart


def begun(packets=PACKETS, **settings) -> Talk:
    return Talk("ndp", packets, **(options("ndp", **WINDOW) | settings))


def answered(talk: Talk, *packets, cut=False):
    """The receiver's answers to these packets, and its pulls, not yet at the sender."""
    sent = [talk.latest[packet] for packet in packets]
    out = talk.answers(*([Talk.cut(each, last_hop=False) for each in sent] if cut else sent))
    pulls = [each for each in out if each.body[0] == PACKET_PULL]
    return [each for each in out if each not in pulls], pulls


def leaving(talk: Talk, *answers) -> list[int]:
    """The index of each packet that leaves when these arrive, in order."""
    out = talk.deliver(talk.sender, *answers)
    return [each.reported["index"] for each in out if each.is_data]


def test_a_late_duplicate_is_pulled_for_at_its_own_time():
    """Its message is complete, and the last pull left long ago."""
    talk = begun(1)
    sent = talk.latest[0]
    first = talk.deliver(talk.receiver, sent)
    talk.now_ns += 1_000_000
    again = talk.deliver(talk.receiver, sent)
    assert [each.body[0] for each in again] == [each.body[0] for each in first]
    assert PACKET_PULL in {each.body[0] for each in again}


def test_the_first_window_is_a_bandwidth_delay_product():
    assert sorted(Talk("ndp", 80, window_packets=64).latest) == list(range(64))


def test_an_acknowledgement_lets_nothing_leave_without_a_pull():
    talk = begun()
    (ack,), (pull,) = answered(talk, 0)
    assert ack.body[0] == PACKET_ACK
    assert pull.body == struct.pack(">BI", PACKET_PULL, 1)
    assert leaving(talk, ack) == []
    assert leaving(talk, pull) == [4]


def test_trimmed_packets_wait_for_pulls_and_the_lowest_leaves_first():
    talk = begun()
    nacks, pulls = answered(talk, 3, 1, 2, cut=True)
    assert [each.body[0] for each in nacks] == [PACKET_TRIMMED] * 3
    assert leaving(talk, *nacks) == []
    assert leaving(talk, pulls[0]) == [1]
    assert leaving(talk, pulls[1], pulls[2]) == [2, 3]


def test_the_next_pull_makes_up_for_one_that_was_lost():
    talk = begun()
    _, (_, second) = answered(talk, 0, 1)
    assert leaving(talk, second) == [4, 5]


def test_a_pull_that_was_overtaken_lets_nothing_leave():
    talk = begun()
    _, (first, second) = answered(talk, 0, 1)
    assert leaving(talk, second) == [4, 5]
    assert leaving(talk, first, second) == []


def test_a_pull_that_finds_nothing_to_send_counts_for_a_trimmed_packet():
    talk = begun(packets=4)
    acks, pulls = answered(talk, 0)
    assert leaving(talk, *acks, *pulls) == []
    nacks, _ = answered(talk, 2, cut=True)
    assert leaving(talk, *nacks) == [2]


def test_unused_pulls_are_never_more_than_the_first_window():
    talk = begun(packets=40)
    talk.receiver.control(0, struct.pack(">BI", PACKET_PULL, 1_000))
    assert leaving(talk, *talk.out(talk.receiver)) == [4, 5, 6, 7]


def test_a_trimmed_packet_whose_pull_was_lost_leaves_when_its_timer_ends():
    talk = begun()
    nacks, _ = answered(talk, 1, cut=True)
    assert leaving(talk, *nacks) == []
    assert talk.at(sent_ns(1) + FIRST_RTO_NS - 1) == [0]
    assert talk.at(sent_ns(1) + FIRST_RTO_NS) == [1]


LATER = (*KEY[:2], KEY[2] + 1)


def post_later(talk: Talk) -> None:
    talk.receiver.post_receive(0, LATER, talk.keys[1], 0, len(talk.place), 1)
    talk.sender.post_send(0, LATER, talk.keys[0], 0, len(talk.data), 1)


def test_the_next_message_uses_the_pulls_that_the_last_one_left():
    talk = begun(packets=4)
    acks, pulls = answered(talk, *FIRST)
    assert leaving(talk, *acks, *pulls[:3]) == []
    post_later(talk)
    assert sorted(talk.spaced()) == [0, 1, 2]


def test_a_connection_with_nothing_in_flight_for_a_timeout_has_its_window_again():
    talk = begun(packets=4)
    acks, _ = answered(talk, *FIRST)
    assert leaving(talk, *acks) == []
    heard_ns = talk.now_ns
    post_later(talk)
    assert talk.spaced() == {}
    assert talk.at(heard_ns + RTO_NS - 1) == []
    assert talk.at(heard_ns + RTO_NS) == list(FIRST)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_receiver_sends_a_pull_each_time_in_which_its_link_takes_a_packet(rate):
    """Packets of 256 bytes and 66 of headers, at 100 Gbit/s."""
    talk = begun(timing=fast_timing(), **options("ndp", **WINDOW, pull_rate=rate))
    interval_ns = (MTU + 66) * 8 / 100 / rate
    talk.now_ns += 1_000
    for packet in FIRST:
        talk.receiver.handle_frame(talk.latest[packet].frame, talk.now_ns)
    first_ns = talk.now_ns

    def pulls():
        return [each.body[4] for each in talk.out(talk.receiver) if each.body[0] == PACKET_PULL]

    assert pulls() == [1]
    for number in (1, 2, 3):
        due_ns = first_ns + -int(-number * interval_ns // 1)
        for talk.now_ns, left in ((due_ns - 1, []), (due_ns, [number + 1])):
            talk.receiver.handle_timeout(talk.now_ns)
            assert pulls() == left
