# SPDX-License-Identifier: GPL-2.0-or-later
"""The story of a message: what was lost, how that was detected, and where its time went.

The time of a message is cut at the packet that came last of those that were lost: until it was
dropped, until its sender decided to retransmit it, until it left, until it arrived, was restored
from parity, or was dropped again.
The parts add up to the whole. This cut is the project's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.errors import UserError, ibv_wc_status
from softroce_lab.experiment.figure_table import ORACLE
from softroce_lab.experiment.messages import NOT_DONE
from softroce_lab.results.figures_of import since_begun_ns
from softroce_lab.results.incidents import UNKNOWN, Incident, Messages, What, incidents
from softroce_lab.results.recorded import Recorded, Run, name_of
from softroce_lab.results.steps import Steps

DATA = ("data", "other", "response")
"""Kinds of packets with data: named, of a queue pair, and a READ's or an atomic's result."""
PARITY = "parity"
_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_WAITED = "waiting for its turn"
RESTORED = "until parity restored it"
"""The part that ends when a lost packet was restored."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a message's time."""

    title: str
    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.begin_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """Of one message."""

    run: str
    name: str
    row: int
    source: str
    destination: str
    size_bytes: int
    packets: int
    status: str  # "delivered", or how it ended
    times: dict[str, int]  # posted_ns ... completed_ns; -1: it has not happened
    incidents: list[Incident]  # of its packets, in the order of time
    sent_again: int  # transmissions of packets that had left before
    last_packet: int | None  # the lost one that came last; None: none was lost, or none came
    parts: list[Part]  # of the time from post to completion, if it was delivered
    names_packets: bool = True  # False: which of the run's lost packets were its own is not known

    @property
    def taken_ns(self) -> int | None:
        """From the post to the completion; None: it was not delivered."""
        if self.status != "delivered":
            return None
        return self.times["completed_ns"] - self.times["posted_ns"]

    def count(self, what: What) -> int:
        """Incidents of packets with data, of this kind."""
        return sum(e.what is what and e.kind in DATA for e in self.incidents)

    def document(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "message": self.name,
            "bytes": self.size_bytes,
            "packets": self.packets,
            "status": self.status,
            **self.times,
            "taken_ns": self.taken_ns,
            "dropped": self.count(What.DROP),
            "sent_again": self.sent_again,
            "restored": self.count(What.RESTORED),
            "last_packet": self.last_packet,
            "names_packets": self.names_packets,
            "parts": [
                {"part": each.title, "begin_ns": each.begin_ns, "length_ns": each.length_ns}
                for each in self.parts
            ],
            "incidents": [
                {**each._asdict(), "what": each.what.value, "message": self.name}
                for each in self.incidents
            ],
        }


def ended(status: int) -> str:
    """How a message ended."""
    if status == _SUCCESS:
        return "delivered"
    return "not delivered" if status == NOT_DONE else ibv_wc_status(status).name


def _parts(times: dict[str, int], last: int | None, found: Sequence[Incident]) -> list[Part]:
    """Consecutive, from the post to the completion."""
    cuts = [(_WAITED, max(times["first_sent_ns"], times["posted_ns"]))]
    if last is None:
        cuts.append(("transfer", times["received_ns"]))
    else:
        cuts += _cuts_of(last, found)
        cuts.append(("rest of the transfer", times["received_ns"]))
    cuts.append(("acknowledgement", times["completed_ns"]))
    parts, begin = [], times["posted_ns"]
    for title, end in cuts:
        end = min(max(end, begin), times["completed_ns"])
        if end > begin or title == "acknowledgement":
            parts.append(Part(title, begin, end))
        begin = end
    return parts


def _cuts_of(packet: int, found: Sequence[Incident]) -> list[tuple[str, int]]:
    """Where the time of a packet is cut that was lost: titles of what ends, and when."""
    cuts: list[tuple[str, int]] = []
    lost = decided = False
    for each in found:
        if each.what is What.DECISION and not lost:  # rc goes back for a packet before it
            title = f"until it was sent again for an earlier packet ({each.why})"
            cuts.append((title, each.time_ns))
        if not each.about(packet):
            continue
        if each.what is What.DROP and each.kind in DATA:
            title = "retransmission under way" if lost else "sending until the loss"
            cuts.append((title, each.time_ns))
            lost, decided = True, False
        elif each.what is What.DECISION and lost and not decided:
            cuts.append((f"until the loss was detected ({each.why})", each.time_ns))
            decided = True
        elif each.what is What.SENT_AGAIN and lost:
            cuts.append(("until it left again" if decided else "until it left again, undecided",
                         each.time_ns))  # fmt: skip
        elif each.what is What.ARRIVED:
            cuts.append(("retransmission under way", each.time_ns))
            break
        elif each.what is What.RESTORED:
            cuts.append((RESTORED, each.time_ns))
            break
    return cuts


