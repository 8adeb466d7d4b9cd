# SPDX-License-Identifier: GPL-2.0-or-later
"""What a recovery policy may read while it decides, and helpers to read it.

A policy (policy.py) reads no clock, opens no socket and draws no random numbers: time comes in as
`now_ns`, knowledge through a `View`, and all it does is returned as actions.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

NEVER_NS = (1 << 63) - 1
"""A time that does not come."""

MOST_COPIES = 16
"""Of one retransmission."""

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
