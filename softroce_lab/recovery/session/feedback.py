# SPDX-License-Identifier: GPL-2.0-or-later
"""Feedback: which packets of a message are missing, from the receiver's session to the sender's.

A bit stands for a packet (SACK), or for the chunk of packets that the policy chooses (CHUNKS).
"""

from __future__ import annotations

from numpy import count_nonzero

from softroce_lab.recovery.api import Key, ReceiveState, missing_chunks, missing_packets
from softroce_lab.recovery.control import Chunks, PacketSet, Sack, packet_set
from softroce_lab.recovery.work import Sending


def message(id_: int, key: Key, state: ReceiveState, chunk_packets: int | None) -> Sack | Chunks:
    """What a receive lacks; without a set everything: no packet has arrived."""
    if chunk_packets is None:
        return Sack(id_, key, packet_set(missing_packets(state)) if state.open else None)
    if not state.open:
        return Chunks(id_, key, chunk_packets, None)
    missing = missing_chunks(missing_packets(state), chunk_packets)
    cumulative = int(missing.argmax())  # there is one, or the message were over
    return Chunks(id_, key, chunk_packets, PacketSet(cumulative, missing[cumulative:]))


def learn(send: Sending, feedback: Sack | Chunks, chunk_packets: int | None) -> bool:
    """Take a bitmap as known; False: it is not of this message, or not of this policy."""
    chunks = feedback.packets if isinstance(feedback, Chunks) else None
    if chunks != chunk_packets:
        return False
    missing = feedback.missing
    if missing is None:
        return True
    if missing.base + len(missing.bits) > -(-send.count // (chunk_packets or 1)):
        return False
    known = send.known_missing
    if known is None or count_nonzero(missing.bits) < count_nonzero(known.bits):
        send.timeouts_without_progress = 0
    send.known_missing = missing
    return True
