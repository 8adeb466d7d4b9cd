# SPDX-License-Identifier: GPL-2.0-or-later
"""Pictures of failed runs, in SVG: a time-sequence diagram, and a list of events at two hosts.

The lines of a picture say the same in words. They are its text alternative, and are printed too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.learn.remote import Retransmission
from softroce_lab.learn.trial import Trial
from softroce_lab.transports.api import Key

_WIDTH, _HEIGHT, _LEFT, _TOP = 760, 420, 70, 40
_MAX_LINES, _MAX_MARKS = 6, 4000
_LOST, _AGAIN, _ARRIVED = "#c0392b", "#1f5fa8", "#1e7d43"
_LANES, _ROW, _MAX_EVENTS = (120, 520), 20, 60
_BAD = ("error", "RETRY", "FLUSH", "RNR")
_time = units.format_duration


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, and the same in words."""

    svg: str
    lines: list[str]


def _document(width: int, height: int, title: str, lines: list[str], parts: list[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title words" font-family="sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="words">{escape(". ".join(lines))}</desc>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(10, 22, title, 'font-weight="bold"'),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _text(x: int, y: int, text: object, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(str(text))}</text>'


# --- Packets of one message over time --------------------------------------------------------


def draw(trial: Trial, title: str) -> Picture | None:
    """The message that tells most about a failure; None if nothing was lost or sent again."""
    key = _choose_message(trial)
    if key is None:
        return None
    marks = [
        (made.at_ns, int(packet), _AGAIN)
        for made in trial.record.retransmissions
        if made.key == key
        for packet in made.packets
    ]
    for row in _losses(trial, key):
        marks.append((int(row["dropped_ns"]), int(row["index"]), _LOST))
        if row["arrived_ns"] >= 0:
            marks.append((int(row["arrived_ns"]), int(row["index"]), _ARRIVED))
    if not marks:
        return None
    lines = _describe(trial, key)
    heading = f"{title}: message {'/'.join(map(str, key))}"
    parts = _diagram(sorted(marks)[:_MAX_MARKS])
    return Picture(_document(_WIDTH, _HEIGHT, heading, lines, parts), lines)


def _choose_message(trial: Trial) -> Key | None:
    """A message that lacks a packet; else one that was repeated in vain; else the slowest."""
    lost, decisions = trial.lost, trial.record.retransmissions
    never = lost[lost["arrived_ns"] < 0]
    if len(never):
        return _key(never[0])
    wasteful = [
        made
        for made in decisions
        if made.missing is not None and np.setdiff1d(made.packets, made.missing).size
    ]
    if len(lost) and not wasteful:
        return _key(lost[np.argmax(lost["arrived_ns"] - lost["dropped_ns"])])
    return next((made.key for made in (*wasteful, *decisions)), None)


def _key(row: Any) -> Key:
    return int(row["operation"]), int(row["step"]), int(row["message"])


def _losses(trial: Trial, key: Key) -> list[Any]:
    return [row for row in trial.lost if _key(row) == key]


def _describe(trial: Trial, key: Key) -> list[str]:
    decisions = [made for made in trial.record.retransmissions if made.key == key]
    lines = []
    for row in _losses(trial, key)[: _MAX_LINES // 2]:
        packet, arrived = int(row["index"]), int(row["arrived_ns"])
        again = [made for made in decisions if packet in made.packets]
        times = ", ".join(f"{_time(made.at_ns)} ({made.hook})" for made in again[:4])
        when = f"sent again at {times}" if times else "never sent again"
        end = f"arrived at {_time(arrived)}" if arrived >= 0 else "never arrived"
        lines.append(f"packet {packet}: lost at {_time(int(row['dropped_ns']))}, {when}, {end}")
    lines += map(_describe_decision, decisions[: _MAX_LINES - len(lines)])
    return lines


def _describe_decision(made: Retransmission) -> str:
    missing = "no feedback yet" if made.missing is None else _range(made.missing)
    packets = f"sent again {_range(made.packets)}"
    return f"{_time(made.at_ns)}, {made.hook}: {packets}; missing at the receiver: {missing}"


def _range(packets: Any) -> str:
    if not len(packets):
        return "none"
    if len(packets) <= 4:
        return ", ".join(str(int(packet)) for packet in packets)
    return f"{len(packets)} packets, {int(min(packets))} to {int(max(packets))}"


def _diagram(marks: Sequence[tuple[int, int, str]]) -> list[str]:
    first, last = marks[0][0], max(marks[-1][0], marks[0][0] + 1)
    top = max(*(packet for _, packet, _ in marks), 1)
    right, bottom, end = _WIDTH - 20, _HEIGHT - 50, 'text-anchor="end"'
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom + 5}H{right}" fill="none" stroke="#333"/>',
        _text(_LEFT, bottom + 24, _time(first)),
        _text(right, bottom + 24, _time(last), end),
        _text(8, _TOP + 14, "packet"),
        _text(_LEFT - 6, _TOP + 30, top, end),
        _text(_LEFT - 6, bottom, 0, end),
    ]
    for at_ns, packet, colour in marks:
        x = _LEFT + (right - _LEFT) * (at_ns - first) / (last - first)
        y = bottom - (bottom - _TOP - 10) * packet / top
        if colour is _AGAIN:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            continue
        shape = "l8 8m0 -8l-8 8" if colour is _LOST else "h8v8h-8z"
        path = f"M{x - 4:.1f} {y - 4:.1f}{shape}"
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    legend = "x: lost; dot: the policy sent it again; square: arrived after all"
    return [*parts, _text(_LEFT, _HEIGHT - 8, legend)]


# --- Events at two hosts ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a host, 0 or 1."""

    at_ns: int
    host: int
    text: str

    def __str__(self) -> str:
        return f"{_time(self.at_ns)}  h{self.host + 1}  {self.text}"


def draw_events(events: Sequence[Event], title: str) -> Picture | None:
    """A lane for each host; None if nothing happened."""
    shown = sorted(events, key=lambda event: event.at_ns)[:_MAX_EVENTS]
    if not shown:
        return None
    height = 76 + _ROW * len(shown)
    parts = []
    for host, x in enumerate(_LANES):
        parts.append(_text(x, 44, f"h{host + 1}", 'font-weight="bold"'))
        parts.append(f'<path d="M{x - 8} 50V{height - 10}" stroke="#999"/>')
    for row, event in enumerate(shown):
        y = 68 + _ROW * row
        colour = "#c0392b" if any(word in event.text for word in _BAD) else "#222"
        parts.append(_text(10, y, _time(event.at_ns), 'fill="#555"'))
        parts.append(_text(_LANES[event.host], y, event.text, f'fill="{colour}"'))
    lines = [str(event) for event in shown]
    return Picture(_document(900, height, title, lines, parts), lines[:12])
