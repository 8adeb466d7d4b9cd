# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab top` and `lab inspect` tell of frames that the machine lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab
from softroce_lab.fabric.observe import traffic, view
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from tests.fabric.conservation import at_rest
from tests.fabric.steady_stream import Stream

MANY = 6000  # more than lie ready at a port


@pytest.fixture
def delayed(lab_name, traces):
    """h1 - s1 - h2, shaped from h1 on, and the wire stage's process id."""
    running = lab.up(topology.load("two-hosts", name=lab_name))
    wanted = live.parse_impairments(["delay", "1ms"])
    running.faults.change(
        lambda plan: live.set_on(plan, links_of(plan, "h1->s1"), wanted), time.monotonic_ns
    )
    entries = running.ledger.history.of_kind("process")
    (pid,) = (entry.facts["pid"] for entry in entries if entry.facts["role"] == "wire")
    yield running, pid
    running.down()
    assert traces.gone(), traces.found()


def stream(running, count):
    with Stream(running, "h1", "h2", count=count, pace=50_000) as sent:
        pass
    assert sent.sent == count


def test_frames_that_the_stage_had_no_room_for_are_counted_where_they_arrived(delayed):
    running, pid = delayed
    with traffic.metering(view.of_lab(running.plan.name)) as meter:
        before = meter.sample()
        os.kill(pid, signal.SIGSTOP)
        try:
            stream(running, MANY)
        finally:
            os.kill(pid, signal.SIGCONT)
        at_rest(running)
        counts = {n: rate.counts for n, rate in traffic.rates(before, meter.sample()).items()}
    uplink, downlink = (
        counts[number] for link in ("h1->s1", "s1->h2") for number in links_of(running.plan, link)
    )
    assert uplink.to_stage > MANY // 10  # each once, though the kernel counts some of them twice
    assert uplink.to_stage + downlink.frames + downlink.emulator == uplink.frames
    assert downlink.to_stage == 0


def test_frames_that_find_the_stage_dead_are_counted_there(delayed):
    running, pid = delayed
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with traffic.metering(view.of_lab(running.plan.name)) as meter:
        before = meter.sample()
        stream(running, 100)
        time.sleep(0.1)
        counts = traffic.rates(before, meter.sample())
    (uplink,) = links_of(running.plan, "h1->s1")
    assert counts[uplink].counts.to_stage == counts[uplink].counts.frames == 100
