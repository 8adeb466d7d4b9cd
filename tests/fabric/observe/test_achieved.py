# SPDX-License-Identifier: GPL-2.0-or-later
"""What faults of a lab that is up have done; tests/cli/test_fault.py has real labs."""

import time
import types

from softroce_lab import topology
from softroce_lab.fabric.daemons.wire_layout import Histogram, LinkFigures
from softroce_lab.fabric.observe import achieved
from softroce_lab.faults.live import parse_impairments, set_on
from softroce_lab.faults.resolve import links_of


def figures(**counts):
    none = dict.fromkeys(LinkFigures._fields, 0)
    times = {"late": Histogram((0, 0)), "residence": Histogram((0, 0))}
    return LinkFigures(**none | times | counts)


def test_of_a_shaped_link_what_was_before_its_shape_does_not_count():
    plan = topology.load("leaf-spine")
    (link,) = links_of(plan, "leaf1->spine1")
    plan = set_on(plan, [link], parse_impairments(["rate", "200Mbit", "limit", "100"]))
    timeline = types.SimpleNamespace(epoch_ns=time.monotonic_ns())
    xdp = types.SimpleNamespace(timeline=timeline, hits=dict)
    stage = types.SimpleNamespace(
        base=lambda _: figures(dropped_limit=5, released=3, last_ns=100, released_bytes=1000),
        link=lambda _: figures(dropped_limit=7, released=9, last_ns=200, released_bytes=1500),
    )
    (found,) = (each for each in achieved.look(plan, xdp, stage, [link]) if each.wire)
    document = found.document()["achieved"]
    assert (document["dropped"], document["rate_bps"]) == (2, 40e9)
