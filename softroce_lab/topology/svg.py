# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as SVG: tiers as rows, hosts at the bottom, faults in colour. Equal input, equal bytes."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from softroce_lab import units
from softroce_lab.plan.locate import arrows, twins
from softroce_lab.plan.plan import Link, Node, Plan
from softroce_lab.topology.marks import Marks, legend, rows, style

_NODE_HEIGHT = 30
_ROW_HEIGHT = 130
_NODE_GAP = 24
_MARGIN = 30
_TWIN_GAP = 28  # between the middles of what bends parallel links apart
_LINE_HEIGHT = 18
_CHARACTER = 7.5  # of the names; an estimate, since no font is at hand
_LABEL_CHARACTER = 6.0
_SMALL_CHARACTER, _LABEL_HEIGHT = 5.6, 12.0  # of what stands at links
_SHARES = (0.32, 0.44, 0.56, 0.26, 0.38, 0.5, 0.62, 0.2, 0.68, 0.74)  # of a link, from below

_STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #1f2937; }
  .title { font-size: 15px; font-weight: 600; }
  .link { fill: none; stroke: #94a3b8; stroke-width: 1.5; }
  .fault { stroke: #d97706; stroke-width: 2.5; }
  .down { stroke: #dc2626; stroke-width: 2.5; stroke-dasharray: 5 4; }
  .node { stroke: #334155; stroke-width: 1.2; }
  .host { fill: #e0f2fe; }
  .kernel { fill: #fef3c7; }
  .switch { fill: #f1f5f9; }
  .name { text-anchor: middle; }
  .label { font-size: 10px; text-anchor: middle; fill: #92400e; stroke: #fff; stroke-width: 3;
           paint-order: stroke; }
  .small { font-size: 11px; fill: #475569; }
"""


class _Point(NamedTuple):
    x: float
    y: float


def render(plan: Plan, marks: Marks) -> str:
    tiers = rows(plan)
    width = max(_row_width(tier) for tier in tiers) + 2 * _MARGIN
    places = _places(tiers, width)
    links = _Links(plan, marks, places)
    notes = [f"{text}: {links}" for text, links in legend(plan, marks)]
    width = max(
        width, 2 * _MARGIN + max((len(note) * _LABEL_CHARACTER for note in notes), default=0.0)
    )
    bottom = max(point.y for point in places.values()) + _NODE_HEIGHT
    height = bottom + _MARGIN + len(notes) * _LINE_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(plan.name)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
            _text(_MARGIN, _MARGIN, plan.name, "title"),
            _text(_MARGIN, _MARGIN + _LINE_HEIGHT, _subtitle(plan), "small"),
            *links.paths(),
            *links.labels(),
            *(_node(node, places[node.name]) for node in plan.nodes),
            *(
                _text(_MARGIN, bottom + (i + 1) * _LINE_HEIGHT, note, "small")
                for i, note in enumerate(notes)
            ),
            "</svg>\n",
        ]
    )


def width(document: str) -> float:
    """Of a document that `render` made, in pixels."""
    return float(document.partition(' width="')[2].partition('"')[0])


def _subtitle(plan: Plan) -> str:
    switches = len(plan.nodes) - len(plan.hosts)
    counts = ((len(plan.hosts), "host"), (switches, "switch"), (len(plan.links), "link"))
    things = ", ".join(units.format_count(number, thing) for number, thing in counts)
    return f"{things}, lb {plan.load_balancing}, MTU {plan.mtu}"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


# --- Nodes -------------------------------------------------------------------------------------


def _node_width(node: Node) -> float:
    return max(52.0, len(node.name) * _CHARACTER + 20)


def _row_width(tier: Sequence[Node]) -> float:
    return (max(_node_width(node) for node in tier) + _NODE_GAP) * len(tier)


def _places(tiers: Sequence[Sequence[Node]], width: float) -> dict[str, _Point]:
    inner = width - 2 * _MARGIN
    places = {}
    for i, tier in enumerate(tiers):
        y = _MARGIN + 4 * _LINE_HEIGHT + _NODE_HEIGHT / 2 + i * _ROW_HEIGHT
        step = inner / len(tier)
        for j, node in enumerate(tier):
            places[node.name] = _Point(round(_MARGIN + (j + 0.5) * step, 1), y)
    return places


def _node(node: Node, at: _Point) -> str:
    width = _node_width(node)
    radius = 12 if node.is_host else 3
    addresses = [port.address for port in node.ports if port.address]
    title = "\n".join([f"{node.kind} {node.name}", *addresses])
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect class="node {node.kind}" x="{at.x - width / 2:g}" y="{at.y - _NODE_HEIGHT / 2:g}" '
        f'width="{width:g}" height="{_NODE_HEIGHT}" rx="{radius}"/>'
        f"{_text(at.x, at.y + 4, node.name, 'name')}</g>"
    )


# --- Links -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Links:
    plan: Plan
    marks: Marks
    places: Mapping[str, _Point]

    @functools.cached_property
    def _twins(self) -> dict[int, list[int]]:
        return twins(self.plan)

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return arrows(self.plan)

    def paths(self) -> Iterator[str]:
        for link in sorted(self.plan.links, key=self._is_faulty):
            lines = [f"{link.a} - {link.b}"]
            for number, _, _ in link.halves:
                if number in self.marks:
                    lines += [f"{self._names[number]}: {t}" for t in self.marks[number].texts]
            kind = f"link {style(link, self.marks)}".strip()
            title = escape("\n".join(lines))
            yield f'<path class="{kind}" d="{self._way(link)}"><title>{title}</title></path>'

    def labels(self) -> Iterator[str]:
        """What links do, on their ways; each at the first of some places where it covers no other.

        Where there is none, on a crowded drawing, at its usual place. A rate and a delay that most
        links have are not repeated at each: the notes below the drawing have them.
        """
        taken: list[_Box] = []
        plain = [link for link in self.plan.links if not self._is_faulty(link)]
        counts = collections.Counter(map(self._label_of_both, plain))
        usual = next((label for label, count in counts.items() if 2 * count > len(plain)), None)
        repeated = {each.index for each in plain if usual and self._label_of_both(each) == usual}
        for link in filter(self._acts, self.plan.links):
            if link.index in repeated:
                continue
            text = self._label(link)
            ways = [self._on_the_way(link, share) for share in (self._share(link), *_SHARES)]
            boxes = [_Box.of(at, text) for at in ways]
            free = (n for n, box in enumerate(boxes) if not any(box.meets(each) for each in taken))
            chosen = next(free, 0)
            taken.append(boxes[chosen])
            yield _text(round(ways[chosen].x, 1), round(ways[chosen].y, 1), text, "label")

    def _acts(self, link: Link) -> bool:
        return any(n in self.marks and self.marks[n].acts for n, _, _ in link.halves)

    def _is_faulty(self, link: Link) -> bool:
        return any(n in self.marks and self.marks[n].is_fault for n, _, _ in link.halves)

    def _label_of_both(self, link: Link) -> str | None:
        """What the link says in both directions; None if they differ."""
        labels = {self.marks[n].label if n in self.marks else "" for n, _, _ in link.halves}
        return labels.pop() if len(labels) == 1 else None

    def _ends(self, link: Link) -> tuple[_Point, _Point]:
        return self.places[link.a.node], self.places[link.b.node]

    def _way(self, link: Link) -> str:
        """A straight line; within a tier, or beside parallel links, a curve."""
        a, b = self._ends(link)
        bend = self._bend(link)
        if not (bend.x or bend.y):
            return f"M{a.x:g} {a.y:g}L{b.x:g} {b.y:g}"
        middle = _Point((a.x + b.x) / 2 + bend.x, (a.y + b.y) / 2 + bend.y)
        return f"M{a.x:g} {a.y:g}Q{middle.x:g} {middle.y:g} {b.x:g} {b.y:g}"

    def _bend(self, link: Link) -> _Point:
        """How far the middle of a link is pulled aside, so that each is seen."""
        a, b = self._ends(link)
        place, count = self._among_twins(link)
        aside = (place - (count - 1) / 2) * _TWIN_GAP
        if a.y == b.y:
            return _Point(0, -min(70.0, abs(a.x - b.x) * 0.35) + aside)
        return _Point(aside, 0)

    def _among_twins(self, link: Link) -> tuple[int, int]:
        """The place of a link among those that join the same nodes, and how many they are."""
        group = self._twins.get(link.index, [link.index])
        return group.index(link.index), len(group)

    def _on_the_way(self, link: Link, share: float) -> _Point:
        """The point of a link that lies so far along it from its lower end."""
        a, b = self._ends(link)
        (lower, upper) = (a, b) if a.y > b.y else (b, a)
        bend = self._bend(link)
        aside = 2 * share * (1 - share)  # of the curve's control point
        x = lower.x + (upper.x - lower.x) * share + bend.x * aside
        y = lower.y + (upper.y - lower.y) * share + bend.y * aside - (4 if a.y == b.y else 0)
        return _Point(x, y)

    def _share(self, link: Link) -> float:
        """How far along a link its label is, so that labels of a mesh and of twins are apart."""
        a, b = self._ends(link)
        place, count = self._among_twins(link)
        if a.y == b.y:
            return 0.5
        return (
            (0.32, 0.44, 0.56)[link.index % 3] if count == 1 else 0.2 + 0.6 * (place + 0.5) / count
        )

    def _label(self, link: Link) -> str:
        """One text if both directions do the same, else each with an arrow; ports of twins.

        Only faults, if there are any.
        """
        a, b = self._ends(link)
        marks = ((n, self.marks[n]) for n, _, _ in link.halves if n in self.marks)
        acting = {n: mark for n, mark in marks if mark.acts}
        faulty = {n: mark for n, mark in acting.items() if mark.is_fault}
        found = {n: mark.label for n, mark in (faulty or acting).items()}
        if len(found) == 2 and len(set(found.values())) == 1:
            text = next(iter(found.values()))
        else:
            arrow = "↑↓" if a.y > b.y else "↓↑" if a.y < b.y else "→←" if a.x < b.x else "←→"
            text = " ".join(f"{arrow[number & 1]} {label}" for number, label in found.items())
        return f"{link.a.name}-{link.b.name} {text}" if link.index in self._twins else text


class _Box(NamedTuple):
    left: float
    right: float
    y: float

    @classmethod
    def of(cls, at: _Point, text: str) -> _Box:
        half = len(text) * _SMALL_CHARACTER / 2
        return cls(at.x - half, at.x + half, at.y)

    def meets(self, other: _Box) -> bool:
        apart = self.right < other.left or other.right < self.left
        return not apart and abs(self.y - other.y) < _LABEL_HEIGHT
