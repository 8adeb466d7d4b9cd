# SPDX-License-Identifier: GPL-2.0-or-later
"""A time-sequence diagram of one message: which packets were lost, sent again, and arrived when.

Its lines say the same in words: they are the picture's text alternative, and printed beside it.
"""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.learn.hosted import Retransmission
from softroce_lab.learn.trial import Trial
from softroce_lab.recovery.api import Key

_WIDTH, _HEIGHT, _LEFT, _TOP = 760, 420, 70, 40
_MOST_LINES, _MOST_MARKS = 6, 4000
_COLOURS = {"lost": "#c0392b", "again": "#1f5fa8", "arrived": "#1e7d43"}


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a packet."""

    at_ns: int
    packet: int
    kind: str  # of _COLOURS


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, and the same in words."""

    svg: str
    lines: list[str]


def of(found: Trial, title: str) -> Picture | None:
    """The message that tells most about a failure; None if nothing was lost or sent again."""
    key = _telling(found)
    if key is None:
        return None
    marks = sorted(_marks(found, key), key=lambda mark: (mark.at_ns, mark.packet))[:_MOST_MARKS]
    if not marks:
        return None
    heading = f"{title}: message {'/'.join(map(str, key))}"
    lines = _lines(found, key)
    return Picture(_svg(marks, heading, lines), lines)


def _telling(found: Trial) -> Key | None:
    repairs = None if found.ended is None else found.ended.repairs
    if repairs is not None and len(repairs):
        never = repairs[repairs["arrived_ns"] < 0]
        if len(never):
            return _key(never[0])
        if not _wasteful(found.retransmissions):
            return _key(repairs[np.argmax(repairs["arrived_ns"] - repairs["dropped_ns"])])
    first = _wasteful(found.retransmissions) or found.retransmissions[:1]
    return first[0].key if first else None


def _wasteful(decisions: list[Retransmission]) -> list[Retransmission]:
    return [
        each
        for each in decisions
        if each.missing is not None and np.setdiff1d(each.packets, each.missing).size
    ]


def _key(row: Any) -> Key:
    return int(row["operation"]), int(row["step"]), int(row["message"])


def _marks(found: Trial, key: Key) -> list[Mark]:
    marks = [
        Mark(each.at_ns, int(packet), "again")
        for each in found.retransmissions
        if each.key == key
        for packet in each.packets
    ]
    for row in _losses(found, key):
        marks.append(Mark(int(row["dropped_ns"]), int(row["index"]), "lost"))
        if row["arrived_ns"] >= 0:
            marks.append(Mark(int(row["arrived_ns"]), int(row["index"]), "arrived"))
    return marks


def _losses(found: Trial, key: Key) -> list[Any]:
    if found.ended is None or found.ended.repairs is None:
        return []
    return [row for row in found.ended.repairs if _key(row) == key]


def _lines(found: Trial, key: Key) -> list[str]:
    lines = []
    for row in _losses(found, key)[: _MOST_LINES // 2]:
        packet, arrived = int(row["index"]), int(row["arrived_ns"])
        again = [
            each for each in found.retransmissions if each.key == key and packet in each.packets
        ]
        decided = ", ".join(f"{_time(each.at_ns)} ({each.hook})" for each in again[:4])
        end = f"arrived at {_time(arrived)}" if arrived >= 0 else "never arrived"
        when = f"sent again at {decided}" if decided else "never sent again"
        lines.append(f"packet {packet}: lost at {_time(int(row['dropped_ns']))}, {when}, {end}")
    for each in found.retransmissions:
        if each.key == key and len(lines) < _MOST_LINES:
            missing = "no feedback yet" if each.missing is None else _range(each.missing)
            lines.append(
                f"{_time(each.at_ns)}, {each.hook}: sent again {_range(each.packets)}; "
                f"missing at the receiver: {missing}"
            )
    return lines


def _range(packets: Any) -> str:
    if not len(packets):
        return "none"
    if len(packets) <= 4:
        return ", ".join(str(int(each)) for each in packets)
    return f"{len(packets)} packets, {int(min(packets))} to {int(max(packets))}"


def _time(at_ns: int) -> str:
    return units.format_duration(at_ns)


def _svg(marks: list[Mark], heading: str, lines: list[str]) -> str:
    first, last = marks[0].at_ns, max(marks[-1].at_ns, marks[0].at_ns + 1)
    top = max(max(mark.packet for mark in marks), 1)

    def place(mark: Mark) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - 20) * (mark.at_ns - first) / (last - first)
        return x, _HEIGHT - 50 - (_HEIGHT - _TOP - 60) * mark.packet / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-labelledby="title words" font-family="sans-serif" font-size="13">',
        f'<title id="title">{escape(heading)}</title>',
        f'<desc id="words">{escape(". ".join(lines))}</desc>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-weight="bold">{escape(heading)}</text>',
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - 45}H{_WIDTH - 20}" fill="none" stroke="#333"/>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 26}">{_time(first)}</text>',
        f'<text x="{_WIDTH - 20}" y="{_HEIGHT - 26}" text-anchor="end">{_time(last)}</text>',
        f'<text x="8" y="{_TOP + 14}">packet</text>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 30}" text-anchor="end">{top}</text>',
        f'<text x="{_LEFT - 6}" y="{_HEIGHT - 50}" text-anchor="end">0</text>',
    ]
    for mark in marks:
        x, y = place(mark)
        colour = _COLOURS[mark.kind]
        if mark.kind == "lost":
            parts.append(
                f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" '
                'stroke-width="2"/>'
            )
        elif mark.kind == "again":
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        else:
            parts.append(
                f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="none" '
                f'stroke="{colour}" stroke-width="2"/>'
            )
    parts.append(
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">x: lost &#160; dot: the policy sent it again '
        "&#160; square: arrived after all</text></svg>"
    )
    return "\n".join(parts) + "\n"
