# SPDX-License-Identifier: GPL-2.0-or-later
"""A message as a ladder for the terminal: time goes down, the sender is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softroce_lab import units
from softroce_lab.report.incidents import Incident, What
from softroce_lab.report.story import Story, ordinal

_WIDTH = 30  # characters between the two hosts
_MOST_LINES = 60
_IDLE = "|" + " " * (_WIDTH - 2) + "|"


class Rung(NamedTuple):
    """A line of a ladder."""

    time_ns: int
    drawn: str
    note: str


def lines(told: Story) -> Iterator[str]:
    """The ladder, with times since the post; of a long one the middle is left out."""
    begun = max(told.times["posted_ns"], 0)
    yield f"{'time':>13}  {told.source:<{_WIDTH}}{told.destination}"
    found = rungs(told)
    half = _MOST_LINES // 2
    left_out = len(found) - 2 * half
    for number, rung in enumerate(found):
        if left_out > 0 and half <= number < half + left_out:
            if number == half:
                yield f"{'...':>13}  {left_out:,} lines are left out; --json has all"
            continue
        yield f"{_time(rung.time_ns - begun):>13}  {rung.drawn}  {rung.note}".rstrip()


def _time(time_ns: int) -> str:
    """Exact, in microseconds."""
    return f"{time_ns / 1000:,.3f} us"


def rungs(told: Story) -> list[Rung]:
    """In the order of time; what a host does with packets in a row is one rung."""
    packets = units.format_count(told.packets, "packet")
    begin = [
        (told.times["posted_ns"], _IDLE, f"{told.source} posts the send, {packets}"),
        (told.times["first_sent_ns"], _arrow(" first packet ", ">"), ""),
    ]
    end = [
        (told.times["received_ns"], _IDLE, f"{told.destination} has all packets"),
        (told.times["completed_ns"], _IDLE, f"{told.source} completes the send"),
    ]
    found = [Rung(*each) for each in begin if each[0] >= 0]
    found += [_rung(told, each, count) for each, count in _joined(told.incidents)]
    found += [Rung(*each) for each in end if each[0] >= 0]
    return sorted(found, key=lambda rung: rung.time_ns)


def _joined(found: list[Incident]) -> Iterator[tuple[Incident, int]]:
    """Packets that follow each other, and equal control messages, as one; with their number."""
    held: Incident | None = None
    count = 0
    for each in found:
        if held is not None and _follows(held, each):
            held, count = held._replace(last=max(held.last, each.last)), count + 1
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
    return held.what in (What.SENT_AGAIN, What.ARRIVED) and each.first == held.last + 1


def _arrow(text: str, head: str) -> str:
    inside = text.center(_WIDTH - 4, "-")
    return f"|<{inside}-|" if head == "<" else f"|-{inside}{head}|"


def _rung(told: Story, each: Incident, count: int) -> Rung:
    packets = f"packet {each.first}" if each.first == each.last else f"{each.first} to {each.last}"
    match each.what:
        case What.DROP:
            on = f" on {each.where}" if each.where else ""
            cut = f" {packets} ".center(_WIDTH // 2, "-")
            drawn = f"|-{cut}X".ljust(_WIDTH - 1) + "|"
            return Rung(each.time_ns, drawn, f"dropped{on}: {each.why}")
        case What.SENT_AGAIN:
            number = f"{ordinal(each.attempt)} transmission" if each.attempt else "sent again"
            return Rung(each.time_ns, _arrow(f" {packets} ", ">"), number)
        case What.ARRIVED:
            here = "is" if each.first == each.last else "are"
            return Rung(each.time_ns, _IDLE, f"{packets} {here} at {each.where}")
        case What.CONTROL if each.why == "nak_received":
            return Rung(each.time_ns, _IDLE, f"{each.where} has the NAK")
        case What.CONTROL:
            copies = f", {count} copies" if count > 1 else ""
            head = ">" if each.where == told.source else "<"
            return Rung(each.time_ns, _arrow(f" {each.why} ", head), copies.lstrip(", "))
        case What.DECISION:
            note = f"{each.where} decides to retransmit {packets}: {each.why}"
            return Rung(each.time_ns, _IDLE, note)
        case What.TIMEOUT:
            return Rung(each.time_ns, _IDLE, f"the timer of {each.where} ends")
        case _:
            drawn = _arrow(f" {packets} ", ">")
            return Rung(each.time_ns, drawn, f"{each.what} on {each.where}: {each.why}")
