# SPDX-License-Identifier: GPL-2.0-or-later
"""The base round trip, from which timers follow."""

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.figure_table import RETRANSMITTED
from softroce_lab.experiment.forecast import notes
from softroce_lab.experiment.hosts import tuning
from softroce_lab.experiment.hosts.settings import WINDOW_PACKETS
from softroce_lab.inputs import yaml_source
from softroce_lab.plan import base_rtt
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.transports import registry
from tests.transports.coded import CODED

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


TWO_RAILS = """\
name: rails
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}, s2: {kind: switch}}
  links:
  - {endpoints: ["h1:a", "s1:a"], delay: 1us}
  - {endpoints: ["h2:a", "s1:b"], delay: 1us}
  - {endpoints: ["h1:b", "s2:a"], delay: 5ms}
  - {endpoints: ["h2:b", "s2:b"], delay: 5ms}
transports: [{name: shift, retry_count: 3}]
workload: {kind: point-to-point, bytes: 64KiB}
faults: ["nic down h1:a at 1us"]
payload: verify
deadline: 10s
"""


def test_the_round_trip_is_that_of_the_rails_that_are_used():
    plan = of(TWO_RAILS).plan(1)
    assert base_rtt.of(plan, 1024).rtt_ns == 4000
    assert base_rtt.of(plan, 1024, rails={"h1": (1,), "h2": (1,)}).rtt_ns == 20_000_000
    both = base_rtt.of(plan, 1024, rails={"h1": (0, 1), "h2": (0, 1)})
    assert both.rtt_ns == 20_000_000


@pytest.mark.parametrize(("transport", "rails"), [("rc", (1,)), ("shift", (1, 0))])
def test_a_host_s_own_rail_comes_first(transport, rails):
    experiment = of(TWO_RAILS, f"transports=[{transport}]", "workload.rail=2")
    used = experiment.rails_used(experiment.transports[0], 1)
    assert used == {"h1": rails, "h2": rails}


