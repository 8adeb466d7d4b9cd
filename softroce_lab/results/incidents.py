# SPDX-License-Identifier: GPL-2.0-or-later
"""All that happened to the packets of a run: drops, decisions, retransmissions, arrivals.

It joins events.parquet, recovery.parquet and repairs.parquet by message. Packets of `rc` name no
message: their PSN tells which one, because a queue pair sends its messages in the order of posts.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from softroce_lab.results import fabric
from softroce_lab.results.recorded import Columns, Recorded, Run
from softroce_lab.transports import registry

PSNS = 1 << 24
NO_MESSAGE = -1
UNKNOWN = -1


class What(enum.StrEnum):
    """Kinds of incidents."""

    DROP = "dropped"
    CORRUPT = "corrupted"
    DUPLICATE = "duplicated"
    REORDER = "reordered"
    DECISION = "retransmission decided"
    SENT_AGAIN = "sent again"
    TIMEOUT = "timeout"
    CONTROL = "control message"
    ARRIVED = "arrived"
    PARITY = "parity sent"
    RESTORED = "restored from parity"


class Incident(NamedTuple):
    """One of them."""

    time_ns: int
    what: What
    message: int  # row of the run's messages; NO_MESSAGE: it is not known
    first: int  # packets of the message, from 0
    last: int  # UNKNOWN: it is not recorded which packets
    attempt: int  # transmissions before this one
    where: str  # directed link, or host
    why: str  # rule, cause, reason, or name of the control message
    kind: str  # of a packet: data, control, report, other; "": no packet
    packets: int = 0  # how many of `first` to `last` it is about, 0: all of them; or of parity

    def about(self, packet: int) -> bool:
        """Whether it may be about this packet of the message."""
        return self.last == UNKNOWN or self.first <= packet <= self.last


@dataclasses.dataclass(frozen=True, slots=True)
class Messages:
    """A run's messages, and which one a record is about."""

    columns: Columns
    run: Run
    hosts: Mapping[str, str]  # by address
    _rows: dict[tuple[str, str, int, int, int], int]
    _of_key: dict[tuple[str, str, int, int, int], list[int]]
    _pairs: dict[tuple[str, int], _Pair]

    @classmethod
    def of(cls, recorded: Recorded, run: Run) -> Messages:
        """UserError if messages.parquet is missing or cut."""
        table = recorded.table("messages", run)
        names = ("source", "destination", "operation", "step", "message")
        keys = list(zip(*(table[name].tolist() for name in names), strict=True))
        of_key: dict[tuple[str, str, int, int, int], list[int]] = {}
        for row, (source, destination, *key) in enumerate(keys):
            of_key.setdefault(("from", source, *key), []).append(row)
            of_key.setdefault(("to", destination, *key), []).append(row)
        hosts = fabric.addresses(recorded)
        pairs = _pairs(table, run, hosts)
        return cls(table, run, hosts, {key: row for row, key in enumerate(keys)}, of_key, pairs)

    def __len__(self) -> int:
        return len(self.columns["bytes"])

    def row(self, source: str, destination: str, key: tuple[int, int, int]) -> int:
        """Of the message with this name; NO_MESSAGE."""
        return self._rows.get((source, destination, *key), NO_MESSAGE)

    def at_host(self, end: str, host: str, key: tuple[int, int, int], time_ns: int) -> int:
        """Of the message `from` or `to` a host with this key, if at that time there is only one."""
        rows = self._of_key.get((end, host, *key), [])
        if len(rows) > 1:
            rows = [row for row in rows if self._lives(row, time_ns)]
        return rows[0] if len(rows) == 1 else NO_MESSAGE

    def _lives(self, row: int, time_ns: int) -> bool:
        posted, over = (int(self.columns[name][row]) for name in ("posted_ns", "completed_ns"))
        return posted <= time_ns and (over < 0 or time_ns <= over)

    def of_psn(self, destination: str, qpn: int, psn: int) -> tuple[int, int]:
        """Row and packet of a PSN, whose packets go to this address and queue pair.

        (NO_MESSAGE, 0).
        """
        pair = self._pairs.get((destination, qpn))
        return (NO_MESSAGE, 0) if pair is None else pair.find(psn)

    def of_psns(
        self, destination: str, qpn: int, psn: int, last_psn: int
    ) -> list[tuple[int, int, int]]:
        """The messages of a range of PSNs: row, and its packets from and to in each."""
        row, first = self.of_psn(destination, qpn, psn)
        end_row, end = self.of_psn(destination, qpn, last_psn)
        if row == NO_MESSAGE or end_row == NO_MESSAGE:
            return [(row, first, first)]
        if row == end_row:
            return [(row, first, max(first, end))]
        between = self._pairs[destination, qpn].between(row, end_row)
        whole = [(each, 0, self.packets(each) - 1) for each in between]
        return [(row, first, self.packets(row) - 1), *whole, (end_row, 0, end)]

    @property
    def names_packets(self) -> bool:
        """Whether it is known which message each lost packet was of.

        Packets of queue pairs name none. Those of the virtual clock are found by their PSNs, unless
        a queue pair had several lives, with PSNs of their own.
        """
        connected = registry.uses_queue_pairs(self.run.get("protocol"))
        return not connected or bool(self._pairs) or not self.run.get("injected_drops")

    def host(self, address: str) -> str:
        """The name of a host, or the address where it is not known."""
        return self.hosts.get(address, address)

    def name(self, row: int) -> str:
        """`h1->h2:0/3/12`: ends, operation, step, message."""
        of = self.columns
        key = "/".join(str(of[name][row]) for name in ("operation", "step", "message"))
        return f"{of['source'][row]}->{of['destination'][row]}:{key}"

    def packets(self, row: int) -> int:
        """How many a message has, sent or not."""
        recorded = int(self.columns["packets"][row])
        return recorded or _cut(int(self.columns["bytes"][row]), int(self.run["path_mtu"]))


