# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as lines of text: tiers as rows of boxes, links routed in the channels between them.

Every link gets columns of its own at both of its ends, so vertical strokes never meet, and a
piece of a horizontal track of its own; where two strokes cross they do not join.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from softroce_lab.plan.plan import Link, Node, Plan
from softroce_lab.topology.marks import Marks, rows, style

Style: TypeAlias = Literal["", "node", "fault", "down"]
Line: TypeAlias = list[tuple[str, Style]]  # runs of characters of one style

MOST_TRACKS = 28  # a channel higher than this is a mess
_GAP = 2  # columns between neighbours in a row

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_STROKES = {
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _UP | _RIGHT: "└",
    _UP | _LEFT: "┘",
    _DOWN | _RIGHT: "┌",
    _DOWN | _LEFT: "┐",
    _UP | _LEFT | _RIGHT: "┴",
    _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}
_STYLED: dict[tuple[int, Style], str] = {
    (_UP | _DOWN, "fault"): "┆",
    (_LEFT | _RIGHT, "fault"): "┄",
    (_UP | _DOWN, "down"): "x",
    (_LEFT | _RIGHT, "down"): "x",
}
_ASCII = str.maketrans({**dict.fromkeys("└┘┌┐┴┬┼", "+"), **dict(zip("│─┆┄", "|-:=", strict=True))})


class TooLargeError(Exception):
    """The plan does not fit: it has to be summarised."""


