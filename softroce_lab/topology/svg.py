# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as SVG: tiers as rows, hosts at the bottom, faults in colour. Equal input, equal bytes."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from softroce_lab import units
from softroce_lab.plan.locate import arrows, twins
from softroce_lab.plan.plan import Link, Node, Plan
from softroce_lab.topology.layout import Marks, rows
from softroce_lab.topology.marks import legend

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
    """The whole document."""
    tiers = rows(plan)
    width = max(_row_width(tier) for tier in tiers) + 2 * _MARGIN
    places = _places(tiers, width)
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
            *(_link(plan, link, marks, places) for link in _faulted_last(plan, marks)),
            *_labels(plan, marks, places),
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
    """The middle of every node; each row is spread evenly."""
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


def _marked(link: Link, marks: Marks) -> bool:
    return any(number in marks and marks[number].acts for number, _, _ in link.halves)


def _is_faulty(link: Link, marks: Marks) -> bool:
    return any(number in marks and marks[number].is_fault for number, _, _ in link.halves)


def _faulted_last(plan: Plan, marks: Marks) -> list[Link]:
    """What comes last is painted over the others."""
    return sorted(plan.links, key=lambda link: _is_faulty(link, marks))


def _link(plan: Plan, link: Link, marks: Marks, places: Mapping[str, _Point]) -> str:
    found = [marks[number] for number, _, _ in link.halves if number in marks]
    style = (
        " down"
        if any(mark.down for mark in found)
        else " fault"
        if any(mark.is_fault for mark in found)
        else ""
    )
    lines = [f"{link.a} - {link.b}"]
    names = arrows(plan)
    for number, _, _ in link.halves:
        if number in marks:
            lines += [f"{names[number]}: {text}" for text in marks[number].texts]
    title = escape("\n".join(lines))
    return f'<path class="link{style}" d="{_way(plan, link, places)}"><title>{title}</title></path>'


def _way(plan: Plan, link: Link, places: Mapping[str, _Point]) -> str:
    """A straight line; within a tier, or beside parallel links, a curve."""
    a, b = places[link.a.node], places[link.b.node]
    bend = _bend(plan, link, a, b)
    if not (bend.x or bend.y):
        return f"M{a.x:g} {a.y:g}L{b.x:g} {b.y:g}"
    middle = _Point((a.x + b.x) / 2 + bend.x, (a.y + b.y) / 2 + bend.y)
    return f"M{a.x:g} {a.y:g}Q{middle.x:g} {middle.y:g} {b.x:g} {b.y:g}"


def _bend(plan: Plan, link: Link, a: _Point, b: _Point) -> _Point:
    """How far the middle of a link is pulled aside, so that each is seen."""
    place, count = _among_twins(plan, link)
    aside = (place - (count - 1) / 2) * _TWIN_GAP
    if a.y == b.y:
        return _Point(0, -min(70.0, abs(a.x - b.x) * 0.35) + aside)
    return _Point(aside, 0)


def _among_twins(plan: Plan, link: Link) -> tuple[int, int]:
    """The place of a link among those that join the same nodes, and how many they are."""
    group = twins(plan).get(link.index, [link.index])
    return group.index(link.index), len(group)


def _labels(plan: Plan, marks: Marks, places: Mapping[str, _Point]) -> Iterator[str]:
    """What links do, on their ways; each at the first of some places where it covers no other.

    Where there is none, on a crowded drawing, at its usual place. A rate and a delay that most
    links have are not repeated at each: the notes below the drawing have them.
    """
    taken: list[_Box] = []
    usual = _usual_label(plan, marks)
    for link in plan.links:
        if not _marked(link, marks):
            continue
        label = None if _is_faulty(link, marks) else _label_of_both(link, marks)
        if label is not None and label == usual:
            continue
        text = _words(plan, link, marks, places)
        first = _share(plan, link, level=places[link.a.node].y == places[link.b.node].y)
        ways = [_on_the_way(plan, link, places, share) for share in (first, *_SHARES)]
        boxes = [_box(at, text) for at in ways]
        free = (n for n, box in enumerate(boxes) if not any(box.meets(each) for each in taken))
        chosen = next(free, 0)
        taken.append(boxes[chosen])
        at = ways[chosen]
        yield _text(round(at.x, 1), round(at.y, 1), text, "label")


def _usual_label(plan: Plan, marks: Marks) -> str | None:
    """What more than half of the links without a fault say; None: no such label."""
    links = [link for link in plan.links if not _is_faulty(link, marks)]
    counts = collections.Counter(_label_of_both(link, marks) for link in links)
    return next((label for label, count in counts.items() if 2 * count > len(links)), None)


def _label_of_both(link: Link, marks: Marks) -> str | None:
    """What the link says in both directions; None if they differ."""
    labels = {marks[number].label if number in marks else "" for number, _, _ in link.halves}
    return labels.pop() if len(labels) == 1 else None


class _Box(NamedTuple):
    left: float
    right: float
    y: float

    def meets(self, other: _Box) -> bool:
        """Whether two lines of text cover each other."""
        apart = self.right < other.left or other.right < self.left
        return not apart and abs(self.y - other.y) < _LABEL_HEIGHT


def _box(at: _Point, text: str) -> _Box:
    half = len(text) * _SMALL_CHARACTER / 2
    return _Box(at.x - half, at.x + half, at.y)


def _words(plan: Plan, link: Link, marks: Marks, places: Mapping[str, _Point]) -> str:
    """What the link does; with its ports beside parallel links."""
    text = _label_text(link, marks, places[link.a.node], places[link.b.node])
    return f"{link.a.name}-{link.b.name} {text}" if link.index in twins(plan) else text


def _on_the_way(plan: Plan, link: Link, places: Mapping[str, _Point], share: float) -> _Point:
    """The point of a link that lies so far along it from its lower end."""
    a, b = places[link.a.node], places[link.b.node]
    (lower, upper) = (a, b) if a.y > b.y else (b, a)
    bend = _bend(plan, link, a, b)
    aside = 2 * share * (1 - share)  # of the curve's control point
    x = lower.x + (upper.x - lower.x) * share + bend.x * aside
    y = lower.y + (upper.y - lower.y) * share + bend.y * aside - (4 if a.y == b.y else 0)
    return _Point(x, y)


def _share(plan: Plan, link: Link, *, level: bool) -> float:
    """How far along a link its label stands, so that labels of a mesh and of twins stay apart."""
    place, count = _among_twins(plan, link)
    if level:
        return 0.5
    return (0.32, 0.44, 0.56)[link.index % 3] if count == 1 else 0.2 + 0.6 * (place + 0.5) / count


def _label_text(link: Link, marks: Marks, a: _Point, b: _Point) -> str:
    """One text if both directions do the same, else each with an arrow; only faults, if any."""
    acting = {n: marks[n] for n, _, _ in link.halves if n in marks and marks[n].acts}
    faulty = {n: mark for n, mark in acting.items() if mark.is_fault}
    found = {n: mark.label for n, mark in (faulty or acting).items()}
    if len(found) == 2 and len(set(found.values())) == 1:
        return next(iter(found.values()))
    arrows = "↑↓" if a.y > b.y else "↓↑" if a.y < b.y else "→←" if a.x < b.x else "←→"
    return " ".join(f"{arrows[number & 1]} {label}" for number, label in found.items())