# --- A run -----------------------------------------------------------------------------------


_TIMES = ("posted_ns", "first_sent_ns", "first_received_ns", "received_ns", "completed_ns")
SENT = ("data", "other")  # kinds of packets with data of the sender


@dataclasses.dataclass(frozen=True, slots=True)
class Explained:
    """A run of a directory."""

    name: str
    messages: Messages
    incidents: Sequence[Incident]
    of_message: Mapping[int, Sequence[Incident]]  # by row
    bound: Messages | None  # the same messages under oracle
    has_decisions: bool  # recovery.parquet is there
    base_rtt_ns: int | None  # of the fabric without traffic, if it is known

    @classmethod
    def of(cls, recorded: Recorded, run: Run) -> Explained:
        """UserError if a table is missing."""
        messages = Messages.of(recorded, run)
        found = incidents(recorded, run, messages)
        of_message: dict[int, list[Incident]] = {}
        for each in found:
            if each.message >= 0:
                of_message.setdefault(each.message, []).append(each)
        decisions = recorded.has("recovery")
        bound = _bound(recorded, run)
        rtt_ns = run.get("base_rtt_ns")
        return cls(name_of(run), messages, found, of_message, bound, decisions, rtt_ns)

    def story(self, row: int) -> Story:
        """Of the message in this row."""
        of, found = self.messages.columns, self.of_message.get(row, ())
        times = {name: int(of[name][row]) for name in _TIMES}
        status = int(of["status"][row])
        last = self._last_repaired(found)
        sent_again = sum(each.what is What.SENT_AGAIN and each.kind in DATA for each in found)
        return Story(
            run=self.name,
            name=self.messages.name(row),
            row=row,
            source=str(of["source"][row]),
            destination=str(of["destination"][row]),
            size_bytes=int(of["bytes"][row]),
            packets=self.messages.packets(row),
            status=ended(status),
            times=times,
            incidents=list(found),
            sent_again=sent_again if self.has_decisions else int(of["retransmitted"][row]),
            last_packet=last,
            parts=_parts(times, last, found) if status == _SUCCESS else [],
            names_packets=self.messages.names_packets,
        )

    def _last_repaired(self, found: Sequence[Incident]) -> int | None:
        """The lost packet that came last."""
        if self.messages.run.get("clock") == "real":  # arrivals are not recorded there
            return None
        lost = {each.first for each in found if each.what is What.DROP and each.kind in DATA}
        repaired = [
            each.first
            for each in found
            if each.what is What.ARRIVED or (each.what is What.RESTORED and each.first in lost)
        ]
        return repaired[-1] if repaired else None

    def bound_ns(self, tale: Story) -> int | None:
        """What this message took under oracle with the same seed; None: that did not run."""
        if self.bound is None or tale.row >= len(self.bound):
            return None
        taken = int(completion_ns(self.bound)[tale.row])
        return None if taken == np.iinfo(np.int64).max else taken

    def words(self, tale: Story) -> list[str]:
        """The story in sentences."""
        lines = [
            *words(tale, self.bound_ns(tale)),
            *self._turn_words(tale),
            *self._back_words(tale),
        ]
        if not self.has_decisions:
            what = "Which packets a decision was about was not recorded"
            lines.append(f"{what}; the virtual clock records it.")
        return lines

    def _turn_words(self, tale: Story) -> Iterator[str]:
        """Which message of the same host was sent while this one waited for its turn."""
        if not (tale.parts and tale.parts[0].title == _WAITED):
            return
        of, times = self.messages.columns, tale.times
        ahead = np.flatnonzero(
            (of["source"] == tale.source)
            & (of["first_sent_ns"] >= 0)
            & (of["first_sent_ns"] < times["first_sent_ns"])
            & (of["received_ns"] > times["posted_ns"])
        )
        if ahead.size:
            last = self.messages.name(int(ahead[np.argmax(of["first_sent_ns"][ahead])]))
            others = f" and {ahead.size - 1:,} before it" if ahead.size > 1 else ""
            yield f"While it waited for its turn, {tale.source} sent {last}{others}."

    def _back_words(self, tale: Story) -> Iterator[str]:
        """How much longer its acknowledgement took than on an empty fabric."""
        if self.base_rtt_ns is None or not tale.parts:
            return
        took_ns, back_ns = tale.parts[-1].length_ns, self.base_rtt_ns // 2
        if took_ns > 2 * back_ns:
            took, back = map(units.format_duration, (took_ns, back_ns))
            yield (
                f"Its acknowledgement took {took}; on an empty fabric it takes {back}. "
                f"It waited at {tale.destination}, or behind other packets on the way."
            )

    @property
    def lost(self) -> list[Incident]:
        """Data packets that were lost, retransmissions included.

        Packets of queue pairs are those with data if they are of a message; where packets name
        none (`Messages.names_packets`), ACKs and NAKs are counted, too.
        """
        names = self.messages.names_packets
        return [
            each
            for each in self.incidents
            if each.what is What.DROP and each.kind in SENT and (each.message >= 0 or not names)
        ]

    def loss_words(self) -> str:
        """How many packets the run lost, of how many messages."""
        if self.messages.names_packets:
            lost = units.format_count(len(self.lost), "data packet")
            hit = units.format_count(len({each.message for each in self.lost}), "message")
            return f"In all of {self.name}: {lost} lost in {hit}."
        lost = units.format_count(len(self.lost), "packet")
        return f"In all of {self.name}: {lost} lost, ACKs and NAKs among them."


