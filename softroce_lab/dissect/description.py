# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's own headers, described once: scapy's layers and Wireshark's dissector are made of this.

`struct lab_hdr` and `struct lab_operation` are those of xdp/lab_wire.h, the bodies of control
messages those of softroce_lab/transports/control.py, native/transport/bodies.hpp and
native/engine/striped/clearance.hpp, the hello that of native/engine/rnic/greeter.hpp, the report
that of native/engine/striped/report.hpp, the probe that of native/engine/striped/probe.hpp. Behind
a control message's body may follow a report's.
The immediate is that of native/engine/striped/uc_framing.hpp, the clear to send of the SDR SDK that
of softroce_lab/transports/sdr.py. All is big-endian.

The formats are written here again, not taken from the engine's headers: a dissector that is
independent of the engine shows its mistakes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from softroce_lab.dissect import syndrome
from softroce_lab.errors import ibv_wc_status


@dataclasses.dataclass(frozen=True)
class Field:
    """An unsigned number; `bits` not a multiple of 8: it shares bytes with its neighbours."""

    name: str
    bits: int
    label: str
    values: Mapping[int, str] | None = None
    default: int = 0


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Entries of these fields; `count` names the field that counts them, None: up to the end."""

    name: str
    label: str
    fields: tuple[Field, ...]
    count: str | None = None
    least: int = 0  # entries


@dataclasses.dataclass(frozen=True)
class Text:
    """Octets of text; zeros fill up what is shorter."""

    name: str
    label: str
    octets: int


@dataclasses.dataclass(frozen=True)
class MissingPackets:
    """A packet set up to the end, or nothing: `PACKET_SET` and its bits."""

    name: str
    label: str


Part: TypeAlias = Field | Repeated | Text | MissingPackets


@dataclasses.dataclass(frozen=True)
class Record:
    """A header or body, its fields named `softroce.ABBREVIATION.FIELD` in Wireshark."""

    name: str
    abbreviation: str
    parts: tuple[Part, ...]

    def split(self, number: int) -> dict[str, int]:
        """The fields of this record, which has nothing else, as one number: name -> value."""
        values: dict[str, int] = {}
        for part in reversed(self.parts):
            if isinstance(part, Field):
                values[part.name] = number & (1 << part.bits) - 1
                number >>= part.bits
        return dict(reversed(values.items()))


PREFIX = "softroce"
HEADER_VERSION = 3
OPERATION_VERSION = 4
"""Of a header that `OPERATION` follows."""
DATA, CONTROL, REPORT, PATH_PROBE, PARITY = range(5)
KINDS = {
    DATA: "data",
    CONTROL: "control",
    REPORT: "report",
    PATH_PROBE: "probe",
    PARITY: "parity",
}
OF_MESSAGES = (DATA, PARITY)
"""Kinds that name a packet of a message, and carry its bytes. Only these have an operation."""
SPORT_BASE = 0xC000
"""UDP source port of path 0."""
TRIM_LAST_DSCP = 43
"""DSCP of a packet that the link to its destination trimmed. Other trimmed packets have another."""

HEADER = Record(
    "softroce_lab header",
    "",
    (
        Field("version", 4, "Version", default=HEADER_VERSION),
        Field("trimmed", 1, "Trimmed on its way"),
        Field("kind", 3, "Kind", KINDS),
        Field("path", 8, "Path"),
        Field("attempt", 16, "Attempt"),
        Field("operation", 16, "Operation"),
        Field("step", 16, "Step"),
        Field("message", 32, "Message of the step"),
        Field("message_id", 32, "Message id"),
        Field("index", 32, "Packet index"),
        Field("code", 8, "Code; of parity of csa_ud, the packets of data that it covers"),
        Field("count", 24, "Packets of data of the message", default=1),
        Field("length", 32, "Length in bytes"),
        Field("stamp_ns", 32, "Sender's clock modulo 2^32 (ns)"),
        Field("epoch", 8, "Connection epoch"),
        Field("number", 24, "Number on the path"),
        Field("srtt", 16, "Smoothed RTT (5 bits of exponent, 11 of mantissa; ns)"),
        Field("rttvar", 16, "RTT variation (likewise)"),
    ),
)
HEADER_BYTES = 40

VERBS = {
    1: "WRITE",
    2: "WRITE WITH IMMEDIATE",
    3: "SEND",
    4: "SEND WITH IMMEDIATE",
    5: "SEND WITH INVALIDATE",
    6: "READ",
    7: "COMPARE SWAP",
    8: "FETCH ADD",
}
RESULT = 2
"""Upper byte of the header's `operation` in the result of a READ or an atomic; a request has 1."""

