# SPDX-License-Identifier: GPL-2.0-or-later
"""What is on the wire, from the description that the dissectors are made of."""

from __future__ import annotations

import re

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.dissect import description
from softroce_lab.dissect.description import Field, Part, Record, Repeated, Text

_DATA = """\
A data packet is Ethernet, IPv4 or IPv6, UDP to port 4791, a BTH, the headers of its opcode, the
payload and an ICRC (IBA annex A17). The UDP source port is 0xC000 plus the path. A *framing* says
how the packet names its place in a message:

| | `ud` | `uc_immediate` |
|---|---|---|
| a data packet is | UD SEND ONLY | UC RDMA WRITE ONLY with immediate |
| names its place by | the header below, 40 bytes | RETH and immediate, 20 bytes |
| data in a packet | path MTU - 40 bytes | path MTU |
| packets of a message, at most | 2^32 / (path MTU - 40), below 2^24 | 2^18, parity included |
| messages outstanding to a peer | `message_slots`, up to 2^31 | `message_slots`, up to 1024 |
| sends and receives match | by the message's key | by the order of posting |
| a send without a posted receive | is sent and refused by an RNR NAK | waits for CLEAR |
| a message is as long as | its send | its receive |
| queue pairs to a peer | one for data, one for recovery | 64 x 16, one for recovery |

Control messages and reports are packets of the framing `ud` in both cases. With `uc_immediate`
switches see no attempt, no message and no transmission time. Fault rules that name messages do not
match these packets, and trimming queues do not trim them.

A queue that trims (`trim` of `rate`) cuts a data or parity packet of the framing `ud` behind the
header below, or behind the operation that follows the header. It sets the bit `trimmed`, the
lengths, the ICRC and the DSCP. The DSCP says which queue it was: 43 if its link leads to the
packet's destination, 47 otherwise."""

_OPERATION = """\
A reliable connection can send its operations as striped messages. Each packet of data and of parity
then has two headers: the one above with `version` {version}, and behind it the operation's, {bytes}
bytes. So a packet can be placed whatever was lost before it. All other packets keep `version`
{plain}.

    Ethernet | IP | UDP | BTH | DETH | header ({header}) | operation ({bytes}) | data | ICRC

The two headers have {both} bytes, and a packet carries at most path MTU - {both} bytes of data.
Three fields of the header name the operation:

| field | content |
|---|---|
| `operation`, upper 8 bits | 1: a request, {result}: the result of a READ or an atomic |
| `operation`, lower 8 bits | bits 16 to 23 of the number of the message's queue pair |
| `step` | bits 0 to 15 of the number of that queue pair, which the message is for |
| `message` | number of the operation at its requester's queue pair, from 0 |

A READ or an atomic has two messages: the request, and the result that comes back with the verb of
the request. A request of a READ carries no data. A request of an atomic carries 16 bytes: the value
to compare with, or 0, and the value to store or to add. Its result carries the 8 bytes that were
there before.

A fault rule names these packets by message and packet, as it names others: `message` is the
operation's number. A queue that trims leaves both headers."""

_HELLO = """\
Before the first operation two processes agree on the transport. A process sends a hello to the
other one's queue pair for recovery. The other answers if one of its queue pairs is connected to the
first. A hello is a control message with `message_id` {id} and Q_Key {qkey:#x}. The body has no
type."""

_PARITY = """\
Packets of parity have a kind of their own, and stand behind the data: the first has the index
`count`. `code` says what they belong to.

| transport | `code` of data | `code` of parity |
|---|---|---|
| `sdr_ec`, `sdr_auto`, a policy | 1 + place in the run's list of codes; 0: no code | the same |
| `csa_ud` | 0 | packets of data that it covers: the last ones of the message |

Parity of `csa_ud` is a systematic MDS code over GF(2^8), polynomial 0x11d. With k packets of data
in the block, row i weights packet j by `1 / ((k + i) xor j)`. A row is as long as the longest
packet of the block. Zeros complete a shorter last packet. A block has at most 64 packets, and at
most 4 rows.

In `uc_immediate` the offsets behind those of the data are parity."""

_IMMEDIATE = """\
SDR-RDMA (arXiv 2505.05366) defines the immediate. A receive has a *slot* until its message is
complete. The packet goes to the address `(slot * 2^18 + offset) * path MTU`. Packet `i` carries the
bits `4 * (i mod 8)` and above of the user's immediate, which is the number of the message in its
step. A queue pair has the number `first channel + generation * 16 + path`. The generation is
`(message id / message_slots) mod 64`, so that a late packet of an earlier use of the slot is
refused. The receiver sends a CLEAR when a receive gets its slot, and repeats it until a packet
arrives."""

