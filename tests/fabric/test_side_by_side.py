# SPDX-License-Identifier: GPL-2.0-or-later
"""Two labs of one shape have the same addresses, names and indexes, and know nothing of that."""

import dataclasses
import subprocess

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab
from softroce_lab.plan.effects import Blackout, Fault

PINGS = 20


@pytest.fixture
def pair(lab_name):
    """Two labs that differ in nothing but their names."""
    labs = []
    try:
        for suffix in ("a", "b"):
            labs.append(lab.up(topology.load("two-hosts", name=f"{lab_name}{suffix}")))
        yield labs
    finally:
        for made in labs:
            if made.directory.exists():
                made.down()


def ping(made, count=PINGS):
    """How many of `count` pings from h1 to h2 are answered."""
    address = made.plan.node("h2").address
    command = ["ping", "-n", "-q", "-c", str(count), "-i", "0.01", "-W", "0.3", address]
    process = made.spawn(command, role="ping", node="h1", stdout=subprocess.PIPE)
    output = process.stdout.read().decode()
    process.end()
    process.stdout.close()
    return int(output.partition(" received")[0].rpartition(" ")[2])


def blackout(made):
    """The lab's plan with every packet lost on every link."""
    faults = tuple(
        Fault("test", link, link, "identity", link, Blackout())
        for link in range(2 * len(made.plan.links))
    )
    return dataclasses.replace(made.plan, faults=faults)


def test_faults_of_one_do_not_act_in_the_other(pair):
    faulty, sound = pair
    faulty.set_faults(blackout(faulty))
    assert ping(faulty, 3) == 0
    assert ping(sound) == PINGS
    assert all(
        count.injected_rx + count.injected_tx == 0 for count in sound.xdp.counters().values()
    )
    assert sound.xdp.hits() == {}


def test_the_end_of_one_is_not_the_others(pair):
    doomed, other = pair
    doomed.down()
    assert ping(other) == PINGS
    assert not doomed.directory.exists()
    assert other.directory.exists()