@pytest.mark.parametrize(
    ("rtt_ns", "rate_bps", "product"),
    [(20_000, 10**11, 222), (1_000_000, 10**10, 1107), (25_000_000, 10**9, 2766)],
)
def test_the_window_is_one_and_a_half_bandwidth_delay_products(rtt_ns, rate_bps, product):
    """Of full packets with their headers, 1130 bytes here; and 8 packets for rounding."""
    assert product == -(-rtt_ns * rate_bps // (1130 * 8 * 10**9))
    window = base_rtt.Empty(rtt_ns, rate_bps, 0).window_packets(1024)
    assert window == product + product // 2 + 8


TWO_CORES = """\
name: narrow
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}, s2: {kind: switch},
          c1: {kind: switch}, c2: {kind: switch}}
  links:
    - {endpoints: ["h1:a", "s1:h"], rate: 1Gbit, limit: 256KiB}
    - {endpoints: ["h2:a", "s2:h"], rate: 1Gbit, limit: 256KiB}
    - {endpoints: ["s1:c1", "c1:s1"], rate: 100Mbit, limit: 256KiB, delay: 5ms}
    - {endpoints: ["s1:c2", "c2:s1"], rate: 200Mbit, limit: 256KiB, delay: 5ms}
    - {endpoints: ["c1:s2", "s2:c1"], rate: 300Mbit, limit: 256KiB, delay: 5ms}
    - {endpoints: ["c2:s2", "s2:c2"], rate: 200Mbit, limit: 256KiB, delay: 5ms}
lb: flow
transports: [rc, irn, {name: irn, paths: 1, label: irn-1}]
workload: {kind: point-to-point, bytes: 16MiB, message: 16MiB}
deadline: 60s
"""


def test_one_path_is_as_narrow_as_its_narrowest_link():
    loaded = of(TWO_CORES)
    plan = loaded.plan(1)
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    found = base_rtt.of(plan, path_mtu)
    assert (found.rate_bps, found.way_bps) == (10**9, 2 * 10**8)
    frame_bytes = path_mtu + base_rtt.HEADERS_BYTES
    product = -(-2 * 10**8 * found.rtt_ns // (frame_bytes * 8 * 10**9))
    windows = {
        each.label: tuning.on_virtual_clock(each, plan).window_packets for each in loaded.transports
    }
    held = product + (256 << 10) // frame_bytes
    assert windows == {"rc": held, "irn-1": held, "irn": windows["irn"]}
    assert windows["irn"] > 3 * product
    assert [tuning.on_machine(each, plan).window_packets for each in loaded.transports] == [
        held, WINDOW_PACKETS, held,
    ]  # fmt: skip
    run = virtual.run(loaded, loaded.transports[0], 1, lambda _: None)
    assert run.verdict == "passed"
    assert run.makespan_ns < 3_000_000_000


def test_a_window_that_is_wider_than_its_one_path_is_noted():
    loaded = of(TWO_CORES, "transports=[{name: rc, window: 500}, {name: irn, window: 500}]")
    held = tuning.on_virtual_clock(of(TWO_CORES).transports[0], loaded.plan(1)).window_packets
    (note,) = notes.window_notes(loaded)
    assert note.startswith("rc")
    assert note.endswith(f"the congestion window has {held:,} at most")


def test_a_window_is_no_more_than_the_way_and_its_queues_hold():
    room = 100 * 1130
    found = base_rtt.Empty(1_000_000, 10**10, 0, room_bytes=room)
    assert found.window_packets(1024) == 1107 + 100
    assert found.window_packets(1024, machine_ns=10**9) == 1107 + 100
    assert base_rtt.Empty(1_000_000, 10**10, 0).window_packets(1024, machine_ns=10**6) > 3 * 1107


PAIR = """\
name: pair
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, h3: {kind: host}, s1: {kind: switch}}
  links:
    - {endpoints: ["h1:a", "s1:a"], rate: 10Gbit}
    - {endpoints: ["h2:a", "s1:b"], rate: 10Gbit}
    - {endpoints: ["h3:a", "s1:c"], rate: 10Gbit}
transports: [csa_ud, irn, rc, sdr_sr, srnic, ud_rto]
workload: {kind: point-to-point, bytes: 256KiB, from: h1, to: h2}
deadline: 10s
faults: [{name: slow, links: "s1->h1", delay: 10ms}]
"""
LONG_NS, SHORT_NS = (8 * length // 10 for length in (1024 + 106, 200))  # at 10 Gbit/s


@pytest.mark.parametrize(
    ("limit", "buffer_ns"), [("1MiB", 1_048_576), ("10", 10 * 1130), ("500", 500 * 1130)]
)
def test_the_buffer_is_what_a_full_queue_takes_to_drain(limit, buffer_ns):
    others = PAIR.replace("rate: 10Gbit", "rate: 100Gbit, limit: 5")
    text = others.replace("100Gbit, limit: 5", f"8Gbit, limit: {limit}", 1)
    assert base_rtt.of(of(text).plan(1), 1024).buffer_ns == buffer_ns


@pytest.mark.parametrize(("links", "ends"), [("s1->h1", "h2, to: h1"), ("h1->s1", "h2, to: h1")])
@pytest.mark.parametrize("transport", ["csa_ud", "rc", "sdr_ec"])
def test_a_path_that_is_long_or_narrow_one_way(transport, links, ends):
    """A long one makes nobody retransmit; on a narrow one timers may, but nobody gives up."""
    work = f"workload={{kind: point-to-point, bytes: 256KiB, from: {ends}}}"
    run = of_one(PAIR, transport, f"faults.0.links={links}", work)
    assert (run.verdict, run.count(RETRANSMITTED)) == ("passed", 0)
    narrow = f"faults=[{{name: narrow, links: '{links}', rate: 200Mbit}}]"
    run = of_one(PAIR.replace("rate: 10Gbit", "delay: 1us"), transport, narrow, work)
    assert run.verdict == "passed"


def of_one(text, transport, *changes):
    experiment = of(text, f"transports=[{transport}]", *changes)
    return virtual.run(experiment, experiment.transports[0], 1, lambda _: None)


FAR = """\
name: far
topology:
  generator:
    kind: dumbbell
    access: {rate: 100Gbit, delay: 1us}
    bottleneck: {rate: 100Gbit, delay: 12498us}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 512MiB, message: 128MiB}
"""


@pytest.mark.parametrize("rtt_ns", [1_000_000, 25_000_000])
@pytest.mark.parametrize("transport", ["csa_ud", "rc", "sdr_ec"])
def test_a_long_fat_path_is_filled(transport, rtt_ns):
    """The window is one and a half bandwidth-delay products: 112,000 packets at 25 ms."""
    delay = f"topology.generator.bottleneck.delay={rtt_ns // 2 - 2000}ns"
    run = of_one(FAR, transport, delay)
    coded = 1.25 if transport in CODED else 1  # parity of (32, 8)
    ideal_ns = 8 * (512 << 20) / 100 * coded + rtt_ns  # to the arrival of the last acknowledgement
    if registry.find(transport).framing == "uc_immediate":
        ideal_ns += rtt_ns / 2  # the receiver's clearance comes first (arXiv 2505.05366)
    assert run.verdict == "passed"
    assert run.count(RETRANSMITTED) == 0
    assert run.makespan_ns < 1.08 * ideal_ns  # headers are 5 %


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
