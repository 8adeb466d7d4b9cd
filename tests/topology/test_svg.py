# SPDX-License-Identifier: GPL-2.0-or-later
import xml.etree.ElementTree as ET

import pytest

from softroce_lab import topology
from softroce_lab.faults import text
from softroce_lab.faults.effects import Delay, Down, Fault
from softroce_lab.topology import marks, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"
READY = ["two-hosts", "fat-tree-k4", "two-sites", "dual-rail", "star-100"]


def rendered(name, faults=()):
    plan = topology.load(name)
    return plan, svg.render(plan, marks.marks([*plan.faults, *faults], text.text))


def parsed(document):
    return ET.fromstring(document)  # noqa: S314 - our own


@pytest.mark.parametrize("name", READY)
def test_every_node_and_every_link_is_there_once(name):
    plan, document = rendered(name)
    root = parsed(document)
    links = [path for path in root.iter(f"{NAMESPACE}path") if "link" in path.get("class")]
    names = [node.text for node in root.iter(f"{NAMESPACE}text") if node.get("class") == "name"]
    assert len(links) == len(plan.links)
    assert sorted(names) == sorted(node.name for node in plan.nodes)


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


def test_equal_plans_give_equal_bytes():
    assert rendered("fat-tree-k4")[1] == rendered("fat-tree-k4")[1]
