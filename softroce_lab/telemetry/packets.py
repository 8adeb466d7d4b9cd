# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames of a capture as rows of a table: what the checkers look at.

One row a frame, in the order of the file, made by the native reader (native/capture/row.hpp, whose
struct has this layout). Headers that a frame has not are zero; `has` shows which ones it has.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt


class Kind(enum.IntEnum):
    """What a frame is."""

    ROCE = 0  # UDP to port 4791 with a BTH of a known opcode, all of whose headers were captured
    OTHER = 1  # something else: ARP, TCP, ICMP, UDP to another port, an IP fragment
    SHORT = 2  # RoCE by its port, but the snap length cut off headers that are needed
    MALFORMED = 3  # RoCE by its port, and wrong: lengths, opcode, version (`refusal` has which)


class Has(enum.IntFlag):
    """Headers and facts of a row."""

    DETH = 1
    RETH = 2
    ATOMIC_ETH = 4
    AETH = 8
    ATOMIC_ACK = 16
    IMMEDIATE = 32
    IETH = 64
    LAB = 128  # struct lab_hdr: UD, valid as one
    WHOLE = 256  # every byte of the frame was captured
    ICRC_CHECKED = 512  # the ICRC could be computed
    ICRC_GOOD = 1024
    VLAN = 2048  # one or more tags were stepped over
    IPV6 = 4096
    TRIMMED = 8192  # by a queue of the lab: the flag of struct lab_hdr
    PAYLOAD_HASH = 16384
    STAMPED = 32768  # the file has a time for it


PACKET = np.dtype(
    [
        ("time_ns", "u8"),  # since 1970, or whatever the file counts from
        ("offset", "u8"),  # of the frame's first byte in the file
        ("number", "u4"),  # of the frame in the file, from 1, as Wireshark counts
        ("interface", "u4"),  # index of Capture.interfaces
        ("captured", "u4"),  # bytes in the file
        ("length", "u4"),  # bytes on the wire
        ("comment", "i4"),  # index of Capture.comments, -1: none
        ("has", "u4"),  # bits of Has
        ("kind", "u1"),
        ("refusal", "u1"),  # of MALFORMED: index of Capture.refusals
        ("traffic_class", "u1"),  # DSCP and ECN
        ("hop_limit", "u1"),
        ("source_port", "u2"),
        ("pkey", "u2"),
        ("source", "u1", 16),  # GIDs: IPv6, or IPv4-mapped
        ("destination", "u1", 16),
        ("opcode", "u1"),  # BTH
        ("bth_flags", "u1"),  # 1: solicited, 2: MigReq, 4: AckReq, 8: FECN, 16: BECN
        ("pad", "u1"),
        ("syndrome", "u1"),  # AETH
        ("destination_qp", "u4"),
        ("psn", "u4"),
        ("qkey", "u4"),  # DETH
        ("source_qp", "u4"),
        ("rkey", "u4"),  # RETH, AtomicETH, IETH
        ("remote_address", "u8"),  # RETH, AtomicETH
        ("swap_or_add", "u8"),
        ("compare", "u8"),
        ("original", "u8"),  # AtomicAckETH
        ("payload_hash", "u8"),  # of the payload less padding and struct lab_hdr, if WHOLE
        ("dma_length", "u4"),
        ("msn", "u4"),
        ("immediate", "u4"),
        ("payload_bytes", "u4"),  # on the wire, less padding; struct lab_hdr is not in it
        ("payload_at", "u4"),  # where it begins in the frame
        ("lab_kind", "u1"),  # struct lab_hdr, see xdp/lab_wire.h
        ("lab_path", "u1"),
        ("lab_attempt", "u2"),
        ("lab_operation", "u2"),
        ("lab_step", "u2"),
        ("lab_message", "u4"),
        ("lab_message_id", "u4"),
        ("lab_index", "u4"),
        ("lab_count", "u4"),
        ("lab_length", "u4"),
        ("lab_stamp_ns", "u4"),
        ("lab_number", "u4"),  # on the path
        ("lab_epoch", "u4"),
        ("lab_srtt_ns", "u4"),
        ("lab_rttvar_ns", "u4"),
        ("icrc", "u4"),  # as the frame has it, read as the codec does; 0 unless WHOLE
    ],
)

Packets: TypeAlias = npt.NDArray[np.void]  # of dtype PACKET