def _cut(size_bytes: int, mtu_bytes: int) -> int:
    return max(1, -(-size_bytes // mtu_bytes))


class _Pair:
    """One direction of a reliable connection: which PSNs are which message's."""

    def __init__(self, first_psn: int, rows: list[int], packets: list[int]) -> None:
        self._first_psn = first_psn
        self._rows = rows
        self._begins = [0]
        for count in packets:
            self._begins.append(self._begins[-1] + count)

    def find(self, psn: int) -> tuple[int, int]:
        offset = (psn - self._first_psn) % PSNS
        at = bisect.bisect_right(self._begins, offset) - 1
        if not 0 <= at < len(self._rows):
            return NO_MESSAGE, 0
        return self._rows[at], offset - self._begins[at]

    def between(self, row: int, other: int) -> list[int]:
        """The messages behind one and before another."""
        return self._rows[self._rows.index(row) + 1 : self._rows.index(other)]


def _pairs(table: Columns, run: Run, hosts: Mapping[str, str]) -> dict[tuple[str, int], _Pair]:
    found: dict[tuple[str, int], _Pair] = {}
    known = run.get("queue_pairs") or []
    if not known:
        return found
    rows_of: dict[tuple[str, str], list[int]] = {}
    numbers = table["operation"].astype(np.int64) + table["step"] + table["message"]
    never = np.iinfo(np.int64).max
    posted = np.where(table["posted_ns"] < 0, never, table["posted_ns"])
    first = np.where(table["first_sent_ns"] < 0, never, table["first_sent_ns"])
    for row in np.lexsort((first, posted)).tolist():
        ends = table["source"][row], table["destination"][row]
        rows_of.setdefault(ends, []).append(row)
    mtu = int(run["path_mtu"])
    for pair in known:
        addresses = [str(ipaddress.IPv4Address(pair[end])) for end in ("source", "destination")]
        source, destination = (hosts.get(each, "") for each in addresses)
        part, parts = pair.get("part", 0), pair.get("parts", 1)  # of a host with several rails
        rows = [
            row for row in rows_of.get((source, destination), []) if numbers[row] % parts == part
        ]
        packets = [_cut(int(table["bytes"][row]), mtu) for row in rows]
        found[addresses[1], pair["qpn"]] = _Pair(pair["first_psn"], rows, packets)
    return found


_EFFECTS = {
    "drop": What.DROP,
    "cut": What.DROP,
    "corrupt": What.CORRUPT,
    "duplicate": What.DUPLICATE,
    "reorder": What.REORDER,
}
_BY_RECEIVER = ("nack", "sack", "chunks", "rnr", "refused", "clear")


def incidents(recorded: Recorded, run: Run, messages: Messages) -> list[Incident]:
    """All of a run, in the order of time. UserError if events.parquet is missing or cut."""
    decided = recorded.has("recovery")
    virtual = run.get("clock") != "real"  # whose recovery.parquet has losses without a name
    connected = registry.uses_queue_pairs(run.get("protocol"))
    hides = virtual and run.get("framing") == "uc_immediate" and not connected
    events = recorded.table("events", run)
    found = list(_events(events, messages, decided=decided))
    if decided:
        rules = {}  # what took a packet, by time and link
        if hides:  # packets with data name no message: recovery.parquet knows which they were
            taken = rows_of(events, "time_ns", "link", "rule")
            rules = {(time_ns, link): rule for time_ns, link, rule in taken}
            found = [each for each in found if each.what is not What.DROP or each.kind != "other"]
        found += _recoveries(recorded.table("recovery", run), messages, rules)
    if recorded.has("repairs"):
        restored = {_at(each) for each in found if each.what is What.RESTORED}
        repaired = _repairs(recorded.table("repairs", run), messages)
        found += (each for each in repaired if _at(each) not in restored)
    return sorted(found, key=lambda each: each.time_ns)


def _at(each: Incident) -> tuple[int, int, int]:
    return each.time_ns, each.message, each.first


def rows_of(table: Columns, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, of these columns."""
    return zip(*(table[name].tolist() for name in names), strict=True)


def _events(table: Columns, messages: Messages, *, decided: bool) -> Iterator[Incident]:
    """`decided`: decisions to retransmit are recorded elsewhere, with their packets."""
    names = ("time_ns", "source", "event", "link", "rule", "packet_kind", "operation", "step",
             "message", "index", "attempt", "src", "dst", "psn", "qpn")  # fmt: skip
    for (
        time_ns,
        source,
        event,
        link,
        rule,
        kind,
        *key,
        index,
        attempt,
        src,
        dst,
        psn,
        qpn,
    ) in rows_of(table, *names):
        named = (key[0], key[1], key[2])
        if source == "injector":
            row, packet = _message_of(messages, (src, dst), named, index, kind, qpn, psn)
            yield Incident(time_ns, _EFFECTS[event], row, packet, packet, attempt, link, rule, kind)
        elif event in _BY_RECEIVER:
            row = messages.at_host("to", source, named, time_ns)
            yield Incident(time_ns, What.CONTROL, row, 0, 0, 0, source, event, "")
        elif event.startswith("retransmit") and not decided:
            row = messages.at_host("from", source, named, time_ns)
            why = event.partition("_")[2] or "policy"
            yield Incident(time_ns, What.DECISION, row, 0, UNKNOWN, 0, source, why, "")


def _message_of(
    messages: Messages,
    ends: tuple[str, str],
    key: tuple[int, int, int],
    index: int,
    kind: str,
    qpn: int,
    psn: int,
) -> tuple[int, int]:
    """Row and packet of data or parity between two addresses; (NO_MESSAGE, 0) of others."""
    if kind in ("data", "parity"):
        return messages.row(messages.host(ends[0]), messages.host(ends[1]), key), index
    return messages.of_psn(ends[1], qpn, psn) if kind == "other" else (NO_MESSAGE, 0)


def _recoveries(
    table: Columns, messages: Messages, rules: Mapping[tuple[int, str], str]
) -> Iterator[Incident]:
    names = ("time_ns", "host", "event", "reason", "cause", "link", "packet_kind", "operation",
             "step", "message", "index", "last_index", "packets", "attempt", "src", "dst", "qpn",
             "psn", "last_psn")  # fmt: skip
    for time_ns, host, event, reason, cause, link, kind, *rest in rows_of(table, *names):
        operation, step, message, index, last, packets, attempt, src, dst, *psns = rest
        qpn, psn, last_psn = psns
        ends = messages.host(src), messages.host(dst)
        what, where, why = _recovered(event, host, reason, cause, link)
        why = rules.get((time_ns, link), why) if what is What.DROP else why
        if what is What.RESTORED:
            kind = "data"
        elif what is not What.SENT_AGAIN and what is not What.DROP:
            kind = ""
        if qpn and kind not in ("data", "parity"):
            spans, packets = messages.of_psns(dst, qpn, psn, last_psn), 0
        else:
            spans = [(messages.row(*ends, (operation, step, message)), index, last)]
        for row, begin, end in spans:
            yield Incident(time_ns, what, row, begin, end, attempt, where, why, kind, packets)


_OF_FEEDBACK = {"nak_sent": "nak", "nack_sent": "nack"}  # as an arrow has it


def _recovered(event: str, host: str, reason: str, cause: str, link: str) -> tuple[What, str, str]:
    match event:
        case "retransmit":
            return What.DECISION, host, reason
        case "sent_again":
            return What.SENT_AGAIN, host, ""
        case "lost":
            return What.DROP, link, cause
        case "parity_sent":
            return What.PARITY, host, reason
        case "restored":
            return What.RESTORED, host, ""
        case "timeout":
            return What.TIMEOUT, host, "timeout"
        case _:
            return What.CONTROL, host, _OF_FEEDBACK.get(event, event)


def _repairs(table: Columns, messages: Messages) -> Iterator[Incident]:
    names = ("arrived_ns", "operation", "step", "message", "index", "src", "dst", "qpn", "psn")
    for arrived_ns, operation, step, message, index, src, dst, qpn, psn in rows_of(table, *names):
        if arrived_ns < 0:
            continue
        ends = messages.host(src), messages.host(dst)
        if qpn:
            row, index = messages.of_psn(dst, qpn, psn)
        else:
            row = messages.row(*ends, (operation, step, message))
        yield Incident(arrived_ns, What.ARRIVED, row, index, index, 0, ends[1], "", "data")
