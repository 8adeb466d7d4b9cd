# SPDX-License-Identifier: GPL-2.0-or-later
"""Conservation on links: who lost what."""

from __future__ import annotations

from softroce_lab.fabric.xdp import directed_links
from softroce_lab.fabric.xdp_layout import PortCounters
from softroce_lab.fabric.xdp_links import LinkCount, count_links
from softroce_lab.paths import TOPOLOGIES
from softroce_lab.topology import loader


def counters(**counts: int) -> PortCounters:
    return PortCounters(**{name: counts.get(name, 0) for name in PortCounters.__slots__})


def test_each_end_tells_its_part():
    plan = loader.load(TOPOLOGIES / "two-hosts.yaml")  # h1 - s1 - h2
    ends = {
        (near.node, far.node): (link, near, far) for link, near, far in directed_links(plan.links)
    }
    up, _, s1_in = ends["h1", "s1"]
    down, s1_out, h2 = ends["s1", "h2"]
    ports = {port.ifindex: counters() for node in plan.nodes for port in node.ports}
    # h1 sends 100: the veth loses 3, its link's rule 7; then s1's rule takes 10, the veth 5.
    ports[s1_in.ifindex] = counters(rx_roce=97, injected_rx_roce=7, injected_rx=8)
    ports[s1_out.ifindex] = counters(tx_roce=80, injected_tx_roce=10, injected_tx=11)
    ports[h2.ifindex] = counters(rx_roce=75)

    found = {count.directed_link: count for count in count_links(plan, ports, {"h1": 100})}
    assert found[up] == LinkCount(up, "h1", "s1", sent=100, received=97, injected=7)
    assert found[down] == LinkCount(down, "s1", "h2", sent=80, received=75, injected=10)
    assert [found[link].emulator_drops for link in (up, down)] == [3, 5]
    assert all(found[link].emulator_drops == 0 for link in found if link not in (up, down))


def test_counts_of_a_span_are_differences():
    assert counters(rx_roce=9, to_xsk=4) - counters(rx_roce=2) == counters(rx_roce=7, to_xsk=4)