def _bound(recorded: Recorded, run: Run) -> Messages | None:
    if run["transport"] == ORACLE:
        return None
    try:
        return Messages.of(recorded, recorded.run(f"{ORACLE}/{run['seed']}"))
    except UserError:
        return None


def step_words(known: Explained, steps: Steps, step: int) -> str:
    """How long a step took, by its index, and what was lost in it."""
    rows = steps.rows(step).tolist()
    delivered = int((known.messages.columns["status"][rows] == _SUCCESS).sum())
    found = [each for row in rows for each in known.of_message.get(row, ())]
    lost = sum(each.what is What.DROP and each.kind in DATA for each in found)
    count = units.format_count(len(rows), "message")
    name = f"{known.name}: step {steps.every[step].name}, {count}"
    taken_ns = steps.times_ns(known.messages.columns).get(step)
    packets = units.format_count(lost, "packet")
    if taken_ns is not None:
        took = f"took {units.format_duration(taken_ns)}"
    elif delivered < len(rows):
        took = f"{delivered:,} delivered"
    else:
        took = "behind one that was not delivered"
    return f"{name}, {took}; {packets} lost. Its slowest message:"


# --- Which messages --------------------------------------------------------------------------


def completion_ns(messages: Messages) -> npt.NDArray[np.int64]:
    """Of each message, from its post, or a flow's arrival; the largest number without an end."""
    taken = since_begun_ns(messages.columns).astype(np.int64)
    taken[messages.columns["status"] != _SUCCESS] = np.iinfo(np.int64).max
    return taken


def worst(messages: Messages, count: int, within: npt.NDArray[np.bool_] | None = None) -> list[int]:
    """The rows of the slowest messages: undelivered ones first, those never posted last."""
    taken = completion_ns(messages)
    taken[messages.columns["posted_ns"] < 0] = -1
    order = np.argsort(-taken, kind="stable")
    if within is not None:
        order = order[within[order]]
    return [int(row) for row in order[:count]]


def named(messages: Messages, text: str, where: str = "") -> int:
    """The row of `h1->h2:0/3/12`, or of `0/3/12` if only one message has that key. UserError.

    `where`: the run, as a command line names it.
    """
    ends, _, key = text.rpartition(":")
    try:
        operation, step, number = (int(part) for part in key.split("/"))
    except ValueError:
        hint = "SOURCE->DESTINATION:OPERATION/STEP/MESSAGE, such as 'h1->h2:0/3/12'"
        raise UserError(f"{text!r} names no message", hint=hint) from None
    of = messages.columns
    chosen = (of["operation"] == operation) & (of["step"] == step) & (of["message"] == number)
    if ends:
        source, _, destination = ends.partition("->")
        chosen &= (of["source"] == source) & (of["destination"] == destination)
    rows = np.flatnonzero(chosen).tolist()
    if not rows:
        hint = f"{_explain(where)} --worst 5 names some"
        raise UserError(f"there is no message {text!r}", hint=hint)
    if len(rows) > 1:
        some = ", ".join(f"'{messages.name(row)}'" for row in rows[:4])
        raise UserError(f"{len(rows)} messages are called {text}", hint=f"such as {some}")
    return int(rows[0])


