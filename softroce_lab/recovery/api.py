# SPDX-License-Identifier: GPL-2.0-or-later
"""What a recovery policy is: an object with handlers that return actions.

The engine (native) cuts, places, counts and reports; a policy decides what to resend and when to
look. It reads no clock, opens no socket and draws no random numbers: time comes in as `now_ns`,
knowledge through a `View`, and all it does is returned as actions. The same object runs on the
real clock, in a thread beside the engine, and on a clock that is moved by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery.defaults import Timing

NEVER_NS = (1 << 63) - 1
"""A time that does not come."""

Key: TypeAlias = tuple[int, int, int]
"""What a workload calls a message: (operation, step, message of the step)."""


class SendState(Protocol):
    """A send as it was when asked about; arrays are copies, one element a packet."""

    count: int
    sent: int  # packets [0, sent) have been sent at least once
    resend_pending: int
    paused: bool
    attempts: npt.NDArray[np.uint8]
    paths: npt.NDArray[np.uint8]
    sent_ns: npt.NDArray[np.int64]  # when it was last sent


class ReceiveState(Protocol):
    """A receive as it was when asked about."""

    open: bool  # a packet has arrived
    id: int
    count: int
    received: int
    duplicates: int
    highest: int
    words: npt.NDArray[np.uint64]  # the bitmap, packet 0 in bit 0 of word 0


class PeerState(Protocol):
    """What is known of a peer; times in ns."""

    srtt_ns: int  # measured from here, 0 unknown
    rttvar_ns: int
    remote_srtt_ns: int  # as the peer measures it
    remote_rttvar_ns: int
    heard_ns: int  # last valid packet, -1 never
    newest_stamp_ns: int  # newest stamp among its packets that arrived, modulo 2**32
    newest_stamp_at_ns: int  # when that one arrived, -1 none has
    receive_bytes_per_second: float


class View(Protocol):
    """What a policy may look at while it decides."""

    def send_state(self, handle: int) -> SendState | None:
        """A send's state, None when it is over."""

    def receive_state(self, handle: int) -> ReceiveState | None:
        """A receive's state, None when it is over."""

    def peer_state(self, peer: int) -> PeerState:
        """What is known of a peer."""

    @property
    def chunk_bytes(self) -> int:
        """Data bytes that a packet carries."""

    @property
    def paths(self) -> int:
        """How many paths there are to a peer."""

    @property
    def message_slots(self) -> int:
        """Messages outstanding to a peer at most; an id modulo this is its slot."""


class Event(Protocol):
    """Something happened; which fields say something depends on the handler."""

    peer: int
    handle: int
    at_ns: int
    key: Key
    id: int
    length: int
    count: int
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Resend:
    """Send these packets of a send again, before any first transmission."""

    handle: int
    indices: npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """Hold (or let go on) the first pass of a send."""

    handle: int
    paused: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """Send a control message to the peer's policy on the recovery QP."""

    peer: int
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class LookAt:
    """Call `on_look` for this message at this time; replaces the time set before."""

    handle: int
    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class LookAtPeer:
    """Call `on_peer_look` for this peer at this time; replaces the time set before."""

    peer: int
    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class CompleteSend:
    """The send is over; its completion carries `status`."""

    handle: int
    status: ibv_wc_status


@dataclasses.dataclass(frozen=True, slots=True)
class FailReceive:
    """The receive will not be fulfilled; its completion carries `status`."""

    handle: int
    status: ibv_wc_status


@dataclasses.dataclass(frozen=True, slots=True)
class UsePaths:
    """Share the packets to a peer among the paths in proportion to these weights."""

    peer: int
    weights: Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Refuse:
    """Count a control message that makes no sense under `rx_bad_control`."""

    why: str


Action: TypeAlias = (
    Resend | Pause | Control | LookAt | LookAtPeer | CompleteSend | FailReceive | UsePaths | Refuse
)
Actions: TypeAlias = Iterable[Action]


class Policy:
    """Base of all policies; the default of each handler is to do nothing."""

    name = ""

    def __init__(self, view: View, timing: Timing) -> None:
        self.view = view
        self.timing = timing

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:
        """A workload posted a send; the engine starts it when its turn comes."""
        return ()

    def on_sent(self, event: Event, now_ns: int) -> Actions:
        """Nothing of a send is queued any more: its first pass and all resends are out."""
        return ()

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:
        """A workload posted a receive: from now on it is known what to expect."""
        return ()

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:
        """The first packet of a receive arrived, whichever it is."""
        return ()

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:
        """The last packet of a receive arrived, and others are missing."""
        return ()

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:
        """All packets are in place; the workload has been told."""
        return ()

    def on_look(self, event: Event, now_ns: int) -> Actions:
        """The time set by `LookAt` has come."""
        return ()

    def on_peer_look(self, event: Event, now_ns: int) -> Actions:
        """The time set by `LookAtPeer` has come."""
        return ()

    def on_control(self, event: Event, now_ns: int) -> Actions:
        """A control message of the peer's policy; anything may be in it."""
        return ()

    def on_no_receive(self, event: Event, now_ns: int) -> Actions:
        """A packet came for which no receive is posted; it was dropped."""
        return ()

    def on_too_long(self, event: Event, now_ns: int) -> Actions:
        """A message is larger than its receive; its packets are dropped."""
        return ()

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:
        """A packet came of a message that is over, complete or failed: the sender may not know."""
        return ()

    def summary(self) -> dict[str, Any]:
        """Figures of the policy's own for the run directory."""
        return {}


def missing_packets(state: ReceiveState) -> npt.NDArray[np.bool_]:
    """Which packets have not arrived; shape (count,)."""
    bits = np.unpackbits(state.words.view(np.uint8), count=state.count, bitorder="little")
    return ~bits.view(np.bool_)
