# SPDX-License-Identifier: GPL-2.0-or-later
"""The base round trip, from which timers follow."""

import pytest

from softroce_lab.experiment import base_rtt, spec, virtual
from softroce_lab.recovery import registry
from softroce_lab.topology import yaml_source

ALL_IS_LOST = """\
name: all-is-lost
topology: {generator: {kind: star, hosts: 2}}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 64KiB}
faults: [{name: nothing-passes, links: "*<->*", loss: random 100%}]
"""


def of(text, *changes):
    source = yaml_source.parse(text, "file.yaml")
    return spec.of(spec.with_overrides(source, [spec.parse_override(each) for each in changes]))


def test_a_packet_there_and_a_small_one_back():
    access = "topology.generator.access={rate: 8Gbit, delay: 3us}"
    found = base_rtt.of(of(ALL_IS_LOST, access).plan(1), 1024)
    there, back = 1024 + 14 + 20 + 8 + 12 + 8 + 40 + 4, 200  # bytes, a nanosecond each
    assert found == base_rtt.Empty(2 * (there + back) + 4 * 3000, 8 * 10**9)


@pytest.mark.parametrize("transport", registry.transports())
def test_a_fabric_that_takes_hardly_any_time_has_no_timers_of_nanoseconds(transport):
    """With them, a sender that nobody answers would ask a hundred million times a second."""
    access = "topology.generator.access={rate: 400Gbit}"
    experiment = of(ALL_IS_LOST, access, f"transports=[{transport}]", "deadline=2s")
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.facts["base_rtt_ns"] == base_rtt.LEAST_RTT_NS
    assert run.verdict == "failed"
    assert "IBV_WC_RETRY_EXC_ERR" in run.reasons[0]
    assert run.count(("tx_data", "tx_control", "tx_connected")) < 150_000
