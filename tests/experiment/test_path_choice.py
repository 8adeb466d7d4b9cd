# SPDX-License-Identifier: GPL-2.0-or-later
"""csa_ud sends less over a slow path: a packet takes the path with the fewest on their way."""

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.figure_table import RETRANSMITTED
from softroce_lab.inputs import yaml_source

TWO_SPINES = """\
name: slow-spine
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}, s2: {kind: switch},
          s3: {kind: switch}, s4: {kind: switch}}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], rate: 100Gbit limit 64MiB, delay: 1us}
    - {endpoints: ["h2:eth1", "s2:h2"], rate: 100Gbit limit 64MiB, delay: 1us}
    - {endpoints: ["s1:s3", "s3:s1"], rate: 100Gbit limit 64MiB, delay: 1us}
    - {endpoints: ["s1:s4", "s4:s1"], rate: SLOW limit 64MiB, delay: 1us}
    - {endpoints: ["s3:s2", "s2:s3"], rate: 100Gbit limit 64MiB, delay: 1us}
    - {endpoints: ["s4:s2", "s2:s4"], rate: 100Gbit limit 64MiB, delay: 1us}
lb: flow
transports: [{name: csa_ud, options: {path_choice: CHOICE}}]
workload: {kind: point-to-point, bytes: 16MiB, message: MESSAGE, from: h1, to: h2}
depth: 2
faults: [{name: loss, links: "s3->s2", loss: random LOSS}]
deadline: 1s
"""


def run_of(slow, message, choice, loss="0%", seed=1):
    words = {"SLOW": slow, "MESSAGE": message, "CHOICE": str(choice).lower(), "LOSS": loss}
    text = TWO_SPINES
    for word, value in words.items():
        text = text.replace(word, value)
    experiment = spec.of(yaml_source.parse(text, "slow-spine.yaml"))
    run = virtual.run(experiment, experiment.transports[0], seed, lambda _: None)
    assert run.verdict == "passed"
    return run


@pytest.mark.parametrize("loss", ["0%", "1%"])
def test_a_slow_spine_gets_less(loss):
    """One of 10 Gbit/s of two: in turn, packets wait for it."""
    chosen, in_turn = (
        [run_of("10Gbit", "1MiB", choice, loss, seed) for seed in range(1, 5)]
        for choice in (True, False)
    )
    taken, again = (
        [sum(figure(run) for run in runs) for runs in (chosen, in_turn)]
        for figure in (lambda run: run.makespan_ns, lambda run: run.count(RETRANSMITTED))
    )
    assert taken[0] < 0.95 * taken[1]
    assert again[0] < 0.6 * again[1]


def test_equal_spines_are_used_alike():
    chosen, in_turn = (run_of("100Gbit", "1MiB", choice) for choice in (True, False))
    assert chosen.makespan_ns <= 1.01 * in_turn.makespan_ns
    assert chosen.count(RETRANSMITTED) == 0