class Canvas:
    """Characters by place, and strokes that merge where they meet."""

    def __init__(self) -> None:
        self._strokes: dict[tuple[int, int], tuple[int, Style]] = {}
        self._text: dict[tuple[int, int], str] = {}
        self._joints: dict[tuple[int, int], int] = {}

    def write(self, row: int, column: int, text: str) -> None:
        for i, character in enumerate(text):
            self._text[row, column + i] = character

    def stroke(self, row: int, column: int, bits: int, style: Style) -> None:
        """Add a stroke to a cell; where two styles cross neither shows."""
        before, old = self._strokes.get((row, column), (0, style))
        self._strokes[row, column] = (before | bits, style if style == old else "")

    def join(self, row: int, column: int, bits: int) -> None:
        """Let a box's frame, if there is one at this place in the end, open for a link."""
        self._joints[row, column] = bits

    def vertical(self, column: int, top: int, bottom: int, style: Style) -> None:
        """A stroke through the rows from `top` to `bottom`, both included."""
        for row in range(top, bottom + 1):
            self.stroke(row, column, _UP | _DOWN, style)

    def horizontal(self, row: int, left: int, right: int, style: Style) -> None:
        """A stroke between two columns, both excluded."""
        for column in range(left + 1, right):
            self.stroke(row, column, _LEFT | _RIGHT, style)

    def box(self, row: int, left: int, width: int, name: str) -> None:
        """Three rows with a name in the middle."""
        right = left + width - 1
        for y, bits in ((row, _DOWN), (row + 2, _UP)):
            self.stroke(y, left, bits | _RIGHT, "node")
            self.stroke(y, right, bits | _LEFT, "node")
            self.horizontal(y, left, right, "node")
        for x in (left, right):
            self.stroke(row + 1, x, _UP | _DOWN, "node")
        self.write(row + 1, left + (width - len(name)) // 2, name)

    def lines(self) -> list[Line]:
        places = [*self._strokes, *self._text]
        widths: dict[int, int] = collections.defaultdict(int)
        for row, column in places:
            widths[row] = max(widths[row], column + 1)
        return [self._line(row, widths[row]) for row in range(1 + max(row for row, _ in places))]

    def _line(self, row: int, width: int) -> Line:
        runs: Line = []
        for column in range(width):
            character, style = self._cell(row, column)
            if runs and runs[-1][1] == style:
                runs[-1] = (runs[-1][0] + character, style)
            else:
                runs.append((character, style))
        return runs

    def _cell(self, row: int, column: int) -> tuple[str, Style]:
        if (row, column) in self._text:
            return self._text[row, column], "node"
        bits, style = self._strokes.get((row, column), (0, ""))
        if bits == _LEFT | _RIGHT:
            bits |= self._joints.get((row, column), 0)
        return _STYLED.get((bits, style)) or _STROKES.get(bits, " "), style


@dataclasses.dataclass(slots=True)
class _Shape:
    """A node's place in its row; a host is its bare name."""

    node: Node
    width: int
    left: int = 0

    @property
    def inner(self) -> range:
        edge = 0 if self.node.is_host else 1
        return range(self.left + edge, self.left + self.width - edge)

    @property
    def middle(self) -> float:
        return self.left + (self.width - 1) / 2


@dataclasses.dataclass(slots=True)
class _Net:
    """A link's way through a channel: a column at either end, and a track if they differ."""

    style: Style
    lower: int
    upper: int
    loop: bool = False  # both ends are below
    track: int = 0

    @property
    def straight(self) -> bool:
        return self.lower == self.upper

    @property
    def span(self) -> tuple[int, int]:
        return min(self.lower, self.upper), max(self.lower, self.upper)


def draw(plan: Plan, marks: Marks, columns: int) -> list[Line]:
    """The picture. TooLargeError if it is wider than `columns` or needs too many tracks."""
    tiers = rows(plan)
    shapes = _shapes(plan, tiers, columns)
    canvas = Canvas()
    row = 0
    for i, tier in enumerate(tiers):
        nets = _nets(plan, marks, shapes, tier[0].tier)
        tracks = _assign_tracks(nets)
        if tracks > MOST_TRACKS:
            raise TooLargeError
        height = max(tracks, 1) if i else tracks
        _draw_channel(canvas, nets, row, height)
        row = _draw_row(canvas, [shapes[node.name] for node in tier], row + height)
    return canvas.lines()


def ascii_only(lines: Iterable[Line]) -> list[Line]:
    return [[(text.translate(_ASCII), style) for text, style in line] for line in lines]


# --- Rows --------------------------------------------------------------------------------------


def _shapes(plan: Plan, tiers: Sequence[Sequence[Node]], columns: int) -> dict[str, _Shape]:
    up, down = _ends(plan)
    made = [
        [_Shape(node, _width(node, up[node.name], down[node.name])) for node in tier]
        for tier in tiers
    ]
    total = max(sum(shape.width for shape in row) + _GAP * (len(row) - 1) for row in made)
    if total > columns:
        raise TooLargeError
    for row in made:
        _spread(row, total)
    return {shape.node.name: shape for row in made for shape in row}


def _ends(plan: Plan) -> tuple[collections.Counter[str], collections.Counter[str]]:
    tiers = {node.name: node.tier for node in plan.nodes}
    up: collections.Counter[str] = collections.Counter()
    down: collections.Counter[str] = collections.Counter()
    for link in plan.links:
        for _, near, far in link.halves:
            side = down if tiers[far.node] < tiers[near.node] else up
            side[near.node] += 1
    return up, down


def _width(node: Node, up: int, down: int) -> int:
    if node.is_host:
        return max(len(node.name), 2 * up - 1)
    return max(len(node.name) + 4, 2 * up + 1, 2 * down + 3)


def _spread(row: Sequence[_Shape], total: int) -> None:
    """Middles at equal distances, or closer if that would let neighbours touch."""
    end = 0
    for i, shape in enumerate(row):
        middle = total * (2 * i + 1) / (2 * len(row))
        shape.left = max(end, round(middle - shape.width / 2))
        end = shape.left + shape.width + _GAP
    overhang = end - _GAP - total
    for shape in reversed(row):  # what was pushed over the edge goes back
        if overhang <= 0:
            break
        limit = total - shape.width
        shape.left, total = min(shape.left, limit), min(shape.left, limit) - _GAP


def _draw_row(canvas: Canvas, row: Sequence[_Shape], top: int) -> int:
    for shape in row:
        if shape.node.is_host:
            start = shape.left + (shape.width - len(shape.node.name)) // 2
            canvas.write(top, start, shape.node.name)
        else:
            canvas.box(top, shape.left, shape.width, shape.node.name)
    return top + max(1 if shape.node.is_host else 3 for shape in row)


# --- Channels ----------------------------------------------------------------------------------


def _nets(plan: Plan, marks: Marks, shapes: Mapping[str, _Shape], tier: int) -> list[_Net]:
    links = [link for link in plan.links if _channel(link, shapes) == tier]
    tops = _tops(links, shapes, tier)
    taken = set(tops.values())
    upper = _bottoms(links, shapes, tops, taken, tier)
    nets = []
    for link in links:
        lower = [
            tops[link.index, end.node] for end in (link.a, link.b) if (link.index, end.node) in tops
        ]
        loop = len(lower) == 2
        far = lower[1] if loop else upper[link.index]
        nets.append(_Net(style(link, marks), lower[0], far, loop))
    return nets


def _channel(link: Link, shapes: Mapping[str, _Shape]) -> int:
    return min(shapes[end.node].node.tier for end in (link.a, link.b))


def _tops(
    links: Sequence[Link], shapes: Mapping[str, _Shape], tier: int
) -> dict[tuple[int, str], int]:
    """The column of every end at the top of a tier's nodes, by link and node."""
    ends: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
    for link in links:
        for _, near, far in link.halves:
            if shapes[near.node].node.tier == tier:
                ends[near.node].append((shapes[far.node].middle, link.index))
    columns = {}
    for name, wanted in ends.items():
        places = _evenly(shapes[name].inner, len(wanted))
        for column, (_, index) in zip(places, sorted(wanted), strict=True):
            columns[index, name] = column
    return columns


def _evenly(inner: range, count: int) -> list[int]:
    """`count` columns of `inner`, at least two apart."""
    step = max(2, (len(inner) + 1) // (count + 1))
    first = inner.start + (len(inner) - 1 - step * (count - 1)) // 2
    return [first + i * step for i in range(count)]


def _bottoms(
    links: Sequence[Link],
    shapes: Mapping[str, _Shape],
    tops: Mapping[tuple[int, str], int],
    taken: set[int],
    tier: int,
) -> dict[int, int]:
    """The column of every end at the bottom of the tier above, by link: its own or a free one."""
    ends: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
    for link in links:
        for _, near, far in link.halves:
            if shapes[near.node].node.tier > tier:
                ends[near.node].append((tops[link.index, far.node], link.index))
    columns: dict[int, int] = {}
    for name, wanted in ends.items():
        inner = shapes[name].inner
        ideals = _evenly(inner, len(wanted))
        free = [column for column in inner if column not in taken]
        for ideal, (column, index) in zip(ideals, sorted(wanted), strict=True):
            if column not in inner:
                column = min(free, key=lambda each: (abs(each - ideal), each))
                free.remove(column)
            columns[index] = column
    return columns


def _assign_tracks(nets: Sequence[_Net]) -> int:
    """Give each net that is not straight the first track with room; how many there are.

    Loops come last, so that they lie nearest to the row below, where both of their ends are.
    """
    tracks: list[list[tuple[int, int]]] = []
    for net in sorted(nets, key=lambda net: (net.loop, net.span)):
        if net.straight:
            continue
        left, right = net.span
        fits = (all(right < start or left > end for start, end in track) for track in tracks)
        net.track = next((number for number, fit in enumerate(fits) if fit), len(tracks))
        if net.track == len(tracks):
            tracks.append([])
        tracks[net.track].append((left, right))
    return len(tracks)


def _draw_channel(canvas: Canvas, nets: Iterable[_Net], top: int, height: int) -> None:
    for net in nets:
        if net.straight:
            _draw_end(canvas, net.lower, (top, top + height - 1), net, up=True)
            _draw_end(canvas, net.lower, (top, top + height - 1), net, up=False)
            continue
        row = top + net.track
        left, right = net.span
        canvas.horizontal(row, left, right, net.style)
        for column, up in ((net.lower, False), (net.upper, not net.loop)):
            bend = (_RIGHT if column == left else _LEFT) | (_UP if up else _DOWN)
            canvas.stroke(row, column, bend, net.style)
            rows_between = (top, row - 1) if up else (row + 1, top + height - 1)
            _draw_end(canvas, column, rows_between, net, up=up)


def _draw_end(
    canvas: Canvas, column: int, between: tuple[int, int], net: _Net, *, up: bool
) -> None:
    """From a track to the box above it or below it."""
    first, last = between
    canvas.vertical(column, first, last, net.style)
    if up:
        canvas.join(first - 1, column, _DOWN)
    else:
        canvas.join(last + 1, column, _UP)
