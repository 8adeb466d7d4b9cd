# SPDX-License-Identifier: GPL-2.0-or-later
"""A drawing is right if following its lines from box to box finds the plan's links."""

import collections

import pytest

from softroce_lab import topology
from softroce_lab.topology import drawing
from softroce_lab.topology.marks import Mark

READY = ["two-hosts", "leaf-spine", "fat-tree-k4", "dumbbell", "two-sites", "dual-rail",
         "parallel-paths", "leaf-spine-adaptive"]  # fmt: skip

STEPS = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
ARMS = {"│": "ud", "─": "lr", "└": "ur", "┘": "ul", "┌": "dr", "┐": "dl", "┆": "ud", "┄": "lr"}
BACK = {"u": "d", "d": "u", "l": "r", "r": "l"}


def draw(name, marks=None, columns=200):
    return ["".join(text for text, _ in line)
            for line in drawing.draw(topology.load(name), marks or {}, columns)]  # fmt: skip


def cell(lines, row, column):
    inside = 0 <= row < len(lines) and 0 <= column < len(lines[row])
    return lines[row][column] if inside else " "


def places(lines, plan):
    """(row, column) -> node, for every column of a node at its upper and its lower edge."""
    found = {}
    for node in plan.nodes:
        for row, line in enumerate(lines):
            words = line.replace("│", " ").split()
            if node.name not in words:
                continue
            start = f" {line} ".replace("│", " ").index(f" {node.name} ")
            if node.kind == "host":
                middle = start + (len(node.name) - 1) / 2
                for column in range(int(middle) - 2, int(middle) + 4):
                    if cell(lines, row - 1, column) in "│┆┌┐┼" and abs(column - middle) < 2:
                        found[row, column] = node.name
            else:
                left, right = line.rindex("│", 0, start + 1), line.index("│", start + 1)
                for column in range(left + 1, right):
                    found[row - 1, column] = found[row + 1, column] = node.name
    return found


def followed(lines, plan):
    """How often a line leads from one node to another."""
    at = places(lines, plan)
    ends = collections.Counter()
    for (row, column), name in at.items():
        host = plan.node(name).kind == "host"
        heading = "u" if host else {"┬": "d", "┴": "u"}.get(cell(lines, row, column))
        if heading:
            ends[frozenset((name, follow(lines, at, row, column, heading)))] += 1
    return {pair: count // 2 for pair, count in ends.items()}


def follow(lines, at, row, column, heading):
    while True:
        step = STEPS[heading]
        row, column = row + step[0], column + step[1]
        if (row, column) in at:
            return at[row, column]
        character = cell(lines, row, column)
        if character != "┼":
            (heading,) = ARMS[character].replace(BACK[heading], "", 1)


@pytest.mark.parametrize("name", READY)
def test_the_lines_are_the_links(name):
    plan = topology.load(name)
    wanted = collections.Counter(frozenset((link.a.node, link.b.node)) for link in plan.links)
    assert followed(draw(name), plan) == wanted


def test_faults_and_links_that_are_down_look_different():
    plan = topology.load("two-hosts")
    faulted = draw("two-hosts", {0: Mark(("loss",), "loss")})
    down = draw("two-hosts", {1: Mark(("down",), "down", down=True)})
    clean = draw("two-hosts")
    assert sum(line.count("┆") for line in faulted) > 0
    assert sum(line.count("x") for line in down) > 0
    assert not any(set(line) & set("┆┄x") for line in clean)
    assert len(plan.links) == 2


def test_ascii_is_ascii_and_of_the_same_shape():
    lines = drawing.draw(topology.load("leaf-spine"), {8: Mark(("loss",), "loss")}, 100)
    plain = ["".join(text for text, _ in line) for line in drawing.ascii_only(lines)]
    assert all(line.isascii() for line in plain)
    assert [len(line) for line in plain] == [sum(len(text) for text, _ in line) for line in lines]
    assert set(":=") & set("".join(plain))


@pytest.mark.parametrize(("name", "columns"), [("star-100", 200), ("leaf-spine", 15)])
def test_what_does_not_fit_is_refused(name, columns):
    with pytest.raises(drawing.TooLargeError):
        draw(name, columns=columns)
