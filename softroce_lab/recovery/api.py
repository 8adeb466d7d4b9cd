# SPDX-License-Identifier: GPL-2.0-or-later
"""What a recovery policy is: an object with handlers that return actions.

The engine (native) cuts, places, counts and reports; a policy decides what to retransmit and when
to check for loss. It reads no clock, opens no socket and draws no random numbers: time comes in as
`now_ns`, knowledge through a `View`, and all it does is returned as actions. The same object runs
on the real clock, in a thread beside the engine, and on a clock that is moved by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.erasure.code import ErasureCode
from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.options import Option, validated

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

NEVER_NS = (1 << 63) - 1
"""A time that does not come."""

MOST_COPIES = 16
"""Of one retransmission."""

_GOLDEN_RATIO_32 = 0x9E3779B9  # 2**32 / 1.618

Key: TypeAlias = tuple[int, int, int]
"""What a workload calls a message: (operation, step, message of the step)."""


class SendProgress(Protocol):
    """How far a send was when asked about."""

    count: int
    sent: int  # packets [0, sent) have been sent at least once
    retransmit_pending: int
    paused: bool


class SendState(SendProgress, Protocol):
    """A send as it was when asked about; arrays are copies, one element a packet."""

    parity: int  # packets of parity behind these, sent once each
    attempts: npt.NDArray[np.uint16]
    paths: npt.NDArray[np.uint8]
    sent_ns: npt.NDArray[np.int64]  # when it was last sent
    # bitmap of the packets to be retransmitted that have not left yet
    waiting: npt.NDArray[np.uint64]


class ReceiveState(Protocol):
    """A receive as it was when asked about."""

    open: bool  # a packet has arrived
    id: int
    count: int
    received: int
    duplicates: int
    parity: int  # packets of parity; `received` counts them, `count` does not
    highest: int
    first_missing: int  # `count`: none is
    first_ns: int  # when its first packet arrived,
    last_ns: int  # and the newest
    words: npt.NDArray[np.uint64]  # the bitmap, packet 0 in bit 0 of word 0


class PeerState(Protocol):
    """What is known of a peer; times in ns."""

    srtt_ns: int  # measured from here, 0 unknown
    rttvar_ns: int
    remote_srtt_ns: int  # as the peer measures it
    remote_rttvar_ns: int
    last_received_ns: int  # last valid packet, -1 never
    reported_packets: int  # of data, that have arrived there by its reports, modulo 2**32
    echoed_packets: int  # of data, that have arrived or are lost by the same reports, likewise
    newest_stamp_ns: int  # newest stamp among its packets that arrived, modulo 2**32
    newest_stamp_at_ns: int  # when that one arrived, -1 none has
    reordering_extent_ns: int  # its data usually comes no later than this behind data sent after it
    receive_bytes_per_second: float


class View(Protocol):
    """What a policy may read while it decides."""

    def send_progress(self, handle: int) -> SendProgress | None:
        """How far a send is, None when it is over; cheaper than its state."""

    def send_state(self, handle: int) -> SendState | None:
        """A send's state, None when it is over."""

    def receive_state(self, handle: int) -> ReceiveState | None:
        """A receive's state, None when it is over."""

    def peer_state(self, peer: int) -> PeerState:
        """What is known of a peer."""

    def sent_on_paths(self, peer: int) -> list[int]:
        """Data packets ever sent to a peer on each path, modulo 2**32."""

    @property
    def chunk_bytes(self) -> int:
        """Data bytes that a packet carries."""

    @property
    def window_packets(self) -> int:
        """One bandwidth-delay product: packets that may be sent in an empty fabric's round trip."""

    @property
    def control_bytes(self) -> int:
        """Bytes that the body of a control message has at most."""

    @property
    def line_rate_bps(self) -> int:
        """Bits per second of the port."""

    @property
    def paths(self) -> int:
        """How many paths there are to a peer."""

    @property
    def message_slots(self) -> int:
        """Messages outstanding to a peer at most; an id modulo this is its slot."""


class Event(Protocol):
    """Something happened; which fields say something depends on the handler."""

    number: int  # of its kind: the place of its handler's name in `EVENTS`
    peer: int
    handle: int
    at_ns: int
    key: Key
    id: int
    length: int
    count: int
    body: bytes


LOSS_REASONS = ("gap", "probe", "timer")
"""How a loss was found: by a number skipped on a path, shown by data or a probe; or by silence."""

LOST_PACKET = np.dtype([("index", "u4"), ("attempts", "u2"), ("path", "u1"), ("reason", "u1")])
"""An element of a loss's body; `reason`: a place in `LOSS_REASONS`."""

