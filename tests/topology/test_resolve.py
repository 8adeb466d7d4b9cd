# SPDX-License-Identifier: GPL-2.0-or-later
"""Resolution: indexes, addresses, tiers, routes; and topologies that contradict themselves."""

import collections
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.errors import UserError
from softroce_lab.faults.text import text as fault_text
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import Data, Source, parse
from softroce_lab.plan.plan import Guest, Plan, Port
from softroce_lab.topology.model import TopologyFile
from softroce_lab.topology.resolve import resolve


def plan_of(text: str, *, name: str | None = None, seed: int | None = None) -> Plan:
    source = parse(text, "x.yaml")
    return resolve(validate(TopologyFile, source), source, name=name, seed=seed)


def graph(nodes: str, *links: str) -> str:
    """Write a file: `h1 h2 s1`, hosts by their letter, and links such as `h1:a-s1:b`."""
    kinds = "".join(
        f"    {n}: {{kind: {'host' if n[0] == 'h' else 'switch'}}}\n" for n in nodes.split()
    )
    ends = "".join("    - endpoints: ['{}', '{}']\n".format(*link.split("-")) for link in links)
    return f"name: x\ntopology:\n  nodes:\n{kinds}  links:\n{ends}"


TWO_HOSTS = graph("h1 h2 s1", "h1:eth1-s1:p1", "s1:p2-h2:eth1")


def test_ports_are_numbered_in_the_order_of_the_links() -> None:
    ports = [port for link in plan_of(TWO_HOSTS).links for port in (link.a, link.b)]
    assert [(str(port), port.ifindex, port.mac) for port in ports] == [
        ("h1:eth1", 100, "02:53:00:00:00:64"),
        ("s1:p1", 101, "02:53:00:00:00:65"),
        ("s1:p2", 102, "02:53:00:00:00:66"),
        ("h2:eth1", 103, "02:53:00:00:00:67"),
    ]


def test_nodes() -> None:
    nodes = plan_of(TWO_HOSTS, name="lab").nodes
    assert [(n.index, n.name, n.kind, n.namespace, n.tier, n.address) for n in nodes] == [
        (0, "h1", "host", "lab-h1", 0, "10.0.0.1"),
        (1, "h2", "host", "lab-h2", 0, "10.0.0.2"),
        (2, "s1", "switch", "lab-s1", 1, None),
    ]
    assert [str(port) for port in nodes[2].ports] == ["s1:p1", "s1:p2"]


TWO_PLANES = graph("h1 h2 s1 s2", "h1:a-s1:a", "h1:b-s2:a", "h2:x-s1:b", "h2:y-s2:b")


def test_each_rail_of_a_host_has_its_own_network() -> None:
    ports = [port for host in plan_of(TWO_PLANES).hosts for port in host.ports]
    assert [(str(port), port.address, port.address6) for port in ports] == [
        ("h1:a", "10.0.0.1", "fd53:6c61:6200::a00:1"),
        ("h1:b", "10.1.0.1", "fd53:6c61:6200::a01:1"),
        ("h2:x", "10.0.0.2", "fd53:6c61:6200::a00:2"),
        ("h2:y", "10.1.0.2", "fd53:6c61:6200::a01:2"),
    ]
    switch = plan_of(TWO_PLANES).node("s1")
    assert {(port.address, port.address6) for port in switch.ports} == {(None, None)}


def test_routes_hold_all_equal_cost_next_hops_in_order() -> None:
    shape = "{kind: leaf-spine, leaves: 2, spines: 3, hosts_per_leaf: 1}"
    plan = plan_of(f"name: x\ntopology: {{generator: {shape}}}")
    routes = {(r.node, r.destination): [str(port) for port in r.ports] for r in plan.routes}
    assert routes["leaf1", "10.0.0.2/32"] == ["leaf1:spine1", "leaf1:spine2", "leaf1:spine3"]
    assert routes["leaf2", "10.0.0.2/32"] == ["leaf2:h2"]
    assert routes["spine3", "10.0.0.2/32"] == ["spine3:leaf2"]
    assert len(routes) == len(plan.routes) == 5 * 2


