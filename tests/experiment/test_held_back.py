# SPDX-License-Identifier: GPL-2.0-or-later
"""A run on the virtual clock names what held a transport back, and nothing where nothing did."""

import pytest

from softroce_lab.experiment import held_back, virtual, workload_table
from tests.experiment.kinds.examples import of

BDP = 599  # packets: 10 Gbit/s for a round trip of 1 ms, in frames of 2048 bytes and headers
PAIR = """\
name: pair
topology: {{generator: {{kind: star, hosts: 2, access: {{rate: 10Gbit, delay: 250us}}}}}}
mtu: 2200
transports: [{transport}]
workload: {{kind: point-to-point, bytes: 8MB, message: 8MB}}
"""
INCAST = """\
name: incast
topology: {{generator: {{kind: star, hosts: 9, access: {{rate: 10Gbit, delay: 5us{queue}}}}}}}
mtu: 2200
transports: [{transport}]
workload: {{kind: incast, bytes: 1MB, message: 1MB}}
"""
COLLISIONS = """\
name: collisions
topology:
  generator:
    kind: leaf-spine
    leaves: 2
    spines: {spines}
    hosts_per_leaf: 4
    access: {{rate: 10Gbit, delay: 5us}}
    core: {{rate: {core}, delay: 5us}}
lb: flow
mtu: 2200
transports: [{transport}]
workload: {{kind: permutation, bytes: 4MB, message: 4MB}}
"""


def run_of(text, **values):
    experiment = of(text.format(**values))
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.reasons == []
    return run


def causes(run):
    return [each["by"] for each in run.held_back]


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "irn", "sdr_ec", "ud_rto"])
def test_nothing_holds_back_a_sender_at_full_rate(transport):
    run = run_of(PAIR, transport=transport)
    assert run.held_back == []
    assert sum(run.facts["stopped"][transport].values()) < 0.01


@pytest.mark.parametrize("transport", ["csa_ud", "irn", "sdr_sr"])
def test_a_window_of_a_quarter_of_the_bandwidth_delay_product_is_named(transport):
    run = run_of(PAIR, transport=f"{{name: {transport}, window: {BDP // 4}}}")
    [found] = run.held_back
    assert found["by"] == "window"
    assert found["transport"] == run.transport
    assert found["share"] == pytest.approx(0.75, abs=0.04)


def test_congestion_control_that_leaves_the_link_empty_is_named():
    """Eight senders of dcqcn: the receiver's link carries 0.6 of its rate."""
    slow = run_of(INCAST, transport="{name: rc, congestion_control: dcqcn}", queue=", ecn: 20")
    full = run_of(INCAST, transport="{name: rc, congestion_control: swift}", queue=", ecn: 20")
    assert slow.makespan_ns > 1.5 * full.makespan_ns
    assert (causes(slow), causes(full)) == (["congestion_control"], [])


def test_a_single_path_with_a_collision_is_named():
    """Of eight flows over four spines some have the same one: 0.6 of the rate of all paths."""
    one, all_paths = (
        run_of(COLLISIONS, transport=each, spines=4, core="10Gbit") for each in ("rc", "csa_ud")
    )
    assert one.makespan_ns > 1.5 * all_paths.makespan_ns
    assert (causes(one), causes(all_paths)) == (["single_path"], [])


def test_shares_are_of_the_time_with_packets_to_send():
    hosts = [
        ("a", 60, {"window": 30, "queue": 10, "credit": 0}),
        ("a", 0, {"window": 0, "queue": 100, "credit": 0}),
        ("b", 0, {"window": 0}),
        ("c", 91, {"window": 9}),
        ("d", 50, {"in_order_cap": 20, "single_path": 30}),
    ]
    found = held_back.shares(hosts)
    assert found == {
        "a": {"window": 0.15, "queue": 0.55},
        "b": {},
        "c": {"window": 0.09},
        "d": {"in_order_cap": 0.2, "single_path": 0.3},
    }
    assert held_back.named(found) == [
        {"transport": "a", "by": "window", "share": 0.15},
        {"transport": "d", "by": "single_path", "share": 0.3},
        {"transport": "d", "by": "in_order_cap", "share": 0.2},
    ]


def test_a_cause_is_named_from_the_least_share_on():
    """A tenth itself is enough."""
    found = held_back.shares([("a", 900, {"window": 100}), ("b", 901, {"window": 99})])
    assert found["a"]["window"] == held_back.LEAST_SHARE
    assert held_back.named(found) == [{"transport": "a", "by": "window", "share": 0.1}]


def test_the_table_has_a_line_where_something_did():
    slow = run_of(PAIR, transport="{name: rc, window: 128}").summary()
    fast = run_of(PAIR, transport="csa_ud").summary()
    real = {**fast, "transport": "irn", "held_back": None}
    lines = dict(workload_table.lines([slow, fast, real])[1])
    assert lines["held back by"] == ["PSN cap 79 %", "", ""]
    assert "held back by" not in dict(workload_table.lines([fast, real])[1])


JOBS = """\
name: jobs
topology: {generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 250us}}}
mtu: 2200
transports: [csa_ud]
workload:
  kind: jobs
  jobs:
    - {name: a, workload: {kind: point-to-point, from: h1, to: h2, bytes: 4MB}}
    - name: b
      transport: {name: rc, window: 128}
      workload: {kind: point-to-point, from: h3, to: h4, bytes: 4MB}
"""


def test_of_jobs_the_transport_is_named():
    experiment = of(JOBS)
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    [found] = run.held_back
    assert (found["transport"], found["by"]) == ("rc+window=128", "in_order_cap")
    lines = dict(workload_table.lines([run.summary()])[1])
    assert lines["held back by"] == ["rc+window=128: PSN cap 79 %"]