EVENTS = (
    "send_posted",
    "sent",
    "receive_posted",
    "first_packet",
    "tail_seen",
    "receive_complete",
    "timer",
    "peer_timer",
    "control",
    "no_receive",
    "too_long",
    "late_packet",
    "gap",
    "loss",
    "parity",
    "chunk",
)
"""What events are called; "on_" before it is the handler's name."""


# Actions are made for every event, so they are the cheapest of classes: no handler changes one
# that it has returned.


@dataclasses.dataclass(slots=True)
class Retransmit:
    """Send these packets of a send again, before any first transmission.

    In order of index, round from the one named first, unless others still wait to be sent again.
    Urgent ones go before all other retransmissions, too. `copies`: how often each is sent, every
    time as an attempt of its own on another path than the time before.
    """

    handle: int
    indices: npt.NDArray[np.uint32]
    urgent: bool = False
    copies: int = 1

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        indices = np.asarray(self.indices, np.uint32)  # a policy may return a list
        endpoint.retransmit(self.handle, indices, self.urgent, self.copies)


@dataclasses.dataclass(slots=True)
class Pause:
    """Hold (or let go on) the first pass of a send."""

    handle: int
    paused: bool

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.pause(self.handle, self.paused)


@dataclasses.dataclass(slots=True)
class Control:
    """Send a control message to the peer's policy on the recovery QP."""

    peer: int
    body: bytes

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.control(self.peer, self.body)


@dataclasses.dataclass(slots=True)
class SetTimer:
    """Call `on_timer` for this message at this time; replaces the time set before."""

    handle: int
    at_ns: int

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.set_timer(self.handle, self.at_ns)


@dataclasses.dataclass(slots=True)
class SetPeerTimer:
    """Call `on_peer_timer` for this peer at this time; replaces the time set before."""

    peer: int
    at_ns: int

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.set_peer_timer(self.peer, self.at_ns)


@dataclasses.dataclass(slots=True)
class CompleteSend:
    """The send is over; its completion carries `status`."""

    handle: int
    status: ibv_wc_status

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.complete_send(self.handle, int(self.status))


@dataclasses.dataclass(slots=True)
class FailReceive:
    """The receive will not be fulfilled; its completion carries `status`."""

    handle: int
    status: ibv_wc_status

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.fail_receive(self.handle, int(self.status))


@dataclasses.dataclass(slots=True)
class DetectGaps:
    """Let the engine detect gaps of a receive, and call `on_gap` for them, from now on.

    A packet is in a gap when one of a higher index has arrived before it. `window_ns`: how long it
    may still come, the reordering window; another action replaces it.
    """

    handle: int
    window_ns: int

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.detect_gaps(self.handle, self.window_ns)


@dataclasses.dataclass(slots=True)
class Nack:
    """Tell a peer's engine what is missing of its messages. Only with `path_probes`."""

    peer: int

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.nack(self.peer)


@dataclasses.dataclass(slots=True)
class MovePath:
    """Give a path to a peer another source port. Only with `path_probes`."""

    peer: int
    path: int

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.move_path(self.peer, self.path)


@dataclasses.dataclass(slots=True)
class Encode:
    """Compute the parity of a submessage; then it is sent. On the policy's thread."""

    handle: int
    submessage: int
    code: ErasureCode

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.encode(self.handle, self.submessage, self.code.native)


@dataclasses.dataclass(slots=True)
class Restore:
    """Decode what a submessage lacks, in place. On the policy's thread.

    If the code cannot restore it nothing is written.
    """

    handle: int
    submessage: int
    code: ErasureCode

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.restore(self.handle, self.submessage, self.code.native)


@dataclasses.dataclass(slots=True)
class UseCodes:
    """The erasure codes of messages that are posted to a peer from now on.

    `by_bits[n]`: of messages whose length has n bits, a place in the codes of the endpoint; 255
    for none.
    """

    peer: int
    by_bits: Sequence[int]

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.set_codes(self.peer, list(self.by_bits))


@dataclasses.dataclass(slots=True)
class UsePaths:
    """Share the packets to a peer among the paths in proportion to these weights."""

    peer: int
    weights: Sequence[int]

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.set_path_weights(self.peer, list(self.weights))


@dataclasses.dataclass(slots=True)
class Refuse:
    """Count a control message that makes no sense under `rx_bad_control`."""

    why: str

    def apply(self, endpoint: Endpoint) -> None:
        """Do it."""
        endpoint.count("rx_bad_control")


