# SPDX-License-Identifier: GPL-2.0-or-later
"""`mrc` packet by packet: what arrives, and what leaves then (native/transport/mrc.cpp)."""

from __future__ import annotations

import pytest

from softroce_lab import _native
from tests.native import frames
from tests.native.by_hand import BASE_RTT_NS, ByHand, Sent, fast_timing, feedback
from tests.native.rule_rows import Arrive, At, Row, Talk, Trim, options, sent_ns

PACKETS = 8
UNIT_NS = 1_024
TIMEOUT_NS = UNIT_NS << 7  # of four base RTTs at least: 131,072 ns
EACH = {"acknowledged_bytes": 0}  # the receiver answers each packet
NEAR = {**EACH, "distance_windows": 0.0}
HEARD_NS = sent_ns(PACKETS) + 2_000  # of one packet that arrived at first
QUIET_NS = HEARD_NS + 10_000  # before any timer ends
NO_RTT = {"timeout_exponent": 12}  # 4.2 ms, whatever the RTT


# ---------------------------------------------------------------- the rules, one a row


HOLES = (
    Row("a hole is lost if the highest acknowledged packet exceeds it by 3",
        (Arrive((3,), (0,)),), NEAR),
    Row("a hole is not lost if it exceeds it by 2", (Arrive((2,)), At(QUIET_NS)), NEAR),
    Row("all holes that far below are lost, the oldest first", (Arrive((7,), (0, 1, 2, 3, 4)),),
        NEAR),
    Row("what arrived is no hole", (Arrive((1,)), Arrive((5,), (0, 2))), NEAR),
    Row("the number of packets is an option", (Arrive((1,), (0,)),), {**NEAR, "distance": 1}),
    Row("the window of the congestion control is the least number",
        (Arrive((5,), (6,)), Arrive((6,), (0,))), EACH,
        {"window_packets": 6, "packets": 7}),
    Row("the window has a share",
        (Arrive((2,), (6, 7)), Arrive((3,), (0,))),
        {**EACH, "distance_windows": 0.5, "distance": 1}, {"window_packets": 6}),
    Row("a packet is retransmitted once because of a hole",
        (Arrive((3,), (0,)), Arrive((4,), (1,)), Arrive((5,), (2,)), Arrive((6,))), NEAR),
    Row("an acknowledgement without a hole shows nothing", (Arrive((0, 1, 2)), At(QUIET_NS)),
        NEAR),
    Row("a hole shows nothing about a packet that was retransmitted after a timeout",
        (At(sent_ns(0) + TIMEOUT_NS, (0,)), Arrive((3,)), Arrive((4,), (1,))), NEAR),
)  # fmt: skip

TRIMMED = (
    Row("a trimmed packet is retransmitted", (Trim((3,), (3,)),), EACH),
    Row("each of several, and no other", (Trim((5, 1, 2), (1, 2, 5)), At(QUIET_NS)), EACH),
    Row("also if the last switch trimmed it", (Trim((3,), (3,), last_hop=True),), EACH),
    Row("a retransmission that is trimmed is retransmitted",
        (Trim((3,), (3,)), Trim((3,), (3,))), EACH),
    Row("a packet that arrived before is not", (Arrive((3,)), Trim((3,))), EACH),
    Row("a hole shows nothing about the retransmission of a trimmed packet",
        (Trim((0,), (0,)), Arrive((4,), (1,))), NEAR),
    Row("a trimmed packet's timer starts again",
        (Trim((0,), (0,)), At(sent_ns(1) + TIMEOUT_NS - 1),
         At(sent_ns(7) + TIMEOUT_NS, (1, 2, 3, 4, 5, 6, 7)),
         At(HEARD_NS + TIMEOUT_NS - 1), At(HEARD_NS + TIMEOUT_NS, (0,))), EACH),
)  # fmt: skip

# Packet 0 alone is missing, and is not lost by a hole.
OTHERS = Arrive(tuple(range(1, PACKETS)))
ONLY_TIMER = {**EACH, "distance": 100}


def timeouts(*waits_ns) -> tuple[At, ...]:
    """Packet 0 is retransmitted after these waits, each after the one before, and not earlier."""
    steps, at_ns = [], sent_ns(0)
    for wait_ns in waits_ns:
        at_ns += wait_ns
        steps += [At(at_ns - 1), At(at_ns, (0,))]
    return tuple(steps)


LATE = {"timeout_exponent": 6}  # 65,536 ns
LATE_NS = UNIT_NS << 6
TIMERS = (
    Row("the timeout is the least 1.024 us * 2^n that is at least four base RTTs",
        timeouts(TIMEOUT_NS)[:2], EACH),
    Row("each packet has its own timer",
        (At(sent_ns(0) + TIMEOUT_NS, (0,)), At(sent_ns(1) + TIMEOUT_NS - 1),
         At(sent_ns(3) + TIMEOUT_NS, (1, 2, 3))), EACH),
    Row("when the RTT is known it is at least four of the RTT, from the transmission on",
        (Arrive((0,)), At(sent_ns(1) + (UNIT_NS << 4) - 1), At(sent_ns(1) + (UNIT_NS << 4), (1,))),
        EACH),
    Row("the exponent is an option", timeouts(LATE_NS), {**EACH, **LATE, "linear_timeouts": 0}),
    Row("so many timeouts in a row have the same length",
        (OTHERS, *timeouts(LATE_NS, LATE_NS, LATE_NS)),
        {**ONLY_TIMER, **LATE, "linear_timeouts": 2}),
    Row("7 of them, unless an option says otherwise",
        (OTHERS, *timeouts(*[LATE_NS] * 8)), {**ONLY_TIMER, **LATE}),
    Row("a retransmission for another reason ends the doubling",
        (OTHERS, At(sent_ns(0) + LATE_NS, (0,)), Trim((0,), (0,)),
         At(sent_ns(0) + LATE_NS + 2_000 + LATE_NS - 1),
         At(sent_ns(0) + LATE_NS + 2_000 + LATE_NS, (0,))),
        {**ONLY_TIMER, **LATE, "linear_timeouts": 0}),
    Row("an acknowledged packet has no timer", (Arrive(tuple(range(PACKETS))), At(10_000_000)),
        EACH),
    Row("the knob `timeout` takes the place of all this",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, (0,))), {**EACH, **NO_RTT},
        {"timeout_ns": 7_000}),
)  # fmt: skip


