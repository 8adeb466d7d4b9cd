# SPDX-License-Identifier: GPL-2.0-or-later
"""`grants`, the default of csa_ud: what it costs without congestion, and gains in an incast."""

import numpy as np
import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source

STAR = """\
name: star
topology:
  generator:
    {kind: star, hosts: HOSTS, access: {rate: 100Gbit, delay: 1us, limit: LIMIT, ecn: ECN}}
mtu: 4200
transports: [{name: csa_ud, congestion_control: CONTROL}]
workload: WORKLOAD
deadline: 1s
"""
LOSS = 'faults: [{name: loss, links: "*<->h*", loss: random 1%, key: identity}]\n'


def runs_of(control, workload, hosts, limit, ecn, faults=""):
    text = STAR
    for word, value in (("HOSTS", hosts), ("LIMIT", limit), ("ECN", ecn), ("CONTROL", control),
                        ("WORKLOAD", workload)):  # fmt: skip
        text = text.replace(word, str(value))
    experiment = spec.of(yaml_source.parse(text + faults, "star.yaml"))
    for seed in range(1, 5):
        run = virtual.run(experiment, experiment.transports[0], seed, lambda _: None)
        assert run.verdict == "passed"
        yield run


def bits_a_nanosecond(run):
    return 8 * int(run.messages["bytes"].sum()) / run.makespan_ns


@pytest.mark.parametrize("message", ["64KiB", "1MiB", "8MiB"])
def test_loss_without_congestion_costs_no_throughput(message):
    """In a star each link carries the packets of one flow of the permutation."""
    workload = f"{{kind: permutation, bytes: 8MiB, message: {message}}}"
    granted, constant = (
        list(runs_of(control, workload, 16, "1MiB", "200KiB", LOSS))
        for control in ("grants", "bdp")
    )
    assert all(run.messages["retransmitted"].sum() > 100 for run in granted)
    rates = [np.mean([bits_a_nanosecond(run) for run in runs]) for runs in (granted, constant)]
    assert rates[0] >= 0.97 * rates[1]


@pytest.mark.parametrize("size", ["1MiB", "4MiB"])
@pytest.mark.parametrize(("limit", "ecn"), [("512KiB", "100KiB"), ("1MiB", "200KiB")])
def test_an_incast_keeps_the_port_busy_and_drops_less_than_dcqcn(limit, ecn, size):
    workload = f"{{kind: incast, bytes: {size}, to: h1}}"
    granted, notified = (
        list(runs_of(control, workload, 33, limit, ecn)) for control in ("grants", "dcqcn")
    )
    drops = [sum(run.summary()["queue_drops"] for run in runs) for runs in (granted, notified)]
    assert drops[0] <= drops[1]
    assert min(bits_a_nanosecond(run) for run in granted) >= 95


def test_lost_tails_of_a_burst_do_not_close_the_window():
    """All of it is sent at once, and half of it lost: no later packet shows what is in flight."""
    workload = "{kind: incast, bytes: 64KiB, to: h1}"
    granted, constant = (
        [bits_a_nanosecond(run) for run in runs_of(control, workload, 33, "1MiB", "200KiB")]
        for control in ("grants", "bdp")
    )
    assert np.mean(granted) >= 0.9 * np.mean(constant)
