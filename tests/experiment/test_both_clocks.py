# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's policy decides the same on both clocks, given the same events.

A run on the virtual clock is recorded below its runner. The runner of either clock gets the
recorded hooks and state, and each call that its policy makes is compared with the recorded one.
"""

import os
import time

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.hosts import opening
from softroce_lab.experiment.hosts.opening import open_messenger
from softroce_lab.experiment.hosts.process import PolicyThread
from softroce_lab.inputs import yaml_source
from softroce_lab.paths import PROJECT_ROOT
from tests.transports.replaying import Recording, Replaying, kinds

EXAMPLES = PROJECT_ROOT / "examples" / "transports"
EXPERIMENT = f"""
name: both
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}}
transports:
  - {{policy: {EXAMPLES}/nack.py:Nack, label: nack}}
  - {{policy: {EXAMPLES}/sack_timer.py:SackTimer, label: sack_timer}}
  - {{policy: {EXAMPLES}/gap_nack.py:GapNack, label: gap_nack}}
workload: {{kind: ring-all-reduce, bytes: 512KiB, message: 64KiB}}
faults: [{{name: loss, links: "leaf*<->spine*", loss: 3%}}]
"""
ACTS = {"set_timer", "send_feedback", "retransmit_sent"}
MOST_S = 60  # until a replay has failed


def on_the_virtual_clock(transport, timing, calls):
    """As `VirtualRun` drives a host: step by step, in the caller's thread."""
    replaying = Replaying(calls, beside=False)
    messenger = open_messenger(transport, replaying, timing=timing)
    while replaying.left:
        messenger.step()


def on_the_real_clock(transport, timing, calls):
    """As a host's process does: a thread waits for the engine's descriptor, here always ready."""
    replaying = Replaying(calls, beside=False)
    messenger = open_messenger(transport, replaying, timing=timing)

    class Host:
        event_fd = os.eventfd(1, os.EFD_NONBLOCK)

    thread = PolicyThread(Host, messenger)
    try:
        until = time.monotonic() + MOST_S
        while replaying.left and thread.failure is None and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        thread.stop()
        os.close(Host.event_fd)
    if thread.failure is not None:
        raise thread.failure
    assert not replaying.left


@pytest.fixture
def recorded(monkeypatch):
    """A run on the virtual clock: its transports, and the timing and calls of each host."""
    wanted = {each.label: each for each in spec.of(yaml_source.parse(EXPERIMENT)).transports}

    def record(label):
        kept = []

        def opened(transport, endpoint, *, timing, **settings):
            recording = Recording(endpoint)
            kept.append((timing, recording.calls))
            return open_messenger(transport, recording, timing=timing, **settings)

        monkeypatch.setattr(opening, "open_messenger", opened)
        experiment = spec.of(yaml_source.parse(EXPERIMENT))
        found = virtual.VirtualRun(experiment, wanted[label], 1, lambda _: None).go()
        assert found.verdict == "passed", found.reasons
        assert len(kept) == 2
        return wanted, kept

    return record


@pytest.mark.parametrize("replay", [on_the_virtual_clock, on_the_real_clock])
@pytest.mark.parametrize("label", ["nack", "sack_timer", "gap_nack"])
def test_either_clock_decides_as_the_recorded_run(label, replay, recorded):
    wanted, kept = recorded(label)
    for timing, calls in kept:
        assert kinds(calls) >= ACTS
        replay(wanted[label], timing, calls)


@pytest.mark.parametrize("replay", [on_the_virtual_clock, on_the_real_clock])
def test_a_policy_that_decides_something_else_is_noticed(replay, recorded):
    wanted, [(timing, calls), _] = recorded("nack")
    with pytest.raises(AssertionError, match="recorded was"):
        replay(wanted["sack_timer"], timing, calls)