OPERATION = Record(
    "softroce_lab operation",
    "op",
    (
        Field("solicited", 1, "Solicited event"),
        Field("verb", 7, "Verb", VERBS, default=1),
        Field(
            "receive",
            24,
            "Number of the receive that it takes; of READs and atomics, how many are outstanding",
        ),
        Field("reserved", 8, "Reserved"),
        Field("connection", 24, "First PSN of the requester"),
        Field("remote_address", 64, "Remote address of the message"),
        Field("rkey", 32, "Remote key"),
        Field("argument", 32, "Immediate, key to invalidate, or bytes that a READ wants"),
    ),
)
"""Of a reliable connection's operation that goes as striped messages: `struct lab_operation`."""
OPERATION_BYTES = 24


def operation_qp(operation: int, step: int) -> int:
    """The queue pair that an operation's message is for; of the header's fields."""
    return (operation & 0xFF) << 16 | step


# ---------------------------------------------------------------- control messages

NACK = 1
ACK, KEEPALIVE, RNR, REFUSE, SACK, CHUNKS, CLEAR = range(3, 10)
PACKET_ACK, PACKET_NACK, PACKET_SACK, PACKET_TRIMMED, PACKET_PULL = range(16, 21)
TYPES = {
    NACK: "NACK",
    ACK: "ACK",
    KEEPALIVE: "KEEPALIVE",
    RNR: "RNR",
    REFUSE: "REFUSE",
    SACK: "SACK",
    CHUNKS: "CHUNKS",
    CLEAR: "CLEAR",
    PACKET_ACK: "PACKET ACK",
    PACKET_NACK: "PACKET NACK",
    PACKET_SACK: "PACKET SACK",
    PACKET_TRIMMED: "PACKET TRIMMED",
    PACKET_PULL: "PACKET PULL",
}
STATUSES = {each.value: each.name for each in ibv_wc_status}
UNREADY = {code: f"wait {syndrome.rnr_timer_ns(code) / 1e6:.2f} ms" for code in range(32)} | {
    32: "no queue pair",
    33: "come again",
}
"""What an RNR says of an operation: the code of an RNR timer (IBA table 45), or `Unready` of
native/engine/verbs/operation.hpp."""
FORMS = {0: "plain bits", 1: "run lengths"}
PLAIN, RUNS = FORMS
MOST_IN_SET = 1 << 20
"""Packets of a set of run lengths; more is refused."""

_ID = Field("id", 32, "Message id")
_KEY = (
    Field("operation", 16, "Operation"),
    Field("step", 16, "Step"),
    Field("message", 32, "Message of the step"),
)
_FEEDBACK = (
    _ID,
    Field("cumulative", 32, "Packets here from the first on"),
    Field("echo_stamp_ns", 32, "Echo stamp (ns)"),
)
_MISSING = MissingPackets("missing", "Missing packets")


def _control(number: int, *parts: Part) -> Record:
    name = TYPES[number]
    kind = Field("type", 8, "Type", TYPES, default=number)
    return Record(name, name.lower().replace(" ", "_"), (kind, *parts))


CONTROLS: dict[int, Record] = {
    NACK: _control(
        NACK,
        Field("trimmed", 6, "Packets that were trimmed since the NACK before"),
        Field("timer", 1, "By a loss check"),
        Field("probe", 1, "Shown by a path probe"),
        Field("newest_probe", 16, "Newest path probe that has come"),
        Field("end", 32, "Ids from here on have not begun"),
        *(Field(f"settled_{n}", 32, f"Settled number of path {n}") for n in range(16)),
        Repeated(
            "trimmed_packets",
            "Trimmed packets",
            (Field("path", 8, "Path"), Field("number", 24, "Number on the path")),
            "trimmed",
        ),
        Repeated(
            "words",
            "Missing packets",
            (_ID, Field("base", 32, "Packet of bit 0"), Field("bits", 64, "Missing, by bit")),
        ),
    ),
    ACK: _control(ACK, Repeated("messages", "Messages", (_ID,))),
    KEEPALIVE: _control(KEEPALIVE, Repeated("messages", "Messages", (_ID, *_KEY))),
    RNR: _control(
        RNR,
        _ID,
        *_KEY,
        Repeated(
            "why", "Why, if the message is an operation's", (Field("code", 8, "Code", UNREADY),)
        ),
    ),
    REFUSE: _control(
        REFUSE,
        _ID,
        *_KEY,
        Field("by_receiver", 8, "By the receiver"),
        Field("status", 8, "Status", STATUSES),
    ),
    SACK: _control(SACK, _ID, *_KEY, _MISSING),
    CHUNKS: _control(CHUNKS, _ID, *_KEY, Field("packets", 16, "Packets of a chunk"), _MISSING),
    CLEAR: _control(
        CLEAR,
        Field("generations", 8, "Generations"),
        Field("paths", 16, "Channels of a generation"),
        Field("first_qp", 32, "First channel's QP"),
        Field("root_key", 32, "Root key"),
        Field("slot_bytes", 64, "Bytes of a slot"),
        Repeated("receives", "Receives", (_ID, *_KEY, Field("length", 32, "Length in bytes"))),
    ),
    PACKET_ACK: _control(PACKET_ACK, *_FEEDBACK),
    PACKET_NACK: _control(PACKET_NACK, *_FEEDBACK, Field("packet", 32, "Packet that is here")),
    PACKET_SACK: _control(
        PACKET_SACK,
        *_FEEDBACK,
        Field("base", 32, "Packet of bit 0"),
        Field("bits", 64, "Packets here, by bit"),
    ),
    PACKET_TRIMMED: _control(
        PACKET_TRIMMED,
        *_FEEDBACK,
        Field("packet", 32, "Packet whose payload was cut off"),
        Field("path", 8, "Path of the packet"),
        Field("at_last_hop", 8, "Cut by the link that leads to the receiver"),
    ),
    PACKET_PULL: _control(PACKET_PULL, Field("pulls", 32, "Packets that were pulled so far")),
}