_NAMES = """\
Message ids and generations repeat. No name is used again within the longest time that a packet can
be on its way: a send waits instead (counters `tx_name_waits`, `rx_name_waits`)."""

_REFUSED = """\
The receiver refuses a packet that breaks a rule and counts it. The [counters](counters.md) whose
names begin with `rx_` name the rules."""


def page() -> str:
    """Headers and bodies of all packets of striped messages."""
    about = (
        "These are the packets of striped messages: of all transports but `rc` and `shift`, whose "
        "packets are those of InfiniBand. All numbers are big-endian. In Wireshark a field is "
        "`softroce.FIELD`, or `softroce.RECORD.FIELD`."
    )
    controls = [_record(each) for each in description.CONTROLS.values()]
    return markdown.page(
        "Wire format",
        about,
        markdown.section("Framings", _DATA),
        markdown.section("The header", _fields(description.HEADER)),
        markdown.section(
            "The operation",
            _OPERATION.format(
                version=description.OPERATION_VERSION,
                plain=description.HEADER_VERSION,
                header=description.HEADER_BYTES,
                bytes=description.OPERATION_BYTES,
                both=description.HEADER_BYTES + description.OPERATION_BYTES,
                result=description.RESULT,
            ),
            f"In Wireshark: `softroce.{description.OPERATION.abbreviation}`.",
            _fields(description.OPERATION),
        ),
        markdown.section("Parity", _PARITY),
        markdown.section(
            "Control messages",
            "The payload behind a header of kind `control`. A report may follow the body.",
            *controls,
        ),
        markdown.section(
            "Hello",
            _HELLO.format(id=description.HELLO_ID, qkey=description.HELLO_QKEY),
            f"In Wireshark: `softroce.{description.HELLO.abbreviation}`.",
            _fields(description.HELLO),
        ),
        _record(description.PACKET_SET, level=2),
        _record(description.REPORT_BODY, level=2),
        _record(description.PROBE_BODY, level=2),
        markdown.section("The immediate of `uc_immediate`", _IMMEDIATE,
                         _fields(description.IMMEDIATE)),
        markdown.section("The clear to send of the SDK of SDR-RDMA",
                         _fields(description.SDR_CLEAR)),
        markdown.section("Names that are used again", _NAMES),
        markdown.section("What is refused", _REFUSED),
    )  # fmt: skip


def _record(record: Record, level: int = 3) -> str:
    title = record.name[0].upper() + record.name[1:]
    return markdown.section(title, f"In Wireshark: `softroce.{record.abbreviation}`.",
                            _fields(record), level=level)  # fmt: skip


def _fields(record: Record) -> str:
    rows = [row for part in record.parts for row in _rows(part)]
    return markdown.table(["field", "bits", "meaning"], _joined(rows))


def _rows(part: Part, prefix: str = "") -> list[tuple[str, str, str]]:
    if isinstance(part, Field):
        return [(code(prefix + part.name), str(part.bits), _meaning(part))]
    if isinstance(part, Repeated):
        many = f"as many as {code(part.count)}" if part.count else "to the end"
        inner = [row for each in part.fields for row in _rows(each, f"{part.name}.")]
        return [(code(part.name), many, f"{prose(part.label)}, each with:"), *inner]
    if isinstance(part, Text):
        return [(code(part.name), str(8 * part.octets), f"{prose(part.label)}: text")]
    return [(code(part.name), "to the end", f"{prose(part.label)}: a packet set, or nothing")]


def _meaning(field: Field) -> str:
    if field is description.HEADER.parts[0]:
        of_operation = f"{description.OPERATION_VERSION} before an operation"
        return f"{prose(field.label)}: {field.default}, or {of_operation}"
    if field.name == "type":
        return f"{prose(field.label)}: {field.default}"
    if not field.values:
        return prose(field.label)
    if field.values is description.UNREADY:
        words = ", ".join(f"{n} {field.values[n]}" for n in (32, 33))
        return prose(f"{field.label}: below 32 that of an RNR timer (IBA table 45), {words}")
    if field.values is description.STATUSES:
        return f"{prose(field.label)}: a code of `ibv_wc_status`"
    return prose(f"{field.label}: " + ", ".join(f"{n} {name}" for n, name in field.values.items()))


def _joined(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """One row for the fields of all 16 paths, such as `settled_0` to `settled_15`."""
    kept = []
    for name, bits, meaning in rows:
        of_path = re.fullmatch(r"`(\w+)_(\d+)`", name)
        if of_path is None:
            kept.append((name, bits, meaning))
        elif of_path[2] == "0":
            names = f"`{of_path[1]}_0` to `{of_path[1]}_15`"
            kept.append((names, f"{bits} each", meaning.replace("path 0", "each path")))
    return kept