def test_seed_and_name_can_be_given() -> None:
    plan = plan_of(TWO_HOSTS, name="other", seed=7)
    assert (plan.name, plan.seed) == ("other", 7)
    with pytest.raises(UserError, match="lab name 'A' is not allowed"):
        plan_of(TWO_HOSTS, name="A")
    with pytest.raises(UserError, match="seed -1"):
        plan_of(TWO_HOSTS, seed=-1)


def test_loss_at_a_link_acts_on_both_directions_before_the_files_rules() -> None:
    text = TWO_HOSTS.replace("'s1:p1']", "'s1:p1']\n      loss: 1%")
    plan = plan_of(text + "faults: [{name: more, links: 's1->h2', loss: 2%}]\n")
    assert [(f.rule, f.rule_id, f.directed_link, fault_text(f)) for f in plan.faults] == [
        ("link:loss", 0, 0, "loss random 1%"),
        ("link:loss", 1, 1, "loss random 1%"),
        ("more", 2, 2, "loss random 2%"),
    ]


TWO_WAYS = "lb: adaptive\n" + graph(
    "h1 h2 s1 s2", "h1:e1-s1:e1", "h2:e1-s2:e1", "s1:a-s2:a", "s1:b-s2:b"
)


@pytest.mark.parametrize("queues", ["", "h1->s1", "s2->h2", "h*<->*"])
def test_adaptive_needs_a_queue_among_equal_ways(queues: str) -> None:
    text = TWO_WAYS
    if queues:
        text += f"faults: [{{name: q, links: '{queues}', rate: 1Gbit}}]\n"
    with pytest.raises(UserError) as caught:
        plan_of(text)
    error = "x.yaml:1:5: lb: adaptive chooses the emptiest queue, and no link to choose has one"
    assert str(caught.value).startswith(error)


def test_a_kernel_host_is_a_host_with_a_machine() -> None:
    text = TWO_HOSTS.replace("h2: {kind: host}", "h2: {kind: kernel, kernel: 6.1, cpus: 2}")
    plan = plan_of(text.replace("topology:\n", "topology:\n  defaults: {memory: 512MiB}\n"))
    assert plan.node("h2").guest == Guest("6.1", 512 << 20, 2)
    assert plan.node("h2").address == "10.0.0.2"
    assert [host.name for host in plan.hosts] == ["h1", "h2"]
    assert [host.name for host in plan.plain_hosts] == ["h1"]
    assert [host.name for host in plan.kernel_hosts] == ["h2"]
    assert plan.digest != plan_of(TWO_HOSTS).digest


