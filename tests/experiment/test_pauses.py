# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes that are stopped in the middle of a run: it is not faithful, and says which one."""

import re
import secrets
import signal
import threading
import time

import pytest

from softroce_lab import units
from softroce_lab.experiment import real, spec
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.ledger.process import recorded

EXPERIMENT = """
name: {name}
topology:
  generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2}}
transports: [csa_ud]
workload: {{kind: ring-all-reduce, bytes: 16KiB, repeat: {repeat}, every: 100ms}}
faults: [{{name: wire, links: "leaf*<->spine*", delay: 1ms}}]
deadline: {deadline}
clock: real
"""
ROLES = {"h1": "host h1", "the wire stage": "wire", "the monitor": "monitor"}


def experiment(folder, *, seconds, deadline="60s"):
    """Its workload goes on for so long, if nothing is stopped."""
    path = folder / "experiment.yaml"
    name = f"t{secrets.token_hex(3)}"
    path.write_text(EXPERIMENT.format(name=name, repeat=10 * seconds, deadline=deadline))
    return spec.load(path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = fabric.up(experiment(tmp_path_factory.mktemp("lab"), seconds=1).plan(1), ephemeral=True)
    yield made
    made.down()


def identity(lab, process):
    entries = ledger.read(lab.directory).of_kind("process")
    return recorded(next(e for e in entries if e.facts["role"] == ROLES[process]))


def run(lab, wanted, process, stop_s):
    """Stop a process of the run once messages arrive; let it run again if the run still goes on."""
    timers = []

    def stop(_):
        if not timers:
            known = identity(lab, process)
            known.signal(signal.SIGSTOP)
            timers.append(threading.Timer(stop_s, known.signal, [signal.SIGCONT]))
            timers[0].start()

    try:
        return real.run(wanted, Transport("csa_ud", "csa_ud"), 1, stop, lab)
    finally:
        (timer,) = timers
        timer.cancel()


def pause_ns(found, process):
    """The pause that the verdict names."""
    named = re.compile(rf"{process} did not run for (.+?)( \(and .*)?")
    lines = [match[1] for each in found.fidelity["reasons"] if (match := named.fullmatch(each))]
    assert lines, found.fidelity
    return units.parse_time_ns(lines[0])


@pytest.mark.parametrize("process", ROLES)
@pytest.mark.full("pauses")
def test_a_process_that_is_stopped_is_named(lab, tmp_path, process, full):
    """For 0.3 and 1.5 s; in full, for 3 and 10 s too."""
    for stop_s in (0.3, 1.5, 3, 10) if full else (0.3, 1.5):
        found = run(lab, experiment(tmp_path, seconds=int(stop_s) + 1), process, stop_s)
        assert found.fidelity["verdict"] == "not faithful"
        # A process that slept when it was stopped had up to 100 ms to go; hosts may give up.
        least_s = stop_s if found.verdict == "passed" else min(stop_s, 1)
        assert (least_s - 0.15) * 1e9 < pause_ns(found, process) < (stop_s + 2) * 1e9
        print(process, stop_s, found.verdict, found.fidelity["reasons"])


@pytest.mark.parametrize("process", ["h1"])
def test_a_process_that_stays_stopped_leaves_a_verdict(lab, tmp_path, process):
    """It runs again when the workload is over, to give its figures."""
    began_s = time.monotonic()
    found = run(lab, experiment(tmp_path, seconds=1, deadline="2s"), process, 1000)
    assert time.monotonic() - began_s < 30
    assert found.verdict == "failed" or process != "h1"
    assert 0.3e9 < pause_ns(found, process) < 2.5e9
