# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the wire stage, and the shapes that it is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native, topology
from softroce_lab.errors import UserError
from softroce_lab.fabric.daemons import wire
from softroce_lab.fabric.daemons.wire_layout import Histogram, LinkFigures
from tests.wire.shapes import delay, packed, queue, reorder


def held_for(ns: int) -> Histogram:
    """What a link notes of one frame that it held for so long."""
    link = _native.ShapedLink()
    link.shape(packed(delay(ns)))
    link.offer(0, 1, 1000)
    link.departures()
    link.release()
    return LinkFigures.unpack(link.figures()).residence


@given(st.integers(0, 2**40 - 1))
def test_a_duration_is_read_back_to_within_the_error_that_is_told(ns):
    read = held_for(ns).percentile(50)
    assert abs(read - ns) <= ns * Histogram.ERROR
    assert Histogram.ERROR == 1 / 32


def test_percentiles_are_those_of_the_sorted_durations():
    counts = np.zeros(592, np.uint64)
    counts[[3, 5, 7]] = 90, 9, 1
    histogram = Histogram(counts)
    assert [histogram.percentile(p) for p in (0, 50, 90, 90.1, 99, 99.1, 100)] == [
        3, 3, 3, 5, 5, 7, 7,
    ]  # fmt: skip
    assert (histogram - histogram).percentile(50) is None


def test_the_layout_is_that_of_the_native_side():
    """What Python packs is what the link does, by every field."""
    link = _native.ShapedLink()
    link.shape(
        packed(
            delay(1),
            delay(7_000),
            queue(8_000_000, limit_bytes=3000, limit_packets=3, ecn_packets=1, trim=True),
            reorder(50),
        )
    )
    assert [link.offer(0, n, 1000, 100, ecn_capable=True) for n in range(5)] == [True] * 5
    link.advance(10**12)
    gone = link.departures()
    assert [entry[0] for entry in gone] == [0, 4, 1, 2, 3]
    assert [entry[2] for entry in gone] == [False, False, False, True, True]
    assert [entry[3] for entry in gone] == [False, True, False, False, False]
    assert gone[0][4] == 1_000_000_000 + 7_000_000


def test_ports_that_need_a_socket():
    plan = topology.load("leaf-spine")
    halves = {half[0]: half for link in plan.links for half in link.halves}
    host_up = next(n for n, near, _ in halves.values() if near.node == "h1")
    leaf = halves[host_up][2].node
    assert {port.node for port in wire.ports_for(plan, {host_up})} == {leaf}
    assert len(wire.ports_for(plan, {host_up})) == len(plan.node(leaf).ports)
    spine_down = next(n for n, near, far in halves.values() if near.node == "spine1")
    assert {port.node for port in wire.ports_for(plan, {spine_down})} == {"spine1"}
    assert wire.ports_for(plan, ()) == []


GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "spare"),
    [(64 * GIB, 131_072), (4 * GIB, 65_536), (GIB // 8, 2048), (GIB // 64, 2048)],
)
def test_the_pool_is_what_is_wanted_and_room_for_changes(monkeypatch, free, spare):
    monkeypatch.setattr(wire, "available_bytes", lambda: free)
    assert wire.pool(0, spare_ports=80) == (spare, 256)  # no lab is refused for what it may want


def test_what_a_plan_needs_comes_first(monkeypatch):
    monkeypatch.setattr(wire, "available_bytes", lambda: 4 * GIB)
    assert wire.pool(2, 1000) == (1000 + 2 * (2048 + 256) + 65_536, 2048)
    with pytest.raises(UserError, match="memory are free"):
        wire.pool(0, frames=1 << 20)
