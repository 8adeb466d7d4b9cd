# SPDX-License-Identifier: GPL-2.0-or-later
"""`uccl` packet by packet: what arrives, and what leaves then (native/transport/uccl.cpp)."""

from __future__ import annotations

import pytest

from tests.native.rule_rows import Arrive, At, Row, Talk, Trim, options, sent_ns

PACKETS = 48
ALL_SENT_NS = sent_ns(PACKETS)
TICK_NS = 1_000_000
FEW = {"duplicates": 4}
EXACT = {"timer_tick": 0}
RTO_NS = 500_000


def behind(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


def after_each(packets: int) -> int:
    """When the sender has heard of so many packets, that arrived together."""
    return ALL_SENT_NS + 1_000 * packets + 1_000


# ---------------------------------------------------------------- the rules, one a row


DUPLICATES = (
    Row("31 duplicates resend nothing", (Arrive(behind(1, 31)), At(TICK_NS - 1))),
    Row("the 32nd resends the hole", (Arrive(behind(1, 31)), Arrive((32,), (0,)))),
    Row("it resends all holes below the highest packet that arrived",
        (Arrive(behind(3, 31)), Arrive((40,), (0, 1, 2, *range(34, 40))))),
    Row("packets above that one are not resent", (Arrive((1, 2, 3)), Arrive((5,), (0, 4))), FEW),
    Row("the threshold is an option", (Arrive((1, 2, 3)), Arrive((4,), (0,))), FEW),
    Row("progress of the base begins the count again",
        (Arrive((2, 3, 4)), Arrive((0,)), Arrive((5, 6, 7)), Arrive((8,), (1,))), FEW),
    Row("an acknowledgement that fills no hole at the base is a duplicate",
        (Arrive((2, 3, 4)), Arrive((1,), (0,))), FEW),
    Row("of packets that arrive twice, too: then the oldest packet is resent",
        (Arrive((0,)), Arrive((0, 0, 0)), Arrive((0,), (1,))), FEW),
    Row("further duplicates resend a hole when its transmission is an SRTT ago",
        (Arrive((1, 2, 3)), Arrive((4,), (0,)), Arrive((5,)),
         Arrive(behind(6, 30), (0,))), FEW),
    Row("new holes at once", (Arrive((1, 2, 3)), Arrive((4,), (0,)), Arrive((6,), (5,))), FEW),
    Row("without that, each further duplicate resends all holes",
        (Arrive((1, 2, 3)), Arrive((4,), (0,)), Arrive((6,), (0, 5)), Arrive((7,), (0, 5))),
        {**FEW, "spaced": False}),
)  # fmt: skip

TIMERS = (
    Row("timers are looked at every millisecond", (At(TICK_NS - 1), At(TICK_NS, (0,)))),
    Row("the timeout is 500 us", (At(sent_ns(0) + RTO_NS - 1), At(sent_ns(0) + RTO_NS, (0,))),
        EXACT),
    Row("it is an option",
        (At(sent_ns(0) + 200_000 - 1), At(sent_ns(0) + 200_000, (0,))), {**EXACT, "rto": 200_000}),
    Row("it is at least two base RTTs, before the RTT is known",
        (At(sent_ns(0) + 48_000 - 1), At(sent_ns(0) + 48_000, (0,))), {**EXACT, "rto": 1_000}),
    Row("only the oldest packet is resent, if none has arrived",
        (At(TICK_NS, (0,)), At(TICK_NS + RTO_NS - 1))),
    Row("if others have arrived, all holes are resent",
        (Arrive((1, 4)), At(TICK_NS, (0, 2, 3)))),
    Row("progress starts the timer again",
        (Arrive((0,)), At(after_each(1) + RTO_NS - 1), At(after_each(1) + RTO_NS, (1,))), EXACT),
    Row("a duplicate does not",
        (Arrive((1, 2)), At(sent_ns(0) + RTO_NS - 1), At(sent_ns(0) + RTO_NS, (0,))), EXACT),
    Row("a resend starts the timer again",
        (Arrive((1, 2, 3)), Arrive((4,), (0,)), At(sent_ns(0) + RTO_NS),
         At(after_each(3) + 2_000 + RTO_NS - 1), At(after_each(3) + 2_000 + RTO_NS, (0,))),
        {**FEW, **EXACT}),
    Row("a timeout does, too",
        (At(sent_ns(0) + RTO_NS, (0,)), At(sent_ns(0) + 2 * RTO_NS - 1),
         At(sent_ns(0) + 2 * RTO_NS, (0,))), EXACT),
    Row("there is no timer when all has arrived", (Arrive(behind(0, 8)), At(10 * TICK_NS)),
        {}, {"packets": 8}),
    Row("the knob `timeout` takes the place of the timeout",
        (At(sent_ns(0) + 6_999), At(sent_ns(0) + 7_000, (0,))), EXACT, {"timeout_ns": 7_000}),
    Row("a trimmed packet has no answer", (Trim(behind(0, 40)), At(TICK_NS, (0,)))),
)  # fmt: skip


@pytest.mark.parametrize("row", [*DUPLICATES, *TIMERS], ids=lambda row: row.why)
def test_what_arrives_and_what_leaves(row):
    row.check("uccl", PACKETS)


def test_the_window_holds_first_transmissions():
    """128 PSNs, from the oldest unacknowledged one on."""
    talk = Talk("uccl", 200, **options("uccl"))
    assert sorted(talk.latest) == list(range(128))
    assert talk.arrive(1) == []
    assert talk.arrive(0) == [128, 129]
