# SPDX-License-Identifier: GPL-2.0-or-later
"""A host on the real clock: it stops while other threads ask it for something, and it ends."""

import secrets
import threading

import pytest

from softroce_lab import _native, topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.perftest import rnics

CALLERS = 3
STOPS = 1_000


@pytest.fixture
def lab():
    made = fabric.up(topology.load("two-hosts", name=f"t{secrets.token_hex(3)}"), ephemeral=True)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def host(lab):
    with lab.enter("h1"):
        made = _native.Host(rnics.config(lab, lab.plan.node("h1"), path_mtu=1024))
    yield made
    made.close()


def test_whoever_calls_while_the_engine_stops_is_answered(host):
    over = threading.Event()
    calls, unanswered = [], []

    def keep_calling():
        count = 0
        try:
            while not over.is_set():
                host.run(None)
                count += 1
        except OSError as error:  # ETIMEDOUT after 5 s: what was asked for never ran
            unanswered.append(error)
        calls.append(count)

    callers = [threading.Thread(target=keep_calling) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(STOPS):
            host.start()
            host.run(None)
            host.stop()
    finally:
        over.set()
    for caller in callers:
        caller.join(30)
    assert not unanswered
    assert len(calls) == CALLERS
    assert min(calls) > 0
    assert host.failure == ""


def test_a_port_is_free_once_its_device_is_closed_whoever_still_holds_that(lab):
    with rnics.opened(lab, "h1") as first:
        held = first.endpoint
    with rnics.opened(lab, "h1"):
        pass
    with pytest.raises(RuntimeError, match="closed does not start again"):
        held.start()
    assert set(held.port_statistics()) >= {"rx_dropped", "tx_invalid"}