@pytest.mark.parametrize("row", [*HOLES, *TRIMMED, *TIMERS], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("mrc", PACKETS)


def test_the_timeout_doubles_after_the_linear_ones():
    """Doubled timeouts vary between half and all of their length, and are no shorter than one."""
    chosen = {**ONLY_TIMER, **LATE, "linear_timeouts": 1}
    talk = Talk("mrc", PACKETS, **options("mrc", **chosen))
    talk.arrive(*range(1, PACKETS))
    waits, before_ns = [], sent_ns(0)
    for now_ns in range(talk.now_ns, 80 * LATE_NS, 500):
        if talk.at(now_ns):
            waits.append(now_ns - before_ns)
            before_ns = now_ns
    lengths = [1, 1, 2, 4, 8]
    assert len(waits) >= len(lengths)
    for wait_ns, length in zip(waits, lengths, strict=False):
        assert max(length / 2, 1) * LATE_NS <= wait_ns <= length * LATE_NS + 500


# ---------------------------------------------------------------- SACKs


class Receiver(ByHand):
    """`arrive` takes packets by index. What it returns has left the receiver at once."""

    def __init__(self, packets, **chosen) -> None:
        super().__init__("mrc", packets, timing=fast_timing(), **options("mrc", **chosen))
        self.post()
        self.latest = self.data_out()

    def arrive(self, *packets) -> list[tuple]:
        return [feedback(each) for each in self.answers(*(self.latest[each] for each in packets))]

    def at(self, now_ns) -> list[tuple]:
        self.now_ns = now_ns
        self.receiver.handle_timeout(now_ns)
        return [feedback(each) for each in self.out(self.receiver)]


ECN_CE = 3
LONG = {"coalescing_time": 1_000_000}


def test_a_sack_leaves_when_its_bytes_are_there():
    """A packet counts as 1,024 bytes at least: these are smaller."""
    talk = Receiver(64, acknowledged_bytes=4_096, **LONG)
    assert talk.arrive(0, 1, 2) == []
    assert talk.arrive(3) == [("ack", 4)]
    assert talk.arrive(4, 6, 4) == []
    assert talk.arrive(7) == [("sack", 5, (0, 0b11011111))]  # a duplicate counts


def test_fewer_bytes_wait_for_a_quarter_of_the_base_rtt():
    talk = Receiver(64)
    assert talk.arrive(0) == []
    due_ns = talk.now_ns + BASE_RTT_NS // 4
    assert talk.arrive(2) == []
    assert talk.at(due_ns - 1) == []
    assert talk.at(due_ns) == [("sack", 1, (0, 0b101))]


def test_the_last_packet_of_a_message_is_answered_at_once():
    talk = Receiver(64, **LONG)
    assert talk.arrive(63) == [("sack", 0, (0, 1 << 63))]


def test_a_retransmission_is_answered_at_once():
    talk = Receiver(64, **LONG)
    talk.now_ns = 5_000_000
    talk.sender.handle_timeout(talk.now_ns)
    again = talk.data_out()
    assert again[3].reported["attempt"] == 1
    talk.latest = again
    assert talk.arrive(3) == [("sack", 0, (0, 0b1000))]


def test_a_marked_packet_is_answered_at_once():
    talk = Receiver(64, **LONG)
    frame = bytearray(talk.latest[3].frame)
    frame[frames.IP_AT + 1] |= ECN_CE
    [answer] = talk.answers(Sent(frames.seal(bytes(frame)), {}))
    assert feedback(answer) == ("sack", 0, (0, 0b1000))


# ---------------------------------------------------------------- the window and the order


def test_the_mpr_holds_first_transmissions_and_no_others():
    """128 PSNs, from the oldest unacknowledged one on."""
    talk = Talk("mrc", 200, **options("mrc", **NEAR, mpr=1))
    assert sorted(talk.latest) == list(range(128))
    assert talk.arrive(3) == [0]
    assert talk.arrive(0) == [128]


WIDE = {"window_packets": 5_000, "receive_ring_packets": 5_000}


def test_the_usual_mpr_is_4096():
    talk = Talk("mrc", 4_100, **options("mrc", **EACH), **WIDE)
    assert len(talk.latest) == 4_096


def test_a_retransmission_takes_another_path():
    talk = Talk("mrc", PACKETS, **options("mrc", **NEAR))
    lost = talk.latest[0]
    assert talk.arrive(3) == [0]
    assert talk.latest[0].reported["path"] != lost.reported["path"]


def test_the_oldest_gap_leaves_first_and_before_new_data():
    """Each trimmed packet makes room for one in the window of the congestion control."""
    talk = Talk("mrc", 24, **options("mrc", **ONLY_TIMER), window_packets=8)
    cut = [Sent(_native.trim_frame(talk.latest[each].frame, False), {}) for each in (6, 2)]
    out = talk.deliver(talk.sender, *talk.answers(*cut))
    left = [each.reported["index"] for each in out if each.is_data]
    assert left == [2, 6]
