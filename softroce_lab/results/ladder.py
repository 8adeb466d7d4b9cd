# SPDX-License-Identifier: GPL-2.0-or-later
"""A message as a ladder for the terminal: time goes down, the sender is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softroce_lab import units
from softroce_lab.results.incidents import UNKNOWN, Incident, What
from softroce_lab.results.story import Story, ordinal

_WIDTH = 30  # characters between the two hosts
_MOST_LINES = 60
_THERE = (What.ARRIVED, What.RESTORED)
_IDLE = "|" + " " * (_WIDTH - 2) + "|"


class Rung(NamedTuple):
    """A line of a ladder."""

    time_ns: int
    shape: str  # ">": to the receiver, "<": to the sender, "X", "x": lost that way, "": at a host
    label: str  # of the arrow
    note: str


def lines(tale: Story) -> Iterator[str]:
    """The ladder, with times since the post; of a long one the middle is left out."""
    begun = max(tale.times["posted_ns"], 0)
    yield f"{'time':>13}  {tale.source:<{_WIDTH}}{tale.destination}"
    found = rungs(tale)
    half = _MOST_LINES // 2
    left_out = len(found) - 2 * half
    for number, rung in enumerate(found):
        if left_out > 0 and half <= number < half + left_out:
            if number == half:
                yield f"{'...':>13}  {left_out:,} lines are left out; --json has all"
            continue
        yield f"{_time(rung.time_ns - begun):>13}  {_drawn(rung)}  {rung.note}".rstrip()


def _time(time_ns: int) -> str:
    """Exact, in microseconds."""
    return f"{time_ns / 1000:,.3f} us"


def rungs(tale: Story) -> list[Rung]:
    """In the order of time; what a host does with packets in a row is one rung."""
    packets = units.format_count(tale.packets, "packet")
    begin = [
        (tale.times["posted_ns"], "", "", f"{tale.source} posts the send, {packets}"),
        (tale.times["first_sent_ns"], ">", "first packet", ""),
    ]
    end = [
        (tale.times["received_ns"], "", "", f"{tale.destination} has all packets"),
        (tale.times["completed_ns"], "", "", f"{tale.source} completes the send"),
    ]
    found = [Rung(*each) for each in begin if each[0] >= 0]
    found += [_rung(tale, each, count) for each, count in _joined(tale.incidents)]
    found += [Rung(*each) for each in end if each[0] >= 0]
    return sorted(found, key=lambda rung: rung.time_ns)


def _joined(found: list[Incident]) -> Iterator[tuple[Incident, int]]:
    """Packets that follow each other, and equal control messages, as one; with their number."""
    held: Incident | None = None
    count = 0
    for each in found:
        if held is not None and _follows(held, each):
            held = held._replace(last=max(held.last, each.last), packets=0)
            if held.what in _THERE:  # they are all there with the last of them
                held = held._replace(time_ns=each.time_ns)
            count += 1
            continue
        if held is not None:
            yield held, count
        held, count = each, 1
    if held is not None:
        yield held, count


def _follows(held: Incident, each: Incident) -> bool:
    if (held.what, held.where, held.why, held.attempt) != (
        each.what, each.where, each.why, each.attempt,
    ):  # fmt: skip
        return False
    if held.what is What.CONTROL:
        return held.time_ns == each.time_ns
    return held.what in (What.SENT_AGAIN, *_THERE) and each.first == held.last + 1


def _drawn(rung: Rung) -> str:
    """Of `_WIDTH` characters."""
    label = f" {rung.label} "
    if rung.shape == "X":
        return f"|-{label.center(_WIDTH // 2, '-')}X".ljust(_WIDTH - 1) + "|"
    if rung.shape == "x":
        return "|" + f"X{label.center(_WIDTH // 2, '-')}-|".rjust(_WIDTH - 1)
    inside = label.center(_WIDTH - 4, "-")
    return {">": f"|-{inside}>|", "<": f"|<{inside}-|"}.get(rung.shape, _IDLE)


def _packets(each: Incident) -> str:
    if each.last == UNKNOWN:
        return "packets"
    if each.first == each.last:
        return f"packet {each.first}"
    some = f"{each.packets} of " if 0 < each.packets <= each.last - each.first else ""
    return f"{some}{each.first} to {each.last}"


_BACK = {"response": "response", "control": "ACK or NAK"}  # kinds of packets to the sender
_RECEIVED = {"nak_received": "NAK", "nack_received": "NACK"}


def _rung(tale: Story, each: Incident, count: int) -> Rung:
    packets = _packets(each)
    at = each.time_ns
    match each.what:
        case What.DROP:
            on = f" on {each.where}" if each.where else ""
            shape, label = "X", packets
            if each.kind in _BACK:
                shape, label = "x", _BACK[each.kind]
            return Rung(at, shape, label, f"dropped{on}: {each.why}")
        case What.SENT_AGAIN:
            number = f"{ordinal(each.attempt)} transmission" if each.attempt else "sent again"
            return Rung(at, ">", packets, number)
        case What.ARRIVED | What.RESTORED:
            here = "is" if each.first == each.last else "are"
            how = f"{each.what} " if each.what is What.RESTORED else ""
            return Rung(at, "", "", f"{packets} {here} {how}at {each.where}")
        case What.PARITY:
            behind = f"behind {each.first} to {each.last}"
            return Rung(at, ">", f"{each.packets} of parity", f"{behind}: {each.why}")
        case What.CONTROL if each.why in _RECEIVED:
            return Rung(at, "", "", f"{each.where} has the {_RECEIVED[each.why]}")
        case What.CONTROL:
            head = ">" if each.where == tale.source else "<"
            return Rung(at, head, each.why, f"{count} copies" if count > 1 else "")
        case What.DECISION:
            return Rung(at, "", "", f"{each.where} decides to retransmit {packets}: {each.why}")
        case What.TIMEOUT:
            return Rung(at, "", "", f"the timer of {each.where} ends")
        case _:
            return Rung(at, ">", packets, f"{each.what} on {each.where}: {each.why}")
