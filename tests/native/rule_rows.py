# SPDX-License-Identifier: GPL-2.0-or-later
"""Table rows that test the loss recovery rules of transports by hand, without a fabric.

A `Row` is one rule: a sequence of steps, and the packets that the sender must send after each step.
A step is `Arrive`, `Trim` or `At`. One message is posted at both ends. The sender has sent its
packets before the first step: packet i at 1000 + 100 i, so each packet has its own transmission
time. Each packet then needs 1 us to the receiver. All answers of a step reach the sender together,
1 us after the last of them. All times are in ns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from softroce_lab import _native
from softroce_lab.transports import registry
from tests.native.by_hand import ByHand, Sent, fast_timing, feedback

FIRST_NS, GAP_NS = 1_000, 100


def sent_ns(packet: int) -> int:
    return FIRST_NS + GAP_NS * packet


def options(transport: str, **chosen) -> dict[str, Any]:
    """Keyword arguments for `ByHand`: the transport's default options, with `chosen` instead."""
    return {"options": registry.find(transport).engine()["options"] | chosen}


class Talk(ByHand):
    """A sender and a receiver. The sender has sent as many packets as its window allows.

    `latest` has the newest transmission of each packet, by packet index.
    """

    def __init__(self, transport: str, packets: int, **settings) -> None:
        super().__init__(transport, packets, **({"timing": fast_timing()} | settings))
        self.post()
        self.latest = self.spaced()

    def spaced(self) -> dict[int, Sent]:
        """Let the sender send all it may, one packet every GAP_NS; the packets by index."""
        sent: dict[int, Sent] = {}
        while (frame := self.sender.poll_frame(self.now_ns)) is not None:
            one = Sent(frame, _native.decode_frame(frame, True))
            sent[one.reported["index"]] = one
            self.now_ns += GAP_NS
        return sent

    def arrive(self, *packets: int) -> list[int]:
        """Deliver these packets, then the answers; return the indices of packets sent then."""
        return self.handle(*(self.latest[each] for each in packets))

    def trim(self, *packets: int, last_hop: bool) -> list[int]:
        """As `arrive`, but only the packets' headers arrive."""
        return self.handle(*(self.cut(self.latest[each], last_hop) for each in packets))

    @staticmethod
    def cut(sent: Sent, last_hop: bool) -> Sent:
        """The packet without its payload, as a switch trims it (`last_hop`: the last switch)."""
        return Sent(_native.trim_frame(sent.frame, last_hop), {})

    def handle(self, *sent: Sent) -> list[int]:
        out = self.deliver(self.sender, *self.answers(*sent))
        data = [each for each in out if each.is_data]
        self.latest |= {each.reported["index"]: each for each in data}
        return sorted(each.reported["index"] for each in data)

    def at(self, now_ns: int) -> list[int]:
        """Set the clock and run the sender's timers; return the indices of packets sent then."""
        before = self.latest
        out = self.retransmitted_at(now_ns)
        self.latest = before | self.latest
        return out


@dataclasses.dataclass(frozen=True)
class Arrive:
    """Packets reach the receiver, and its answers reach the sender."""

    packets: tuple[int, ...]
    leaves: tuple[int, ...] = ()  # packets that the sender must send after this step

    def take(self, talk: Talk) -> list[int]:
        return talk.arrive(*self.packets)


@dataclasses.dataclass(frozen=True)
class Trim:
    """As `Arrive`, but a switch has cut off the payloads."""

    packets: tuple[int, ...]
    leaves: tuple[int, ...] = ()
    last_hop: bool = False

    def take(self, talk: Talk) -> list[int]:
        return talk.trim(*self.packets, last_hop=self.last_hop)


@dataclasses.dataclass(frozen=True)
class At:
    """The clock reaches `now_ns`, and the sender's timers run."""

    now_ns: int
    leaves: tuple[int, ...] = ()

    def take(self, talk: Talk) -> list[int]:
        return talk.at(self.now_ns)


@dataclasses.dataclass(frozen=True)
class Row:
    why: str  # the rule that the row tests
    steps: tuple[Arrive | Trim | At, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def check(self, transport: str, packets: int, **usual) -> None:
        """Run the steps. `usual`: options for all rows of a table; the row's own options win."""
        settings = {"packets": packets, **self.settings}
        chosen = options(transport, **(usual | dict(self.options)))
        talk = Talk(transport, **(chosen | settings))
        left = [step.take(talk) for step in self.steps]
        assert left == [list(step.leaves) for step in self.steps]


class Receiver(ByHand):
    """A receiver whose feedback a test reads. The sender has sent all packets of its message.

    `arrive` and `at` return the feedback (`by_hand.feedback`) that leaves the receiver then.
    """

    def __init__(self, transport: str, packets: int, **chosen) -> None:
        super().__init__(transport, packets, **options(transport, **chosen))
        self.post()
        self.latest = self.data_out()

    def arrive(self, *packets: int) -> list[tuple]:
        return [feedback(each) for each in self.answers(*(self.latest[each] for each in packets))]

    def at(self, now_ns: int) -> list[tuple]:
        self.now_ns = now_ns
        self.receiver.handle_timeout(now_ns)
        return [feedback(each) for each in self.out(self.receiver)]
