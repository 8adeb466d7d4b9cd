# SPDX-License-Identifier: GPL-2.0-or-later
import functools
import xml.etree.ElementTree as ET

import pytest

from softroce_lab import topology
from softroce_lab.faults import lines
from softroce_lab.plan.effects import Delay, Down, Fault, Window
from softroce_lab.topology import marks, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"
READY = ["two-hosts", "fat-tree-k4", "two-sites", "dual-rail", "star-100"]


def rendered(name, faults=()):
    plan = topology.load(name)
    return plan, svg.render(plan, marks.marks([*plan.faults, *faults], lines.texts))


def parsed(document):
    return ET.fromstring(document)  # noqa: S314 - our own


@pytest.mark.parametrize("name", READY)
def test_nodes_lie_inside_and_apart(name):
    root = parsed(rendered(name)[1])
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [
        tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{NAMESPACE}rect")
        if "node" in (rect.get("class") or "")
    ]
    for x, y, w, h in boxes:
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for (x, y, w, _), (x2, y2, _, _) in zip(sorted(boxes, key=lambda b: (b[1], b[0])),
                                           sorted(boxes, key=lambda b: (b[1], b[0]))[1:],
                                           strict=False):  # fmt: skip
        assert y != y2 or x + w < x2


def test_faults_have_a_colour_a_label_and_a_tooltip():
    faults = [
        Fault("a", 0, 0, "identity", 1, Delay(10_000_000, 0, "uniform", True)),
        Fault("b", 1, 2, "identity", 1, Down()),
    ]
    root = parsed(rendered("two-hosts", faults)[1])
    classes = [path.get("class") for path in root.iter(f"{NAMESPACE}path")]
    titles = [path.find(f"{NAMESPACE}title").text for path in root.iter(f"{NAMESPACE}path")]
    labels = [node.text for node in root.iter(f"{NAMESPACE}text") if node.get("class") == "label"]
    assert sorted(classes) == ["link down", "link fault"]
    assert any("h1->s1: delay 10ms" in title for title in titles)
    assert sorted(labels) == ["↑ 10 ms", "↑ down"]


def test_a_fault_that_does_not_act_now_has_no_colour():
    over = Fault("a", 0, 0, "identity", 1, Down(), window=Window(0, 10))
    plan = topology.load("two-hosts")
    root = parsed(
        svg.render(plan, marks.marks([over], functools.partial(lines.texts, now_ns=10), 10))
    )
    assert {path.get("class") for path in root.iter(f"{NAMESPACE}path")} == {"link"}
    assert "(over)" in "".join(root.itertext())


@pytest.mark.parametrize("name", ["leaf-spine", "clos", "fat-tree-k4"])
def test_texts_of_links_do_not_cover_each_other(name):
    """On a mesh whose links between switches all have one, though the links cross."""
    plan = topology.load(name)
    hosts = {node.name for node in plan.hosts}
    core = [link for link in plan.links if not {link.a.node, link.b.node} & hosts]
    slow = Delay(10_000_000, 0, "uniform", True)
    faults = [
        Fault(f"f{number}", number, number, "identity", 1, slow)
        for link in core
        for number, _, _ in link.halves
    ]
    root = parsed(svg.render(plan, marks.marks(faults, lines.texts)))
    boxes = [
        (float(text.get("x")), float(text.get("y")), 5.6 * len(text.text))
        for text in root.iter(f"{NAMESPACE}text")
        if text.get("class") == "label"
    ]
    assert len(boxes) == len(core) > 3
    for number, (x, y, width) in enumerate(boxes):
        for x2, y2, width2 in boxes[:number]:
            assert abs(y - y2) >= 12 or abs(x - x2) >= (width + width2) / 2


def test_a_rate_and_a_delay_of_the_topology_are_no_fault():
    """Nor are they written at each link, where most have the same; a fault on one is."""
    shape = Delay(1_000, 0, "uniform", True)
    plan = topology.load("leaf-spine")
    faults = [
        Fault("link:delay", 0, number, "identity", 1, shape)
        for link in plan.links for number, _, _ in link.halves
    ]  # fmt: skip
    faults.append(Fault("a", 1, 3, "identity", 1, Down()))
    root = parsed(svg.render(plan, marks.marks(faults, lines.texts)))
    classes = [path.get("class") for path in root.iter(f"{NAMESPACE}path")]
    labels = [node.text for node in root.iter(f"{NAMESPACE}text") if node.get("class") == "label"]
    assert classes.count("link") == len(plan.links) - 1
    assert labels == ["↓ down"]
