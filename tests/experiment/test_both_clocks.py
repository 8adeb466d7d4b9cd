# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy decides the same of the same events, whichever clock's runner hands them over.

A run on one clock is recorded below its runners. The runner of the other clock gets the recorded
hooks and state, and each call that its policy makes is compared with the recorded one.
"""

import os
import pickle
import secrets
import sys
import time

import pytest

from softroce_lab.experiment import real, spec, virtual
from softroce_lab.experiment.hosts import opening, processes
from softroce_lab.experiment.hosts.opening import open_messenger
from softroce_lab.experiment.hosts.process import PolicyThread
from softroce_lab.fabric import lab as fabric
from softroce_lab.paths import PROJECT_ROOT
from tests.transports.replaying import Recording, Replaying, kinds

EXPERIMENT = """
name: t{name}
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}}
transports:
  - {{policy: {examples}/nack.py:Nack, label: nack}}
  - {{policy: {examples}/sack_timer.py:SackTimer, label: sack_timer}}
  - {{policy: {examples}/gap_nack.py:GapNack, label: gap_nack}}
workload: {{kind: ring-all-reduce, bytes: 512KiB, message: 64KiB}}
faults: [{{name: loss, links: "leaf*<->spine*", loss: 3%}}]
clock: {clock}
"""
ACTS = {"set_timer", "send_feedback", "retransmit_sent"}
LABELS = ("nack", "sack_timer", "gap_nack")
MOST_S = 60  # until a replay has failed


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The experiment, by clock."""
    found = {}
    for clock in ("real", "virtual"):
        file = tmp_path_factory.mktemp("experiment") / "x.yaml"
        examples = PROJECT_ROOT / "examples" / "transports"
        name = secrets.token_hex(3)
        file.write_text(EXPERIMENT.format(name=name, examples=examples, clock=clock))
        found[clock] = spec.load(file)
    return found


@pytest.fixture(scope="module")
def lab(wanted):
    """Two leaves, two spines, a host at each leaf; 3 % lost between leaves and spines."""
    made = fabric.up(wanted["real"].plan(1), ephemeral=True)
    yield made
    made.down()


def transport_of(experiment, label):
    return next(each for each in experiment.transports if each.label == label)


class Host:
    """What `PolicyThread` waits for: an engine's event descriptor, readable while hooks wait."""

    def __init__(self, replaying):
        self._replaying = replaying
        self._fd = os.eventfd(1, os.EFD_NONBLOCK)

    @property
    def event_fd(self):
        return self._fd

    def close(self):
        os.close(self._fd)


def replayed_on_the_virtual_clock(transport, timing, calls, *, beside=True):
    """As `VirtualRun` drives a host: step by step, in the caller's thread."""
    replaying = Replaying(calls, beside=beside)
    messenger = open_messenger(transport, replaying, timing=timing)
    while replaying.left:
        messenger.step()


def replayed_on_the_real_clock(transport, timing, calls, *, beside=False):
    """As a host's process does: a thread waits for the engine's descriptor."""
    replaying = Replaying(calls, beside=beside)
    messenger = open_messenger(transport, replaying, timing=timing)
    host = Host(replaying)
    thread = PolicyThread(host, messenger)
    try:
        until = time.monotonic() + MOST_S
        while replaying.left and thread.failure is None and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        thread.stop()
        host.close()
    if thread.failure is not None:
        raise thread.failure
    assert not replaying.left


@pytest.mark.parametrize("label", LABELS)
def test_the_virtual_clock_decides_as_a_run_on_the_real_clock(
    label, wanted, lab, tmp_path, monkeypatch
):
    argv = [sys.executable, "-m", "tests.experiment.recording_process"]
    monkeypatch.setattr(processes, "_ARGV", argv)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT_ROOT))
    monkeypatch.setenv("RECORDED_TO", str(tmp_path))
    transport = transport_of(wanted["real"], label)
    found = real.run(wanted["real"], transport, 1, lambda _: None, lab)
    assert (found.verdict, found.verified) == ("passed", True), found.reasons
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for file in files:
        timing, calls = pickle.loads(file.read_bytes())  # noqa: S301 - of this test
        assert kinds(calls) >= ACTS
        replayed_on_the_virtual_clock(transport, timing, calls)


@pytest.fixture
def recorded(wanted, monkeypatch):
    """A run on the virtual clock: its timing, and the calls of each host."""

    def record(label):
        kept = []

        def opened(transport, endpoint, *, timing, **settings):
            recording = Recording(endpoint)
            kept.append((timing, recording.calls))
            return open_messenger(transport, recording, timing=timing, **settings)

        monkeypatch.setattr(opening, "open_messenger", opened)
        transport = transport_of(wanted["virtual"], label)
        found = virtual.VirtualRun(wanted["virtual"], transport, 1, lambda _: None).go()
        assert found.verdict == "passed", found.reasons
        return transport, kept

    return record


@pytest.mark.parametrize("label", LABELS)
def test_the_real_clock_decides_as_a_run_on_the_virtual_clock(label, recorded):
    transport, kept = recorded(label)
    assert len(kept) == 2
    for timing, calls in kept:
        assert kinds(calls) >= ACTS
        replayed_on_the_real_clock(transport, timing, calls)


@pytest.mark.parametrize("replay", [replayed_on_the_virtual_clock, replayed_on_the_real_clock])
def test_a_policy_that_decides_something_else_is_noticed(replay, wanted, recorded):
    _, kept = recorded("nack")
    timing, calls = kept[0]
    with pytest.raises(AssertionError, match="recorded was"):
        replay(transport_of(wanted["virtual"], "sack_timer"), timing, calls, beside=False)
