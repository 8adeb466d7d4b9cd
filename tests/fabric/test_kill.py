# SPDX-License-Identifier: GPL-2.0-or-later
"""SIGKILL anywhere, then gc: nothing of the lab is left, and every stranger is."""

import os
import random
import signal
import tempfile
import time

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.net import netns


@pytest.fixture(autouse=True)
def _no_temporary_files(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def ignore(_):
    pass


@pytest.fixture
def plan(full, lab_name, traces):
    return topology.load("leaf-spine" if full else "two-hosts", name=lab_name)


def up(plan, on_step=lambda: None, **options):
    lab.up(plan, on_step=on_step, **options).close()


def collect(traces):
    """What a user does after a crash; before its first line or after its last, there was none."""
    traces.remember_bpf_objects()
    condition = unheld(traces.name)
    if condition is not None and condition.word == "up":
        runtime.down(traces.name, ignore)
    runtime.collect(ignore)
    assert traces.gone(), traces.found()


def unheld(name):
    """The lab's condition, once nobody works on it.

    A child that the killed process forked holds the lab until its `exec`: for long, if busy.
    """
    deadline = time.monotonic() + 30
    while (condition := runtime.examine(name)) is not None and condition.busy:
        assert time.monotonic() < deadline, condition
        time.sleep(0.01)
    return condition


@pytest.mark.full("kill-up")
def test_up_killed_at_every_step(plan, traces, foreigner, killed_at, full):
    """SIGKILL of `lab up` between any two acts; in full, of a leaf-spine fabric."""
    step = 0
    while killed_at(step, lambda on_step: up(plan, on_step)):
        collect(traces)
        assert foreigner.is_intact()
        step += 1
    assert step >= 2 * (len(plan.nodes) + len(plan.links))
    assert runtime.examine(plan.name).word == "up"


@pytest.mark.full("kill-down")
def test_down_killed_at_every_step(plan, traces, foreigner, killed_at, full):
    """SIGKILL of `lab down` between any two acts; in full, of a leaf-spine fabric."""
    step = 0
    up(plan)
    while killed_at(step, lambda on_step: runtime.down(plan.name, ignore, on_step=on_step)):
        collect(traces)
        assert foreigner.is_intact()
        up(plan)
        step += 1
    assert step >= 2 * (len(plan.nodes) + len(plan.links))
    assert traces.gone(), traces.found()


def test_gc_killed_at_every_step(two_hosts, traces, foreigner, killed_at):
    """SIGKILL of `lab doctor --clean` between any two acts leaves what the next one removes."""

    def sweep(on_step):
        runtime.sweep(runtime.examine(two_hosts.name), ignore, on_step)

    assert killed_at(24, lambda on_step: up(two_hosts, on_step))
    for step in range(100):
        assert runtime.examine(two_hosts.name).remains
        if not killed_at(step, sweep):
            break
    assert step > 4  # each goes on where the one before was killed
    assert traces.gone(), traces.found()
    assert foreigner.is_intact()


@pytest.mark.full("kill-anywhere")
def test_up_killed_at_any_moment(plan, traces, foreigner, full):
    """SIGKILL of `lab up` at random moments, inside acts too; in full, 300 times."""
    moments = random.Random(1)
    for _ in range(300 if full else 10):
        pid = os.fork()
        if pid == 0:
            up(plan)
            os._exit(0)
        time.sleep(moments.uniform(0, 0.6))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        collect(traces)
        assert foreigner.is_intact()


def test_a_name_is_taken_between_the_record_and_the_act(two_hosts, traces, killed_at):
    """The ledger announces a namespace; a stranger takes its name; gc leaves the stranger alone."""
    step = 0
    while killed_at(step, lambda on_step: up(two_hosts, on_step)):
        if ledger.read(traces.directory).of_kind("netns"):
            break
        runtime.collect(ignore)
        step += 1
    (entry,) = ledger.read(traces.directory).of_kind("netns")
    name = entry.facts["name"]
    assert not os.path.lexists(netns.DIRECTORY / name)
    fd, file = netns.create(), netns.unlinked_name()
    stranger = netns.identify(fd, file)
    netns.publish(name, fd, file)
    runtime.collect(ignore)
    survivor = netns.opened(name, stranger)
    assert survivor is not None
    for each in (fd, file, survivor):
        os.close(each)
    netns.remove(name, stranger)
    assert traces.gone(), traces.found()
