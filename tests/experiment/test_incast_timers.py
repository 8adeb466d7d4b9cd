# SPDX-License-Identifier: GPL-2.0-or-later
"""32 hosts send to one at once, and no queue is full: what timers retransmit is spurious."""

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.figure_table import RETRANSMITTED, SPURIOUS, data_packets
from softroce_lab.inputs import yaml_source

INCAST = """\
name: incast
topology:
  generator: {kind: star, hosts: 33, access: {rate: 100Gbit, delay: 1us, limit: 64MiB}}
transports: [TRANSPORT]
workload: {kind: incast, bytes: 1MiB, message: 64KiB, to: h1}
deadline: 1s
"""
PACKETS = 32 * 16 * 33
QUEUES = """\
name: queues
topology:
  generator:
    kind: fat-tree
    k: 4
    access: {rate: 100Gbit, delay: 1us, limit: 1MiB, ecn: 200KiB}
    core: {rate: 100Gbit, delay: 1us, limit: 1MiB, ecn: 200KiB}
lb: flow
mtu: 4200
transports: [csa_ud]
deadline: 2s
"""
TAILS = f"""{QUEUES}
depth: 1
workload: {{kind: incast, placement: random, bytes: 2MiB, message: 64KiB}}
faults: [{{name: tails, links: "h*->edge*", drop: {{tail: 1, iter: 1}}}}]
"""
MOE = f"""{QUEUES}
workload:
  {{kind: moe, placement: random, experts: 256, top_k: 4, skew: 0.5, tokens: 8, hidden: 7168,
    message: 64KiB}}
"""


@pytest.mark.parametrize(
    "transport",
    [
        "rc", "rack_tlp", "irn", "ud_rto", "csa_ud",
        "{name: irn, timeout: measured}", "{name: srnic, timeout: measured}",
        "{name: sdr_sr, timeout: measured}",
    ],
)  # fmt: skip
def test_hardly_anything_is_retransmitted(transport):
    """Where 64 MiB take 5.4 ms to drain, and 33 full windows are in the queue."""
    experiment = spec.of(yaml_source.parse(INCAST.replace("TRANSPORT", transport), "incast.yaml"))
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.verdict == "passed"
    # irn's RTO_low is shorter than the queue: at most three packets of a message wait for it.
    most = 0.01 if transport == "irn" else 0.005
    assert run.count(RETRANSMITTED) < most * PACKETS


def spurious_share(text, seeds):
    """Spurious retransmissions for each data packet, of some runs."""
    experiment = spec.of(yaml_source.parse(text, "spurious.yaml"))
    spurious = packets = 0
    for seed in seeds:
        run = virtual.run(experiment, experiment.transports[0], seed, lambda _: None)
        assert run.verdict == "passed"
        spurious += run.count(SPURIOUS)
        packets += sum(map(data_packets, run.counters.values()))
    return spurious / packets


def test_packets_behind_queues_are_not_taken_for_lost():
    """Each message's probe names other paths, whose queues grow: CE marks tell."""
    assert spurious_share(TAILS, range(1, 11)) < 0.01


def test_packets_that_a_path_still_brings_are_not_taken_for_lost():
    """They come behind the probe that names them; those before them show it."""
    assert spurious_share(MOE, range(1, 5)) < 0.004
