# SPDX-License-Identifier: GPL-2.0-or-later
"""Two endpoints of a native transport, of which every frame and every moment is the test's."""

from __future__ import annotations

import dataclasses

import numpy as np

from softroce_lab import _native
from softroce_lab.dissect.description import PACKET_ACK, PACKET_NACK, PACKET_SACK
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import Timing
from tests.transports.pair_rig import (
    ADDRESSES,
    DATA,
    IBV_ACCESS_LOCAL_WRITE,
    MACS,
    QKEY,
    config,
    noise,
)

MTU = 256
CHUNK = MTU - 40
BASE_RTT_NS = 24_000
RTO_LOW_NS, RTO_HIGH_NS = 100_000, 320_000
KEY = (1, 2, 3)
NAMES = {PACKET_ACK: "ack", PACKET_NACK: "nack", PACKET_SACK: "sack"}


def fast_timing() -> _native.SessionTiming:
    """Timers of hosts that answer at once. The clock's granularity is 1 us."""
    made = _native.MessageConfig()
    Timing.for_rtt(BASE_RTT_NS).apply(made)
    return made.timing


@dataclasses.dataclass(frozen=True)
class Sent:
    """A frame that left an endpoint, decoded."""

    frame: bytes
    reported: dict

    @property
    def is_data(self) -> bool:
        return self.reported["kind"] == DATA

    @property
    def body(self) -> bytes:
        return bytes(self.reported["payload"])


def feedback(sent: Sent) -> tuple:
    """(name, cumulative, packet or (base, bits) if there is one) of an acknowledgement."""
    body = sent.body
    words = [int.from_bytes(body[at : at + 4], "big") for at in range(1, 17, 4)]
    name, cumulative = NAMES[body[0]], words[1]
    if name == "ack":
        return name, cumulative
    if name == "nack":
        return name, cumulative, words[3]
    return name, cumulative, (words[3], int.from_bytes(body[17:25], "big"))


class ByHand:
    """A sender and a receiver; `now_ns` is the test's to move."""

    def __init__(self, transport: str, packets: int, **settings) -> None:
        by_hand = transport == "policy"  # no session
        options = {} if by_hand else registry.find(transport).engine()["options"]
        settings = {
            "path_mtu": MTU, "initial_rtt_ns": BASE_RTT_NS, "options": options, **settings,
        }  # fmt: skip
        self.sender, self.receiver = (
            _native.FrameEndpoint(config(address, transport=transport, **settings), mac)
            for address, mac in zip(ADDRESSES, MACS, strict=True)
        )
        self.now_ns = 1_000
        self.latest: dict[int, Sent] = {}
        length = packets * CHUNK
        self.data, self.place = noise(3, length), np.zeros(length, np.uint8)
        for here, there, other in (
            (self.sender, 1, self.receiver),
            (self.receiver, 0, self.sender),
        ):
            here.set_qkey(QKEY)
            here.connect(ADDRESSES[there], MACS[there], other.data_qp, other.recovery_qp, QKEY)
        self.keys = [
            end.register_memory(memory.ctypes.data, length, IBV_ACCESS_LOCAL_WRITE)
            for end, memory in ((self.sender, self.data), (self.receiver, self.place))
        ]

    @classmethod
    def begun(cls, transport: str, packets: int, **settings) -> ByHand:
        """With a message posted at both ends."""
        made = cls(transport, packets, **settings)
        made.post()
        return made

    def post(self) -> None:
        """The receive, then the send."""
        self.post_receive()
        self.post_send()

    def post_receive(self) -> None:
        self.receiver.post_receive(0, KEY, self.keys[1], 0, len(self.place), 0)

    def post_send(self) -> None:
        self.sender.post_send(0, KEY, self.keys[0], 0, len(self.data), 0)

    def out(self, end) -> list[Sent]:
        """All that this end sends now, reports apart."""
        found = []
        while (frame := end.poll_frame(self.now_ns)) is not None:
            found.append(Sent(frame, _native.decode_frame(frame, True)))
        return [each for each in found if each.reported["kind"] != 2]

    def data_out(self) -> dict[int, Sent]:
        """The data packets that the sender sends now, by index."""
        sent = [each for each in self.out(self.sender) if each.is_data]
        assert len({each.reported["index"] for each in sent}) == len(sent)
        return {each.reported["index"]: each for each in sent}

    def deliver(self, end, *sent: Sent) -> list[Sent]:
        """Hand frames over, in this order; what that end answers."""
        self.now_ns += 1_000
        for each in sent:
            end.handle_frame(each.frame, self.now_ns)
        return self.out(end)

    def answers(self, *sent: Sent) -> list[Sent]:
        """The receiver's acknowledgements of data packets, one each."""
        return [answer for each in sent for answer in self.deliver(self.receiver, each)]

    def retransmitted_at(self, at_ns: int) -> list[int]:
        """Indices that the sender sends when it is that time; the packets are in `latest`."""
        self.now_ns = at_ns
        self.sender.handle_timeout(at_ns)
        self.latest = self.data_out()
        return sorted(self.latest)

    def statuses(self) -> tuple[list[int], list[int]]:
        """Of what has completed, at the sender and at the receiver."""
        ends = (self.sender, self.receiver)
        return tuple([each.status for each in end.poll_completions()] for end in ends)
