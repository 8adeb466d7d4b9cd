# SPDX-License-Identifier: GPL-2.0-or-later
"""The plain redirect programs: one path, both ways, and the lab's own programs again after that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softroce_lab.bench import plain_redirect
from softroce_lab.errors import UserError
from softroce_lab.paths import TOPOLOGIES
from softroce_lab.topology import loader
from tests.fabric.xdp_rig import Rig, roce


@pytest.fixture(scope="module", params=["native", "generic"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    plan = loader.load(TOPOLOGIES / "leaf-spine.yaml")
    rig = Rig(plan, request.param, tmp_path_factory.mktemp("xdp"))
    plain_redirect.load(plan, rig.bpffs)
    yield rig
    rig.close()


def exchange(rig: Rig, source: str, destination: str) -> list[bytes]:
    """What arrives of one frame."""
    with rig.tap(source) as sender, rig.tap(destination) as receiver:
        sender.send(roce(rig.address(source), rig.address(destination), dport=7))
        for _ in range(200):
            if frames := receiver.received():
                return frames
        rig.settle()
        return receiver.received()


def test_frames_cross_unchanged_both_ways_and_uncounted(rig):
    rig.refresh()
    arrivals = plain_redirect.attach(rig.plan, rig.enter, rig.bpffs, ("h1", "h4"), rig.mode)
    assert [rig.plan.node(port.node).tier for port in arrivals] == [1, 2, 1]
    for source, destination in (("h1", "h4"), ("h4", "h1")):
        (frame,) = exchange(rig, source, destination)
        assert frame == roce(rig.address(source), rig.address(destination), dport=7)
    assert rig.total("rx_packets") == 0

    rig.xdp.attach_programs(rig.plan.nodes, rig.enter, rig.mode)
    (frame,) = exchange(rig, "h1", "h4")
    assert frame[22] == 64 - 3
    assert rig.total("no_route") == 0
    assert rig.total("tx_packets") >= 3


def test_a_path_to_nowhere_is_an_error(rig):
    with pytest.raises(UserError, match="no path"):
        plain_redirect.attach(rig.plan, rig.enter, rig.bpffs, ("h1", "leaf2"), rig.mode)