HELLO_ID = 3
"""`message_id` of a control message that is a hello, and has no type."""
HELLO = Record(
    "hello",
    "hello",
    (
        Field("version", 8, "Version", default=1),
        Field("reserved", 7, "Reserved"),
        Field("answer", 1, "Answer"),
        Field("nonce", 64, "Nonce of the question"),
        Field("incarnation", 64, "Incarnation of the process; its lower half is the Q_Key"),
        Field("digest", 64, "Digest of what both ends have in common; 0: RC's packets"),
        Text("transport", "Transport", 24),
    ),
)
"""Of processes that agree on the transport of their operations (native/engine/rnic/greeter.hpp)."""
HELLO_QKEY = 0x48454C4F

PROBE_BODY = Record(
    "path probe",
    "probe",
    (
        Field("newest_control_ns", 32, "Newest timestamp of a control packet that came (ns)"),
        *(Field(f"controls_{n}", 8, f"Control packets that came on path {n}") for n in range(16)),
        Field("next_id", 32, "Id of the sender's next message"),
        Repeated(
            "paths",
            "Next numbers of other paths",
            (Field("path", 8, "Path"), Field("number", 24, "Next number")),
        ),
    ),
)

PACKET_SET = Record(
    "packet set",
    "set",
    (
        Field("form", 8, "Form", FORMS),
        Field("base", 32, "First packet"),
        Field("count", 32, "Packets covered"),
    ),
)

REPORT_BODY = Record(
    "receiver report",
    "report",
    (
        Field("echo_stamp_ns", 32, "Echo stamp (ns)"),
        Field("echo_delay_ns", 32, "Delay of the echo (ns)"),
        Field("credit_packets", 32, "Credit (packets)"),
        Field("packets", 32, "Packets received"),
        Field("ce_packets", 32, "Packets marked CE"),
        Field("lost_packets", 32, "Numbers skipped on paths"),
        Field("loss_bursts", 32, "How often numbers in a row were skipped"),
        Field("marked_paths", 16, "Paths marked CE since the last report, by bits"),
        Field("paths", 16, "Paths"),
        Repeated(
            "arrived",
            "Arrived by path",
            (Field("packets", 32, "Packets"), Field("bytes", 64, "Bytes")),
            count="paths",
            least=1,
        ),
    ),
)
REPORT_BYTES = sum(part.bits for part in REPORT_BODY.parts if isinstance(part, Field)) // 8
"""Of a receiver report without its paths."""

# ---------------------------------------------------------------- interpretations

# Packets of verbs that carry no mark: another program may send the same bits and mean others.

IMMEDIATE = Record(
    "immediate, if of the framing uc_immediate or the SDR SDK",
    "imm",
    (Field("slot", 10, "Slot"), Field("offset", 18, "Packet offset"), Field("user", 4, "User")),
)
"""Of a UC WRITE ONLY with immediate."""

SDR_CLEAR = Record(
    "SDR clear to send",
    "sdr_clear",
    (
        Field("number", 32, "Number in the order of receives"),
        Field("key", 32, "Key of the slot's use"),
        Field("length", 64, "Length in bytes", default=1),
    ),
)
"""Of an RC SEND ONLY with so many bytes and a length that a slot can have."""
SDR_CLEAR_BYTES = 16
MOST_SLOT_BYTES = 1 << 30
"""2^18 packets of the largest path MTU, 4096."""
