# SPDX-License-Identifier: GPL-2.0-or-later
"""Links that go down and come up by a timeline: what routes are written, and when; no lab."""

import dataclasses
from types import SimpleNamespace

import pytest

from softroce_lab import topology
from softroce_lab.fabric import fault_lock
from softroce_lab.fabric.daemons import control_plane
from softroce_lab.fabric.daemons.control_plane import ControlPlane
from softroce_lab.fabric.faults import FaultControl
from softroce_lab.fabric.ledger import planfile
from softroce_lab.plan.effects import Down, Fault, Window
from softroce_lab.topology import routing

MS = 10**6
EPOCH_NS = 10**12
PLAN = topology.load("leaf-spine")
(UPLINK,) = (n for n, near, far in PLAN.halves if (near.node, far.node) == ("leaf1", "spine1"))
AROUND = routing.around(PLAN, {UPLINK // 2})


class Xdp:
    """Notes what is written."""

    def __init__(self):
        self.timeline = SimpleNamespace(epoch_ns=EPOCH_NS)
        self.written = []

    def restart(self, epoch_ns):
        self.timeline.epoch_ns = epoch_ns

    def set_routes(self, plan, routes):
        self.written.append(tuple(routes))


@pytest.fixture
def xdp(monkeypatch):
    made = Xdp()
    monkeypatch.setattr(control_plane.XdpFabric, "open", lambda _: made)
    return made


@pytest.fixture
def follow(tmp_path, xdp):
    """A lab whose one link is down in a window, and what follows it."""

    def begin(window):
        fault_lock.create(tmp_path)
        down = Fault("flap", 0, UPLINK, "identity", 1, Down(), window=window)
        planfile.write(dataclasses.replace(PLAN, faults=(down,)), tmp_path)
        return ControlPlane(tmp_path, tmp_path / "bpf")

    return begin


FLAPPING = Window(100 * MS, 100 * MS, 300 * MS)


@pytest.mark.parametrize(
    ("at_ns", "seconds"),
    [
        (0, 0.02),  # a restart may come before the first turn
        (95 * MS, 0.005),
        (198 * MS, 0.002),
        (100 * MS - 1, 0.001),  # between two steps it rests
    ],
)
def test_it_sleeps_until_the_next_turn(follow, at_ns, seconds):
    assert follow(FLAPPING).step(EPOCH_NS + at_ns) == pytest.approx(seconds)


def test_windows_too_short_to_follow_leave_time_to_rest(follow):
    plane = follow(Window(0, 50_000, 100_000))
    assert min(plane.step(EPOCH_NS + n * 25_000) for n in range(40)) >= 0.001


def test_only_routes_that_change_are_written(follow, xdp):
    plane = follow(FLAPPING)
    for at_ms in (0, 50, 150, 250, 450):
        plane.step(EPOCH_NS + at_ms * MS)
    first, *later = xdp.written
    changed = set(AROUND) - set(PLAN.routes)
    assert first == PLAN.routes
    assert [set(routes) <= changed for routes in later] == [True, False, True]
    assert [len(routes) for routes in later] == [len(changed)] * 3


def test_a_timeline_that_begins_again_leads_routes_anew(follow, xdp, tmp_path):
    """Here around a link that is down from its beginning on."""
    follow(Window(0, 100 * MS))
    FaultControl(tmp_path, xdp, None).restart(EPOCH_NS + 5)
    assert xdp.timeline.epoch_ns == EPOCH_NS + 5
    assert xdp.written == [AROUND]
