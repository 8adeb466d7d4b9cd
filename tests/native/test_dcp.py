# SPDX-License-Identifier: GPL-2.0-or-later
"""`dcp` packet by packet: what arrives, and what leaves then (native/transport/dcp.cpp)."""

from __future__ import annotations

import pytest

from tests.native.by_hand import BASE_RTT_NS, KEY, Sent, fast_timing
from tests.native.rule_rows import Arrive, At, Row, Talk, Trim, options, sent_ns

PACKETS = 8
ALL = tuple(range(PACKETS))
RESTART_NS = 8_000_000
FIRST_NS = sent_ns(PACKETS - 1) + RESTART_NS  # when the message starts again, if nothing arrives
HEARD_NS = sent_ns(PACKETS) + 2_000  # of one packet that arrived, or was cut, at first
LATE_NS = 41_000  # later than the base RTT
LATE_RTT_NS = LATE_NS + 2_000 - sent_ns(0)  # of packet 0, if it arrives then
FOUR = {"window_packets": 4}
FOUR_MORE_NS = sent_ns(4) + 2_000  # when four more leave, after packet 3 has arrived

TRIMMED = (
    Row("a returned header makes its packet leave again at once", (Trim((3,), (3,)),)),
    Row("also if the last hop cut it", (Trim((3,), (3,), last_hop=True),)),
    Row("each trimming has one retransmission", (Trim((3,), (3,)), Trim((3,), (3,)), Arrive((3,)))),
    Row("several headers make several packets leave", (Trim((6, 2, 4), (2, 4, 6)),)),
    Row("the header of a packet that has arrived is acknowledged, and nothing leaves",
        (Arrive((0,)), Trim((0,)))),
    Row("so is the header of one that arrived beyond a hole", (Arrive((5,)), Trim((5,)))),
    Row("a retransmission goes before a new packet", (Trim((0,), (0,)),), settings=FOUR),
    Row("new packets follow when the retransmission queue is empty",
        (Trim((3,), (3,)), Arrive((3,), (4, 5, 6, 7))), settings=FOUR),
    Row("a message with a cut packet ends when that has arrived",
        (Arrive((0, 1, 3, 4, 5, 6, 7)), Trim((2,), (2,)), Arrive((2,)), At(2 * FIRST_NS))),
)  # fmt: skip

ORDER = (
    Row("packets that others overtook are not lost",
        (Arrive((7, 6, 5, 4, 3, 2, 1)), At(FIRST_NS - 1))),
    Row("nor is one that many retransmissions overtook",
        (Trim((1,), (1,)), Arrive((7, 1)), Trim((2,), (2,)), Arrive((2,)), At(FIRST_NS - 1))),
)  # fmt: skip

RESTARTS = (
    Row("8 ms after the last transmission the message starts again",
        (At(FIRST_NS - 1), At(FIRST_NS, ALL))),
    Row("it starts again at the cumulative acknowledgement",
        (Arrive((0, 1, 2)), At(FIRST_NS - 1), At(FIRST_NS, (3, 4, 5, 6, 7)))),
    Row("what arrived beyond a hole leaves again, too",
        (Arrive((0, 1, 4, 7)), At(FIRST_NS, (2, 3, 4, 5, 6, 7)))),
    Row("an acknowledgement does not start the timer again",
        (Arrive((0,)), At(FIRST_NS - 1), At(FIRST_NS, ALL[1:]))),
    Row("a retransmission starts the timer again",
        (Trim((3,), (3,)), At(HEARD_NS + RESTART_NS - 1), At(HEARD_NS + RESTART_NS, ALL))),
    Row("the message starts again 8 ms after a restart",
        (At(FIRST_NS, ALL), At(FIRST_NS + RESTART_NS - 1), At(FIRST_NS + RESTART_NS, ALL))),
    Row("what arrives after a restart ends the message",
        (At(FIRST_NS, ALL), Arrive(ALL), At(3 * FIRST_NS))),
    Row("a packet of a restart that is cut leaves again", (At(FIRST_NS, ALL), Trim((5,), (5,)))),
    Row("after three restarts without progress the timeout backs off",
        (At(FIRST_NS, ALL), At(FIRST_NS + RESTART_NS, ALL), At(FIRST_NS + 2 * RESTART_NS, ALL),
         At(FIRST_NS + 3 * RESTART_NS, ALL), At(FIRST_NS + 4 * RESTART_NS),
         At(FIRST_NS + 5 * RESTART_NS, ALL))),
    Row("progress ends the backing off",
        (At(FIRST_NS, ALL), At(FIRST_NS + RESTART_NS, ALL), At(FIRST_NS + 2 * RESTART_NS, ALL),
         Arrive((0,)), At(FIRST_NS + 3 * RESTART_NS, ALL[1:]),
         At(FIRST_NS + 4 * RESTART_NS, ALL[1:]))),
    Row("also of a timer that runs already",
        (*(At(FIRST_NS + n * RESTART_NS, ALL) for n in range(4)), Arrive((0,)),
         At(FIRST_NS + 4 * RESTART_NS - 1), At(FIRST_NS + 4 * RESTART_NS, ALL[1:]))),
    Row("a restart goes before new packets",
        (At(sent_ns(3) + RESTART_NS, (0, 1, 2, 3)), Arrive((0,), (4, 5, 6, 7))), settings=FOUR),
    Row("a packet that is cut waits for those that the restart has queued",
        (Arrive((3,), (4, 5, 6, 7)), At(FOUR_MORE_NS + RESTART_NS, (0, 1, 2, 3)),
         Trim((0,), (4,)), Trim((1,), (5,)), Trim((2,), (6,)), Trim((3,), (7,)),
         Arrive((4,), (0,)), Arrive((5,), (1,))), settings=FOUR),
    Row("the timeout is an option",
        (At(sent_ns(7) + 999_999), At(sent_ns(7) + 1_000_000, ALL)),
        {"restart_timeout": 1_000_000}),
    Row("it is at least two base RTTs at first",
        (At(sent_ns(7) + 2 * BASE_RTT_NS - 1), At(sent_ns(7) + 2 * BASE_RTT_NS, ALL)),
        {"restart_timeout": 1_000}),
    Row("then it is at least two measured RTTs",
        (At(LATE_NS), Arrive((0,)), At(sent_ns(7) + 2 * LATE_RTT_NS - 1),
         At(sent_ns(7) + 2 * LATE_RTT_NS, ALL[1:])), {"restart_timeout": 1_000}),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(7) + 6_999), At(sent_ns(7) + 7_000, ALL)), settings={"timeout_ns": 7_000}),
)  # fmt: skip


