# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of transports that number packets by connection, a table row each.

A row says what arrives or what time it gets, and which packets leave then. One message is posted at
both ends. Its packet i is sent at 1000 + 100 i, so each packet has its own transmission time. A
packet needs 1 us to the receiver, and its answer 1 us to the sender. All times are in ns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from softroce_lab import _native
from softroce_lab.transports import registry
from tests.native.by_hand import ByHand, Sent, fast_timing

FIRST_NS, GAP_NS = 1_000, 100


def sent_ns(packet: int) -> int:
    return FIRST_NS + GAP_NS * packet


def options(transport: str, **chosen) -> dict[str, Any]:
    """A setting of `ByHand`: the transport's usual options, some of them changed."""
    return {"options": registry.find(transport).engine()["options"] | chosen}


class Talk(ByHand):
    """The sender has sent as many packets as its window takes."""

    def __init__(self, transport: str, packets: int, **settings) -> None:
        super().__init__(transport, packets, **({"timing": fast_timing()} | settings))
        self.post()
        self.latest = self.spaced()

    def spaced(self) -> dict[int, Sent]:
        """Packets that leave from now on, one every GAP_NS, by index."""
        sent: dict[int, Sent] = {}
        while (frame := self.sender.poll_frame(self.now_ns)) is not None:
            one = Sent(frame, _native.decode_frame(frame, True))
            sent[one.reported["index"]] = one
            self.now_ns += GAP_NS
        return sent

    def arrive(self, *packets: int) -> list[int]:
        """Deliver these packets in this order, then the answers; which packets leave then."""
        return self.handle(*(self.latest[each] for each in packets))

    def trim(self, *packets: int, last_hop: bool) -> list[int]:
        """The same, but only the packets' headers arrive."""
        return self.handle(*(self.cut(self.latest[each], last_hop) for each in packets))

    @staticmethod
    def cut(sent: Sent, last_hop: bool) -> Sent:
        """The packet without its payload."""
        return Sent(_native.trim_frame(sent.frame, last_hop), {})

    def handle(self, *sent: Sent) -> list[int]:
        out = self.deliver(self.sender, *self.answers(*sent))
        data = [each for each in out if each.is_data]
        self.latest |= {each.reported["index"]: each for each in data}
        return sorted(each.reported["index"] for each in data)

    def at(self, now_ns: int) -> list[int]:
        """Which packets leave at this time, after the sender's timers."""
        before = self.latest
        out = self.retransmitted_at(now_ns)
        self.latest = before | self.latest
        return out


@dataclasses.dataclass(frozen=True)
class Arrive:
    """Packets reach the receiver, and its answers the sender."""

    packets: tuple[int, ...]
    leaves: tuple[int, ...] = ()

    def take(self, talk: Talk) -> list[int]:
        return talk.arrive(*self.packets)


@dataclasses.dataclass(frozen=True)
class Trim:
    """The same, but a switch has cut off the payloads."""

    packets: tuple[int, ...]
    leaves: tuple[int, ...] = ()
    last_hop: bool = False

    def take(self, talk: Talk) -> list[int]:
        return talk.trim(*self.packets, last_hop=self.last_hop)


@dataclasses.dataclass(frozen=True)
class At:
    """The sender's clock is at `now_ns`."""

    now_ns: int
    leaves: tuple[int, ...] = ()

    def take(self, talk: Talk) -> list[int]:
        return talk.at(self.now_ns)


@dataclasses.dataclass(frozen=True)
class Row:
    why: str
    steps: tuple[Arrive | Trim | At, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def check(self, transport: str, packets: int, **usual) -> None:
        """`usual`: options that all rows of the table change."""
        settings = {"packets": packets, **self.settings}
        chosen = options(transport, **(usual | dict(self.options)))
        talk = Talk(transport, **(chosen | settings))
        left = [step.take(talk) for step in self.steps]
        assert left == [list(step.leaves) for step in self.steps]