Action: TypeAlias = (
    Retransmit
    | Pause
    | Control
    | SetTimer
    | SetPeerTimer
    | CompleteSend
    | FailReceive
    | DetectGaps
    | Nack
    | MovePath
    | Encode
    | Restore
    | UseCodes
    | UsePaths
    | Refuse
)
Actions: TypeAlias = Iterable[Action]


class Policy:
    """Base of all policies; the default of each handler is to do nothing."""

    name = ""
    framing = "ud"
    """How its data packets name what they carry, unless the user chooses (docs/framing.md)."""

    path_probes: ClassVar[bool] = False
    """Whether the engine finds losses by the numbers on paths, and probes them (`on_loss`)."""

    @classmethod
    def engine(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of `MessageConfig` that follow from its options, which are valid."""
        return {}

    options: ClassVar[tuple[Option, ...]] = ()
    """What a user may set; `values` holds a value for each."""

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        """`options`: those that are set; OptionError for a value that an option does not take."""
        self.view = view
        self.timing = timing
        self.values = validated(self.options, options or {})

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:
        """A workload posted a send; the engine starts it when its turn comes."""
        return ()

    def on_sent(self, event: Event, now_ns: int) -> Actions:
        """Nothing of a send is queued any more: its first pass and all retransmissions are out."""
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
        """All packets are in place; the workload is informed."""
        return ()

    def on_timer(self, event: Event, now_ns: int) -> Actions:
        """The time set by `SetTimer` has come."""
        return ()

    def on_peer_timer(self, event: Event, now_ns: int) -> Actions:
        """The time set by `SetPeerTimer` has come."""
        return ()

    def on_control(self, event: Event, now_ns: int) -> Actions:
        """A control message of the peer's policy; anything may be in it."""
        return ()

    def on_no_receive(self, event: Event, now_ns: int) -> Actions:
        """A packet came for which no receive is posted; it was dropped."""
        return ()

    def on_too_long(self, event: Event, now_ns: int) -> Actions:
        """A message is larger than its receive; its packets are dropped.

        Over the framing uc_immediate the sender gets it, with the send's handle: the receive that
        was cleared for it is of another length or key. The send will not begin.
        """
        return ()

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:
        """A packet came of a message that is over, complete or failed: the sender may not know."""
        return ()

    def on_gap(self, event: Event, now_ns: int) -> Actions:
        """Packets of a receive were overtaken a reordering window ago; `body`: their indices.

        Only of receives of a `DetectGaps`, and of each packet once: uint32 in native byte order.
        """
        return ()

    def on_loss(self, event: Event, now_ns: int) -> Actions:
        """Packets of a send are lost; `body`: `LOST_PACKET` of each. Only with `path_probes`."""
        return ()

    def on_turn_end(self, now_ns: int) -> Actions:
        """All events that waited have been handled, and their actions applied."""
        return ()

    def on_parity(self, event: Event, now_ns: int) -> Actions:
        """The parity of a submessage of a send may leave; `body`: uint32, which one."""
        return ()

    def on_chunk(self, event: Event, now_ns: int) -> Actions:
        """A submessage lacks data, and has as many chunks as it has of data; `body`: uint32."""
        return ()

    def summary(self) -> dict[str, Any]:
        """Figures of the policy's own for the run directory."""
        return {}


def missing_chunks(missing: npt.NDArray[np.bool_], packets: int) -> npt.NDArray[np.bool_]:
    """Which chunks of so many packets lack one: SDR-RDMA's bitmap, inverted (arXiv 2505.05366)."""
    return np.logical_or.reduceat(missing, np.arange(0, len(missing), packets))


def packets_in(words: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.bool_]:
    """A bitmap's bits, one element for each of `count` packets."""
    bits = np.unpackbits(words.view(np.uint8), count=count, bitorder="little")
    return bits.view(np.bool_)


def missing_packets(state: ReceiveState) -> npt.NDArray[np.bool_]:
    """Which packets have not arrived; shape (count,)."""
    return ~packets_in(state.words, state.count)


def rotated(packets: npt.NDArray[np.uint32], retransmissions: int) -> npt.NDArray[np.uint32]:
    """The same packets, begun elsewhere with each retransmission, and in the end at each of them.

    If they went out in the same order each time, a queue shorter than they are would drop the last
    of them each time, and what loses each nth packet of a link the same ones. Turns of the golden
    ratio (Knuth, TAOCP volume 3, 6.4) go everywhere and are synchronised with nothing.
    """
    turn = retransmissions * _GOLDEN_RATIO_32 % (1 << 32)
    return np.roll(packets, -(turn * len(packets) >> 32))
