# SPDX-License-Identifier: GPL-2.0-or-later
"""nscc against the simulator of the Ultra Ethernet Consortium: completion times alike."""

import numpy as np
import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source

FABRIC = """\
name: nscc
topology:
  generator:
    kind: fat-tree
    k: 4
    access: {rate: 100Gbit, delay: 1us, limit: 8MiB, ecn: 200KiB}
    core: {rate: 100Gbit, delay: 1us, limit: 8MiB, ecn: 200KiB}
lb: flow
mtu: 4200
transports: [{name: csa_ud, congestion_control: nscc}]
workload: WORKLOAD
deadline: 1s
"""
RUNS = range(1, 11)


# Microseconds: the mean of the runs' medians, and of their maxima (docs/records/tuning.md has the
# options). The last maximum is that of nine runs: in the tenth the
# simulator's sender waits for its retransmission timeout.
@pytest.mark.parametrize(
    ("workload", "simulated"),
    [
        ("{kind: permutation, bytes: 2MiB, message: 2MiB}", (225.8, 261.9)),
        ("{kind: permutation, bytes: 8MiB, message: 8MiB}", (855.4, 1001.6)),
        ("{kind: incast, bytes: 64KiB, message: 64KiB, to: h1}", (84.3, 89.0)),
        ("{kind: incast, bytes: 1MiB, message: 1MiB, to: h1}", (1211.1, 1310.0)),
    ],
)
def test_completion_times_are_those_of_the_simulator(workload, simulated):
    experiment = spec.of(yaml_source.parse(FABRIC.replace("WORKLOAD", workload), "nscc.yaml"))
    figures = []
    for seed in RUNS:
        run = virtual.run(experiment, experiment.transports[0], seed, lambda _: None)
        assert run.verdict == "passed"
        times_us = (run.messages["completed_ns"] - run.messages["posted_ns"]) / 1e3
        figures.append((np.median(times_us), times_us.max()))
    assert np.mean(figures, axis=0) == pytest.approx(simulated, rel=0.1)
