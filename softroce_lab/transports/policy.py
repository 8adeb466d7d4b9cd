# SPDX-License-Identifier: GPL-2.0-or-later
"""A recovery policy of one's own: a class with a few hooks, each of which returns actions.

A policy decides which packets are lost and when to check. It runs on a native session
(native/transport/session.hpp), which acknowledges messages, sends keepalives, answers messages
without a receive, bounds attempts and gives up; no policy handles any of these. A hook gets a
message, a `Sending` or a `Receiving`, and the time; what it keeps of a message goes into `memory`,
and is dropped with the message. It reads state through `self.view`, as numpy arrays. Its actions
are applied after it returned, in their order, alike on both clocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.transports.api import MOST_COPIES, Key, View
from softroce_lab.transports.control import PacketSet
from softroce_lab.transports.defaults import Timing
from softroce_lab.transports.erasure.code import ErasureCode
from softroce_lab.transports.options import Option, Value, validated


@dataclasses.dataclass(slots=True)
class Sending:
    """A send that has not been acknowledged, as the newest hook about it saw it."""

    handle: int
    peer: int
    id: int
    key: Key
    count: int
    rnr_naks: int = 0  # times the receiver was not ready
    retry_ns: int = 0  # paused until then because of it
    out: bool = False  # every packet has been sent
    known_missing: PacketSet | None = None  # of packets or chunks, by the last feedback
    timeouts_without_progress: int = 0  # timeouts in a row
    memory: Any = None  # of the policy


@dataclasses.dataclass(slots=True)
class Receiving:
    """A posted receive that is not complete, as the newest hook about it saw it."""

    handle: int
    peer: int
    key: Key
    count: int
    id: int | None = None  # None: no packet has arrived
    received: int = 0  # packets, known ones too, when last looked at
    timeouts_without_progress: int = 0  # timeouts in a row
    fed_back: int = 0  # packets that had arrived, known ones too, when feedback was sent last
    memory: Any = None  # of the policy


__all__ = [
    "MOST_COPIES",
    "DetectGaps",
    "Encode",
    "Feedback",
    "MessagePolicy",
    "Option",
    "PathWeights",
    "Receiving",
    "RequestStatus",
    "Restore",
    "Retransmit",
    "Sending",
    "SetTimer",
    "UseCodes",
]

# ---------------------------------------------------------------- actions

# The cheapest of classes, as those of api.py: one or more are made for every event.


@dataclasses.dataclass(slots=True)
class Retransmit:
    """Send these packets of a message again, before any first transmission.

    Packets that were never sent are left out. Urgent ones go before other retransmissions. Each
    packet is sent `copies` times, at most `MOST_COPIES`: each copy is an attempt of its own, on
    another path than the one before, and the receiver keeps the first that arrives.
    """

    send: Sending
    packets: npt.NDArray[np.uint32]
    urgent: bool = False
    copies: int = 1


@dataclasses.dataclass(slots=True)
class Feedback:
    """Send the bitmap of missing packets to the sender, whose policy gets `on_feedback`."""

    receive: Receiving


@dataclasses.dataclass(slots=True)
class SetTimer:
    """Call `on_send_timer` or `on_receive_timer` at this time; replaces the time set before."""

    message: Sending | Receiving
    at_ns: int


@dataclasses.dataclass(slots=True)
class RequestStatus:
    """Ask the receiver for the state of a message: its session acknowledges or sends feedback."""

    send: Sending


@dataclasses.dataclass(slots=True)
class PathWeights:
    """Share the packets to a peer among the paths in proportion to these weights."""

    peer: int
    weights: Sequence[int]


@dataclasses.dataclass(slots=True)
class DetectGaps:
    """Let the engine detect gaps of a receive; `on_gap` gets the packets.

    `window_ns`: how long an overtaken packet may still come, the reordering window. Another action
    replaces it.
    """

    receive: Receiving
    window_ns: int


@dataclasses.dataclass(slots=True)
class Encode:
    """Compute the parity of a submessage by this code; then it leaves behind the submessage's data.

    `on_parity` follows. A code of other k or m than the submessage has no effect on its bytes.
    """

    send: Sending
    submessage: int
    code: ErasureCode


@dataclasses.dataclass(slots=True)
class Restore:
    """Decode the data that a submessage lacks, in place.

    If the code cannot restore it nothing happens. The message completes with its last data.
    """

    receive: Receiving
    submessage: int
    code: ErasureCode


NO_CODE = 255


@dataclasses.dataclass(slots=True)
class UseCodes:
    """The codes of messages that are posted to a peer from now on.

    `by_bits[n]`, for n of 0 to 32: of messages whose length in bytes has n bits, a place in what
    `codes` returns; `NO_CODE` for no parity.
    """

    peer: int
    by_bits: Sequence[int]


Action: TypeAlias = (
    Retransmit
    | Feedback
    | SetTimer
    | RequestStatus
    | PathWeights
    | DetectGaps
    | Encode
    | Restore
    | UseCodes
)
Actions: TypeAlias = Iterable[Action]


# ---------------------------------------------------------------- hooks


class MessagePolicy:
    """Base of a policy of one's own. The default of each hook is no action."""

    name: ClassVar[str] = ""
    framing: ClassVar[str] = "ud"
    """How its data packets name what they carry, unless the user chooses."""
    framings: ClassVar[tuple[str, ...]] = ("ud", "uc_immediate")
    """Those that it works over."""
    options: ClassVar[tuple[Option, ...]] = ()
    """What a user may set; `values` holds a value for each."""
    has_rto: ClassVar[bool] = False
    """Whether it has the knob `timeout`: its senders' timer is `timing.fixed_rto_ns`, if set."""
    chunk_packets: int | None = None
    """Packets for which a bit of its feedback stands (CHUNKS). None: one (SACK)."""

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        """`options`: those that are set; OptionError for a value that an option does not take."""
        self.view = view
        self.timing = timing
        self.values: dict[str, Any] = validated(self.options, options or {})
        self.check(self.values)

    @classmethod
    def check(cls, values: Mapping[str, Value]) -> None:
        """OptionError for options that exclude each other."""

    @classmethod
    def codes(cls, values: Mapping[str, Value]) -> tuple[tuple[int, int], ...]:
        """(k, m) of the erasure codes that messages may have; the first is that of all."""
        return ()

    @classmethod
    def code_chunk_packets(cls, values: Mapping[str, Value], path_mtu: int) -> int:
        """Packets of a chunk of coded messages; OptionError if that is no whole number."""
        return 0

    def on_send_posted(self, send: Sending, now_ns: int) -> Actions:
        """A message was posted; the engine starts it when its turn comes."""
        return ()

    def on_sent(self, send: Sending, now_ns: int) -> Actions:
        """No packet of it is queued: the first transmission and all retransmissions have left."""
        return ()

    def on_feedback(self, send: Sending, now_ns: int) -> Actions:
        """The receiver's bitmap has arrived; `self.missing(send)` holds what it lacks."""
        return ()

    def on_send_timer(self, send: Sending, now_ns: int) -> Actions:
        """The time set by `SetTimer` for a message that is sent."""
        return ()

    def on_receive_posted(self, receive: Receiving, now_ns: int) -> Actions:
        """A receive was posted."""
        return ()

    def on_first_packet(self, receive: Receiving, now_ns: int) -> Actions:
        """The first packet of a receive arrived, whichever it is; the packet count is known."""
        return ()

    def on_last_packet(self, receive: Receiving, now_ns: int) -> Actions:
        """The packet with the highest index arrived, and others are missing."""
        return ()

    def on_gap(self, receive: Receiving, packets: npt.NDArray[np.uint32], now_ns: int) -> Actions:
        """These packets were overtaken a reordering window ago and are missing (`DetectGaps`).

        Each packet is named once: a lost retransmission leaves no gap.
        """
        return ()

    def on_parity(self, send: Sending, submessage: int, now_ns: int) -> Actions:
        """The parity of a submessage may leave (`Encode`)."""
        return ()

    def on_chunk(self, receive: Receiving, submessage: int, now_ns: int) -> Actions:
        """A chunk is complete of a submessage that lacks data, with which it has k chunks or more.

        `Restore` may restore it: with an MDS code it does.
        """
        return ()

    def on_trimmed(self, receive: Receiving, packet: int, last_hop: bool, now_ns: int) -> Actions:
        """A queue cut off this packet's payload, and only the header arrived.

        It is called for each transmission that is cut, unless the packet is here. If no packet of
        the message is here, `receive.id` is None, and `Feedback` has no effect. `last_hop`: the
        link that leads to the receiver cut it, so another path would not have helped.
        """
        return ()

    def on_receive_timer(self, receive: Receiving, now_ns: int) -> Actions:
        """The time set by `SetTimer` for a receive."""
        return ()

    def summary(self) -> dict[str, Any]:
        """Figures of the policy's own for the run directory."""
        return {}

    # ---------------------------------------------------------------- what hooks may ask

    def missing(self, send: Sending) -> npt.NDArray[np.uint32]:
        """The packets that are not known to have arrived, ascending.

        All packets before the first feedback. If none is missing, the last packet: its second
        arrival makes the receiver acknowledge again.
        """
        if send.known_missing is None:
            return np.arange(send.count, dtype=np.uint32)
        missing = send.known_missing.indices()
        if self.chunk_packets is not None:
            within = np.arange(self.chunk_packets, dtype=np.uint32)
            missing = (missing[:, np.newaxis] * self.chunk_packets + within).ravel()
            missing = missing[missing < send.count].astype(np.uint32)
        return missing if missing.size else np.array([send.count - 1], dtype=np.uint32)

    def rtt_ns(self, message: Sending | Receiving) -> tuple[int, int]:
        """(SRTT, RTTVAR) of its path; a receiver has them from the sender's packets."""
        state = self.view.peer_state(message.peer)
        sends = isinstance(message, Sending)
        srtt = state.srtt_ns if sends else state.remote_srtt_ns
        var = state.rttvar_ns if sends else state.remote_rttvar_ns
        initial = self.timing.initial_rtt_ns
        return (srtt, var) if srtt else (initial, initial // 2)

    def backed_off_ns(self, message: Sending | Receiving, interval_ns: int) -> int:
        """The interval; doubled, to T_max, for each timeout in a row without progress."""
        return self.timing.backed_off_ns(interval_ns, message.timeouts_without_progress)
