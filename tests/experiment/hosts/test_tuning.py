# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's settings that follow from a plan and a transport's knobs, on both clocks."""

import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.experiment.hosts.tuning import on_machine, on_virtual_clock
from softroce_lab.inputs import yaml_source
from softroce_lab.plan import base_rtt
from softroce_lab.transports.defaults import MACHINE_RTT_NS, EngineTiming

TEXT = """
name: tuned
topology: {generator: {kind: star, hosts: 2, access: {rate: 10Gbit limit 100, delay: 7us}}}
transports: [{name: rc, retry_count: 3}, {name: irn, congestion_control: CC}, irn]
workload: {kind: point-to-point, bytes: 1MiB}
"""


@pytest.fixture(params=["swift", "dcqcn"])
def case(request):
    """The control that one transport chooses, the experiment, its plan."""
    experiment = spec.of(yaml_source.parse(TEXT.replace("CC", request.param), "x.yaml"))
    return request.param, experiment.transports, experiment.plan(1)


def test_on_the_real_clock_the_machine_adds_to_a_round_trip(case):
    control, (rc, irn, _), plan = case
    tuning = on_machine(irn, plan)
    empty = base_rtt.of(plan, tuning.path_mtu)
    lifetime_ns = base_rtt.lifetime_ns(plan, tuning.path_mtu)
    assert lifetime_ns > 0
    assert tuning.base_rtt_ns == empty.rtt_ns + MACHINE_RTT_NS
    assert tuning.line_rate_bps == empty.rate_bps > 0
    assert tuning.congestion_control == control
    assert tuning.engine == EngineTiming.on_machine(empty.rtt_ns, empty.buffer_ns, lifetime_ns)
    assert on_machine(rc, plan).rc == RcSettings.on_machine(empty.rtt_ns).with_knobs(rc.knobs)
    assert on_machine(rc, plan).rc != RcSettings.on_machine(empty.rtt_ns)


def test_on_the_virtual_clock_the_hosts_add_what_the_model_says(case):
    control, (rc, irn, _), plan = case
    tuning = on_virtual_clock(irn, plan, 300)
    whole = base_rtt.of(plan, tuning.path_mtu, 300)
    lifetime_ns = base_rtt.lifetime_ns(plan, tuning.path_mtu)
    assert tuning.base_rtt_ns == whole.rtt_ns == base_rtt.of(plan, tuning.path_mtu).rtt_ns + 300
    assert tuning.congestion_control == control
    assert tuning.engine == EngineTiming.for_rtt(whole.rtt_ns, whole.buffer_ns, lifetime_ns)
    assert on_virtual_clock(rc, plan).rc.retry_count == 3
