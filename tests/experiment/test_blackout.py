# SPDX-License-Identifier: GPL-2.0-or-later
"""An outage that is shorter than the `blackout` of an experiment costs no message."""

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry

CUT = """\
name: cut
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 500ns}}}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 64KiB}
blackout: 100ms
faults: [{name: cut, links: "h2<->*", loss: blackout, at: 2us, for: 97ms}]
"""
POLICIES = registry.transports(registry.Kind.SESSION)


def run(transport, **changes):
    source = yaml_source.parse(CUT, "cut.yaml")
    set_ = [f"transports=[{transport}]", *(f"{key}={value}" for key, value in changes.items())]
    experiment = spec.of(spec.with_overrides(source, [spec.parse_override(each) for each in set_]))
    return virtual.run(experiment, experiment.transports[0], 1, lambda _: None)


@pytest.mark.parametrize("transport", POLICIES)
def test_an_outage_within_the_blackout_costs_no_message(transport):
    """Thousands of round trips long: far more than there may be attempts at T_max."""
    found = run(transport)
    assert found.verdict == "passed"
    assert found.facts["base_rtt_ns"] * 12_800 < 97_000_000


@pytest.mark.parametrize("transport", POLICIES)
def test_an_outage_beyond_it_is_given_up(transport):
    found = run(transport, blackout="80ms")
    assert (found.verdict, "IBV_WC_RETRY_EXC_ERR" in found.reasons[0]) == ("failed", True)