def test_defaults_give_a_kind() -> None:
    text = TWO_HOSTS.replace("s1: {kind: switch}", "s1:")
    with pytest.raises(UserError, match=r"^x.yaml:6:5: node 's1' has no kind"):
        plan_of(text)
    defaults = text.replace("topology:\n", "topology:\n  defaults: {kind: switch}\n")
    assert plan_of(defaults).node("s1").kind == "switch"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (graph("h1 s1", "h1:a-s9:a"), "7:27: unknown node 's9'"),
        (graph("h1 s1", "h1:a-s1:a", "s1:b-h1:a"), "8:27: interface h1:a is used twice\n"
                                                  "  hint: first by the link in line 7"),
        (graph("h1 s1", *(f"h1:{i}-s1:{i}" for i in range(9))),
         "15:19: host 'h1' has more than 8 links"),
        (graph("h1 s1", "s1:a-s1:b"), "7:18: the link joins 's1' to itself"),
        (graph("h1 h2", "h1:a-h2:a"), "7:18: the link joins two hosts, 'h1' and 'h2'"),
        (graph("h1 h2 s1", "h1:a-s1:a"), "5:5: host 'h2' has no link"),
        (graph("h1 s1", "h1:a-s1:a").replace("{kind: switch}", "{kind: switch, memory: 1GiB}"),
         "5:24: 'memory' is for kernel hosts, and 's1' is a switch"),
        (graph("h1 s1", "h1:a-s1:a").replace("topology:", "topology:\n  defaults: {cpus: 2}"),
         "3:14: 'cpus' is for kernel hosts, and there is none"),
        (graph("s1 s2", "s1:a-s2:a"), "3:3: the topology has no hosts"),
        ("name: x\ntopology: {nodes: {}}", "2:12: the topology has no hosts"),
        (graph("h1 s1", "h1:a-s1:a") + "faults: [{name: a, links: 'x*<->*', loss: 1%}]",
         "8:27: pattern 'x*<->*' matches no link"),
    ],
)  # fmt: skip
def test_contradictions_are_pointed_at(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        plan_of(text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


def parallel(links: int) -> str:
    joined = [f"s1:a{i}-s2:b{i}" for i in range(links)]
    return graph("h1 h2 s1 s2", "h1:a-s1:h", "h2:a-s2:h", *joined)


def test_a_switch_chooses_among_64_equal_cost_ports() -> None:
    assert max(len(route.ports) for route in plan_of(parallel(64)).routes) == 64
    with pytest.raises(UserError) as caught:
        plan_of(parallel(65))
    assert str(caught.value) == (
        "x.yaml:2:1: 65 equal-cost ports lead from 's2' to 'h1'\n"
        "  hint: a switch chooses among 64 at most"
    )


def far_ends(plan: Plan) -> dict[Port, Port]:
    return {near: far for link in plan.links for _, near, far in link.halves}


def hops(plan: Plan, source: Port, destination: Port) -> set[int]:
    """Lengths of all paths that the plan's routes allow from one host's port to another's."""
    far = far_ends(plan)
    routes = {r.node: r.ports for r in plan.routes if r.destination == f"{destination.address}/32"}
    lengths: set[int] = set()
    walks = [(far[source], 1)]
    while walks:
        arrival, length = walks.pop()
        assert length <= len(plan.nodes), "a loop"
        if arrival.node in routes:
            walks += {(far[port], length + 1) for port in routes[arrival.node]}
        else:
            assert arrival == destination, "a host carried transit traffic"
            lengths.add(length)
    return lengths


def shortest(plan: Plan, source: Port, destination: Port) -> int:
    """Length of the shortest path through switches, counted without the plan's routes."""
    far = far_ends(plan)
    hosts = {host.name for host in plan.hosts}
    reached, length = {far[source].node}, 2
    while far[destination].node not in reached:
        reached |= {end.node for port, end in far.items() if port.node in reached} - hosts
        length += 1
    return length


@st.composite
def connected(draw: st.DrawFn) -> dict[str, Data]:
    """Draw a connected topology: a random tree of switches, more links, hosts with rails."""
    switches = [f"s{i}" for i in range(draw(st.integers(1, 7)))]
    pairs = [(switches[draw(st.integers(0, i - 1))], switches[i]) for i in range(1, len(switches))]
    if len(switches) > 1:
        two = st.lists(st.sampled_from(switches), min_size=2, max_size=2, unique=True)
        pairs += [(a, b) for a, b in draw(st.lists(two, max_size=6))]
    hosts = [f"h{i}" for i in range(draw(st.integers(1, 5)))]
    rails = draw(st.lists(st.sampled_from(hosts), max_size=6))
    pairs += [(draw(st.sampled_from(switches)), host) for host in hosts + rails]
    names = draw(st.permutations(switches + hosts))
    numbers: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)
    links: list[Data] = [
        {"endpoints": [f"{node}:p{next(numbers[node])}" for node in pair]}
        for pair in draw(st.permutations(pairs))
    ]
    nodes: dict[str, Data] = {n: {"kind": "host" if n[0] == "h" else "switch"} for n in names}
    return {"name": "x", "topology": {"nodes": nodes, "links": links}}


def resolve_data(data: dict[str, Data]) -> Plan:
    return resolve(validate(TopologyFile, Source(None, data, {}, {})))


@settings(deadline=None)
@given(connected())
def test_routes_lead_every_port_to_every_other_along_all_shortest_paths(
    data: dict[str, Data],
) -> None:
    plan = resolve_data(data)
    for source, destination in itertools.permutations(plan.hosts, 2):
        for ends in itertools.product(source.ports, destination.ports):
            assert hops(plan, *ends) == {shortest(plan, *ends)}
    for route in plan.routes:
        indexes = [port.ifindex for port in route.ports]
        assert indexes
        assert indexes == sorted(indexes)
        assert {port.node for port in route.ports} == {route.node}
