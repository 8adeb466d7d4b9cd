# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames of a capture as rows of a table: what the checkers look at.

One row a frame, in the order of the file, made by the native reader: struct PacketRow of
native/capture/row.hpp.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.structs import Struct


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
    TRIMMED_LAST = 65536  # TRIMMED by the link that leads to the destination: its own DSCP
    OPERATION = 131072  # struct lab_operation, behind struct lab_hdr


PACKET = np.dtype(Struct("capture::PacketRow").dtype)
Packets: TypeAlias = npt.NDArray[np.void]  # of dtype PACKET
