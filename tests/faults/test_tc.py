# SPDX-License-Identifier: GPL-2.0-or-later
"""What tc would be told."""

import pytest

from softroce_lab import topology
from softroce_lab.faults.lines import commands
from softroce_lab.faults.live import parse_impairments, set_on

PLAN = topology.load("two-hosts")


def reported(words: str) -> list[str]:
    faults = set_on(PLAN, [0], parse_impairments(words.split())).faults
    return commands([fault for fault in faults if fault.directed_link == 0], "p1", PLAN.mtu)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("loss 1%", ["tc qdisc add dev p1 root handle 1: netem loss random 1%"]),
        ("loss blackout", ["tc qdisc add dev p1 root handle 1: netem loss random 100%"]),
        ("loss gemodel 1% 25%",
         ["tc qdisc add dev p1 root handle 1: netem loss gemodel 1% 25% 100% 0%"]),
        ("delay 10ms 2ms distribution normal reorder allow loss 1% corrupt 1% duplicate 2%",
         ["tc qdisc add dev p1 root handle 1: netem delay 10ms 2ms distribution normal"
          " loss random 1% corrupt 1% duplicate 2%"]),
        ("reorder 25% gap 5 delay 10ms",
         ["tc qdisc add dev p1 root handle 1: netem delay 10ms reorder 25% gap 5"]),
        ("rate 200mbit limit 64KiB",
         ["tc qdisc add dev p1 root handle 2: tbf rate 200Mbit burst 2214 limit 65536"]),
        ("rate 200mbit limit 100 delay 1ms",
         ["tc qdisc add dev p1 root handle 1: netem delay 1ms",
          "tc qdisc add dev p1 parent 1:1 handle 2: tbf rate 200Mbit burst 2214 limit 221400"]),
        ("down", ["ip link set dev p1 down"]),
    ],
)  # fmt: skip
def test_what_tc_can_say(words: str, lines: list[str]) -> None:
    assert reported(words) == lines


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("drop tail 1", "# drop tail 1: tc cannot name packets of RoCE"),
        ("drop message 1 packet 2", "# drop message 1 packet 2: tc cannot name packets of RoCE"),
        ("cut 1%", "# cut 1%: nothing in tc trims packets"),
        ("loss 1% only data", "# loss random 1% only data: netem takes all packets alike"),
        ("loss periodic 10", "# loss periodic 10 1: netem has none; iptables"),
        ("reorder 1% by 1ms", "# reorder 1% by 1ms: netem's packets skip the delay"),
    ],
)
def test_what_tc_cannot_say_is_a_comment_alone(words: str, note: str) -> None:
    (line,) = reported(words)
    assert line.startswith(note)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("loss burst 1% 8", "# loss burst 1% 8: netem's bursts are of random length"),
        ("delay 1ms 1ms", "# delay 1ms 1ms: netem lets packets overtake each other"),
        ("rate 1gbit ecn 5", "# rate 1Gbit ecn 5: tbf marks nothing"),
        ("rate 1gbit trim", "# rate 1Gbit trim: nothing in tc trims packets"),
    ],
)
def test_what_tc_does_otherwise_is_noted_below(words: str, note: str) -> None:
    command, line = reported(words)
    assert command.startswith("tc qdisc add dev p1 root")
    assert line.startswith(note)
