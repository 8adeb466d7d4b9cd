# SPDX-License-Identifier: GPL-2.0-or-later
"""scapy layers for everything on a RoCEv2 wire, our own headers included.

    from softroce_lab import dissect

    dissect.bind()  # UDP port 4791 is ours from now on, also for sniff() and rdpcap()
    dissect.parse(frame).show()  # or without binding anything

Nothing else in the package imports scapy, which takes long to load: import this where it is needed.
"""

from softroce_lab.dissect.binding import bind, bound, is_bound, parse, unbind
from softroce_lab.dissect.lab import (
    Ack,
    Chunks,
    Clear,
    Keepalive,
    LabHeader,
    Nack,
    PacketAck,
    PacketNack,
    PacketSack,
    PacketSet,
    ReceiverReport,
    Refuse,
    Rnr,
    Sack,
    SdrClearToSend,
)
from softroce_lab.dissect.mad import (
    MAD,
    CmDrep,
    CmDreq,
    CmMra,
    CmRej,
    CmRep,
    CmReq,
    CmRtu,
    CmSidrRep,
    CmSidrReq,
)
from softroce_lab.dissect.roce import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    NOT_CAPTURED,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CNPReserved,
    ImmDt,
    Payload,
    cnp,
)

__all__ = [
    "AETH",
    "BTH",
    "DETH",
    "FETH",
    "IETH",
    "MAD",
    "NOT_CAPTURED",
    "RDETH",
    "RETH",
    "XRCETH",
    "Ack",
    "AtomicAckETH",
    "AtomicETH",
    "CNPReserved",
    "Chunks",
    "Clear",
    "CmDrep",
    "CmDreq",
    "CmMra",
    "CmRej",
    "CmRep",
    "CmReq",
    "CmRtu",
    "CmSidrRep",
    "CmSidrReq",
    "ImmDt",
    "Keepalive",
    "LabHeader",
    "Nack",
    "PacketAck",
    "PacketNack",
    "PacketSack",
    "PacketSet",
    "Payload",
    "ReceiverReport",
    "Refuse",
    "Rnr",
    "Sack",
    "SdrClearToSend",
    "bind",
    "bound",
    "cnp",
    "is_bound",
    "parse",
    "unbind",
]