def _explain(where: str) -> str:
    return f"lab results explain {where}" if where else "lab results explain"


# --- In words --------------------------------------------------------------------------------


def ordinal(attempt: int) -> str:
    """Of a transmission: attempts count from 0."""
    number = attempt + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}th" if number % 100 in (11, 12, 13) else f"{number}{ending}"


def words(tale: Story, bound_ns: int | None = None) -> list[str]:
    """The story in sentences. `bound_ns`: what the message took under `oracle`."""
    size = units.format_bytes(tale.size_bytes)
    of = units.format_count(tale.packets, "packet")
    taken = tale.taken_ns
    end = tale.status if taken is None else f"took {units.format_duration(taken)}"
    lines = [f"{tale.run}: message {tale.name}, {size} in {of}, {end}."]
    dropped, again = tale.count(What.DROP), tale.sent_again
    if tale.times["posted_ns"] < 0:
        lines.append("It was never posted: what it waited for did not happen.")
    elif dropped or again:
        lost = units.format_count(dropped, "transmission")
        restored = tale.count(What.RESTORED)
        more = f", {restored:,} restored from parity" if restored else ""
        lines.append(f"{lost} lost, {again:,} sent again{more}.")
    elif not tale.names_packets:
        lines.append("Which lost packets were its own is not known: they name no message.")
    else:
        lines.append("None of its packets was lost.")
    parity = sum(each.what is What.DROP and each.kind == PARITY for each in tale.incidents)
    if parity:
        lines.append(f"{units.format_count(parity, 'packet')} of its parity lost.")
    if tale.last_packet is not None:
        lines.append(f"Of the lost packets, packet {tale.last_packet} came last:")
        lines += [f"  {line}" for line in packet_words(tale, tale.last_packet)]
    lines += parts_words(tale)
    if bound_ns and taken:
        ratio = f"{taken / bound_ns:.2f} times"
        lines.append(f"Under oracle it took {units.format_duration(bound_ns)}: {ratio} the bound.")
    return lines


def parts_words(tale: Story) -> list[str]:
    """Where the time went; nothing of a message that was not delivered."""
    taken = tale.taken_ns
    if not tale.parts or not taken:
        return []
    lines = ["Where the time went:"]
    for part in tale.parts:
        share = 100 * part.length_ns / taken
        length = units.format_duration(part.length_ns)
        lines.append(f"  {length:>9} {share:5.1f} %  {part.title}")
    return lines


def packet_words(tale: Story, packet: int) -> list[str]:
    """What happened to one of its packets, with times since the post."""
    lines = []
    begun_ns = max(tale.times["posted_ns"], 0)
    since: int | None = None
    for each in tale.incidents:
        if not each.about(packet) or each.what is What.CONTROL:
            continue
        at = units.format_duration(each.time_ns - begun_ns)
        after = "" if since is None else f", {units.format_duration(each.time_ns - since)} later"
        lines.append(f"{at}{after}: {_worded(each)}")
        since = each.time_ns
        if each.what in (What.ARRIVED, What.RESTORED):
            break
    return lines


def _worded(each: Incident) -> str:
    match each.what:
        case What.DROP:
            on = f" on {each.where}" if each.where else ""
            return f"dropped{on} by {each.why or 'a rule'}"
        case What.DECISION:
            what = "some packets" if each.last == UNKNOWN else "it"
            return f"{each.where} decided to retransmit {what}, because of {each.why}"
        case What.SENT_AGAIN:
            number = f", {ordinal(each.attempt)} transmission" if each.attempt else ""
            return f"left {each.where} again{number}"
        case What.TIMEOUT:
            return f"the timer of {each.where} ended"
        case What.ARRIVED:
            return f"arrived at {each.where}"
        case What.PARITY:
            parity = units.format_count(each.packets, "packet")
            return f"{each.where} sent {parity} of parity over it and others, because of {each.why}"
        case What.RESTORED:
            return f"restored from parity at {each.where}"
        case _:
            return f"{each.what} on {each.where} by {each.why}"
