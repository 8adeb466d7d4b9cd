# SPDX-License-Identifier: GPL-2.0-or-later
"""A sequence of what happened at both hosts. Its lines say the same in words."""

from __future__ import annotations

from html import escape

from softroce_lab import units
from softroce_lab.learn.failover.outcome import Outcome
from softroce_lab.learn.failover.run import Line, in_words
from softroce_lab.learn.picture import Picture

_WIDTH, _ROW, _TOP, _MOST = 900, 20, 56, 60
_LANES = (120, 520)
_BAD = ("error", "RETRY", "FLUSH", "RNR")


def of(found: Outcome, title: str) -> Picture | None:
    """Of a run; None if there was none."""
    lines = sorted(found.seen.lines, key=lambda line: line.at_ns)[:_MOST]
    if not lines:
        return None
    words = in_words(lines, _MOST)
    return Picture(_svg(lines, title, words), words[:12])


def _svg(lines: list[Line], title: str, words: list[str]) -> str:
    height = _TOP + _ROW * len(lines) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-labelledby="title words" font-family="sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="words">{escape(". ".join(words))}</desc>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>',
    ]
    for host, x in enumerate(_LANES):
        parts.append(f'<text x="{x}" y="44" font-weight="bold">h{host + 1}</text>')
        parts.append(f'<path d="M{x - 8} 50V{height - 10}" stroke="#999"/>')
    for row, line in enumerate(lines):
        y = _TOP + _ROW * row + 12
        colour = "#c0392b" if any(each in line.text for each in _BAD) else "#222"
        time = units.format_duration(line.at_ns)
        parts.append(f'<text x="10" y="{y}" fill="#555">{time}</text>')
        parts.append(
            f'<text x="{_LANES[line.host]}" y="{y}" fill="{colour}">{escape(line.text)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
