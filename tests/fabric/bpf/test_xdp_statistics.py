# SPDX-License-Identifier: GPL-2.0-or-later
"""The statistics of tests/xdp/test_statistics.py through the real XDP path.

Frames go in batches that overflow no queue of the kernel's, so each meets the rules, in its turn:
the BPF build has to hit exactly the packets that the user-space build hits, in number and in runs.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest

from benchmarks.traffic import HEADERS_BYTES, INDEX_OFFSET
from softroce_lab import _native
from softroce_lab.faults.layout import Hits, link_rules
from softroce_lab.plan.effects import Effect, Fault, FaultKey, stream_key
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, number, roce
from tests.xdp.chains import Counts, Model, bounds
from tests.xdp.packets import packet as native_packet
from tests.xdp.test_statistics import MODELS, weights

PACE = 500_000.0  # frames a second, while a batch lasts
PATIENCE_S = 60.0
SHORT = {1e-4: 20, 1e-2: 10, 0.3: 10}  # messages of MESSAGE_PACKETS packets
FULL = {1e-4: 2000, 1e-2: 400, 0.3: 400}
CONFIDENCE = 0.999  # of all cells together
ALPHA = (1 - CONFIDENCE) / (len(MODELS) * len(FULL) * 2) / 2


def sender(rig: Rig) -> _native.RawPort:
    port = rig.plan.node("h1").ports[0]
    config = _native.PortConfig()
    config.interface, config.ifindex = port.name, port.ifindex
    with rig.enter("h1"):
        return _native.RawPort(config)


def send(rig: Rig, messages: int) -> None:
    """Every packet of so many messages from h1 to h2; each has reached the switch on return."""
    uplink = next(far.ifindex for _, near, far in directed_links(rig.plan.links)
                  if near.node == "h1")  # fmt: skip
    port = sender(rig)
    with listening(rig, "h2"):
        for message in range(messages):
            header = lab_header(message=message, count=_native.MESSAGE_PACKETS)
            frame = roce(rig.address("h1"), rig.address("h2"), lab=header, size=64)
            _native.paced_traffic(
                port, frame, INDEX_OFFSET, HEADERS_BYTES, _native.MESSAGE_PACKETS, PACE
            )
            wait_for(rig, uplink, (message + 1) * _native.MESSAGE_PACKETS)


def wait_for(rig: Rig, ifindex: int, frames: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (arrived := rig.counters()[ifindex].rx_roce) < frames:
        assert time.monotonic() < deadline, f"{arrived} of {frames} frames arrived"
    assert arrived == frames


def fault(rig: Rig, effect: Effect, key: FaultKey) -> Fault:
    link = next(n for n, _, far in directed_links(rig.plan.links) if far.node == "h2")
    return Fault("r", 0, link, key, stream_key(0, f"xdp:{effect.kind}", key), effect)


def golden(rig: Rig, armed: Fault, packets: int) -> Counts:
    """What the user-space build makes of the same packets."""
    first = native_packet(src=number(rig.address("h1")), dst=number(rig.address("h2")), kind=0)
    link = _native.LinkFaults(link_rules([armed]).value)
    return Counts.of(packets, link.run(packets, first))


def measured(rig: Rig, armed: Fault) -> Hits:
    with contextlib.suppress(KeyError):
        return rig.xdp.hits()[armed.directed_link][0]
    raise AssertionError("the fault is not armed")


@pytest.mark.full("xdp-statistics")
@pytest.mark.parametrize("rate", FULL)
@pytest.mark.parametrize("name", MODELS)
def test_rates_and_runs_through_xdp(full: bool, rig: Rig, name: str, rate: float):
    """Every model of a fault through XDP, from 10^-4: as in user space, and as the model says."""
    messages = (FULL if full else SHORT)[rate]
    make, key = MODELS[name]
    armed = fault(rig, make(rate), key)
    rig.xdp.set_faults([armed])
    packets = messages * _native.MESSAGE_PACKETS
    send(rig, messages)
    hits, expected = measured(rig, armed), golden(rig, armed, packets)
    assert (hits.seen, hits.hits, hits.runs) == (packets, expected.hits, expected.runs)
    if armed.word == "loss":
        assert rig.total("injected_tx") == hits.hits
    model = Model(armed.effect)
    for figure in ("rate", "mean run"):
        low, high = bounds(model, weights(armed.effect)[figure], packets, 1, ALPHA)
        found = np.dot(weights(armed.effect)[figure], (hits.hits, hits.runs, expected.lone))
        assert low <= found <= high, f"{figure}: {found:g} not in [{low:g}, {high:g}]"
