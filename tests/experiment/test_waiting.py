# SPDX-License-Identifier: GPL-2.0-or-later
"""A receive whose sender takes its time costs a few control packets for each sign of life."""

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry

SLOW = """\
name: slow
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 4KiB, repeat: 2, every: 2s}
"""
POLICIES = registry.transports(registry.Kind.SESSION)


@pytest.mark.parametrize("transport", POLICIES)
def test_waiting_costs_signs_of_life(transport):
    source = yaml_source.parse(SLOW, "slow.yaml")
    experiment = spec.of(
        spec.with_overrides(source, [spec.parse_override(f"transports=[{transport}]")])
    )
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    asked = 2e9 / run.facts["timing"]["keepalive_interval_ns"]
    assert run.verdict == "passed"
    # A look is said twice, its answers are, too, beside the questions and what answers them.
    assert run.count(("tx_control",)) < 8 * asked + 200