@pytest.mark.parametrize("row", [*TRIMMED, *ORDER, *RESTARTS], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("dcp", PACKETS)


# ---------------------------------------------------------------- the retransmission queue


def begun(**settings) -> Talk:
    return Talk("dcp", PACKETS, **(options("dcp") | settings))


def returned(talk: Talk, *packets) -> list[Sent]:
    """The receiver's answers to headers of packets, not yet at the sender."""
    cut = [Talk.cut(talk.latest[packet], last_hop=False) for packet in packets]
    return talk.answers(*cut)


def leaving(talk: Talk, *answers) -> list[tuple]:
    """The message and index of each packet that leaves when these arrive, in order."""
    out = talk.deliver(talk.sender, *answers)
    return [(each.reported["message"], each.reported["index"]) for each in out]


def test_the_retransmission_queue_is_first_in_first_out():
    talk = begun()
    answers = returned(talk, 5, 2, 7, 1)
    assert leaving(talk, *answers) == [(KEY[2], packet) for packet in (5, 2, 7, 1)]


def test_messages_to_a_peer_share_the_retransmission_queue():
    talk = begun()
    later = (*KEY[:2], KEY[2] + 1)
    talk.receiver.post_receive(0, later, talk.keys[1], 0, len(talk.place), 1)
    talk.sender.post_send(0, later, talk.keys[0], 0, len(talk.data), 1)
    first = returned(talk, 5)
    talk.latest = talk.spaced()
    second = returned(talk, 6)
    answers = [*first, *second, *returned(talk, 1)]
    assert leaving(talk, *answers) == [(KEY[2], 5), (later[2], 6), (later[2], 1)]


def test_a_header_that_came_twice_has_one_retransmission():
    talk = begun()
    (answer,) = returned(talk, 4)
    assert leaving(talk, answer, answer) == [(KEY[2], 4)]
    assert leaving(talk, answer) == []


def test_a_header_from_before_a_restart_does_not_count():
    talk = begun()
    answers = returned(talk, 4)
    assert talk.at(FIRST_NS) == list(ALL)
    assert leaving(talk, *answers) == []


def test_a_packet_that_arrives_meanwhile_leaves_the_queue():
    """A copy of packet 4 arrived, and its acknowledgement comes before anything could leave."""
    talk = begun()
    answers = returned(talk, 4, 6)
    acks = talk.answers(*(talk.latest[packet] for packet in range(5)))
    assert leaving(talk, *answers, *acks) == [(KEY[2], 6)]


def test_a_message_that_ends_does_not_keep_others_waiting():
    talk = begun()
    later = (*KEY[:2], KEY[2] + 1)
    talk.receiver.post_receive(0, later, talk.keys[1], 0, len(talk.place), 1)
    talk.sender.post_send(0, later, talk.keys[0], 0, len(talk.data), 1)
    first, talk.latest = talk.latest, talk.spaced()
    others = returned(talk, 3)
    talk.latest, second = first, talk.latest
    answers = returned(talk, 7)
    acks = talk.answers(*(first[packet] for packet in ALL))
    talk.latest = second
    leaving_now = leaving(talk, *answers, *others, *acks)
    assert leaving_now + leaving_at(talk) == [(later[2], 3)]


def leaving_at(talk: Talk) -> list[tuple]:
    """End the timers that are due, and return the packets that leave: (message, index)."""
    talk.sender.handle_timeout(talk.now_ns)
    return [(each.reported["message"], each.reported["index"]) for each in talk.out(talk.sender)]


def test_the_receiver_answers_each_packet_by_a_cumulative_acknowledgement():
    talk = begun(timing=fast_timing())
    bodies = [answer.body for answer in talk.answers(*(talk.latest[n] for n in (2, 0, 1, 7)))]
    assert [(body[0], int.from_bytes(body[5:9], "big"), len(body)) for body in bodies] == [
        (16, 0, 13), (16, 1, 13), (16, 3, 13), (16, 3, 13),
    ]  # fmt: skip
