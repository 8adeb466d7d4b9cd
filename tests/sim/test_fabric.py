# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated fabric by itself: times, routes, faults and accounts of single packets."""

import dataclasses

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import validate
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.sim.presets import simulated_host
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packets import Has
from softroce_lab.topology import resolve
from softroce_lab.topology.model import TopologyFile
from softroce_lab.transports import registry
from tests.native.connected import ALL_ACCESS, RC, WRITE, Side

QKEY = 7
HEADERS_BYTES = 14 + 20 + 8 + 12 + 8 + 40 + 4
PATH = """
name: path
topology:
  nodes: {h1: {kind: host}, s1: {kind: switch}, s2: {kind: switch}, h2: {kind: host}}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], rate: 100Gbit, delay: 1us}
    - {endpoints: ["s1:s2", "s2:s1"], rate: 100Gbit, delay: 1us}
    - {endpoints: ["s2:h2", "h2:eth1"], rate: 100Gbit, delay: 1us}
"""


def last_hop(rate):
    return PATH.replace('"h2:eth1"], rate: 100Gbit', f'"h2:eth1"], rate: {rate}')


def plan_of(text, faults=""):
    source = yaml_source.parse(text + faults)
    return resolve.resolve(validate(TopologyFile, source), source)


def connected(text=PATH, faults="", config=None, **model):
    fabric = SimFabric(plan_of(text, faults), config or simulated_host(**model))
    for host, other in ((0, 1), (1, 0)):
        peer = fabric.endpoints[other]
        fabric.endpoints[host].set_qkey(QKEY)
        fabric.endpoints[host].connect(
            ip=peer.address, mac=fabric.next_hop_mac(host), data_qp=peer.data_qp,
            recovery_qp=peer.recovery_qp, qkey=QKEY,
        )  # fmt: skip
    return fabric


def one_message(fabric, length, key=(0, 0, 0)):
    fabric.endpoints[1].post_receive(0, key, 0, 0, length, 1)
    fabric.endpoints[0].post_send(0, key, 0, 0, length, 2)


def received(fabric, until_ns=10**9):
    """When the second host's receive was over; the policies' events are nobody's."""
    while hosts := fabric.run(until_ns):
        for host in hosts:
            fabric.endpoints[host].take_events()
        for completion in fabric.endpoints[1].poll_completions():
            return completion.completed_ns
    return None


@pytest.mark.parametrize("length", [0, 1, 1000, 4056])
def test_one_packet_over_an_empty_path_takes_what_physics_says(length):
    fabric = connected()
    one_message(fabric, length)
    frame = HEADERS_BYTES + -(-length // 4) * 4
    exact_ps = 3 * (frame * 8 * 10 + 1_000_000)  # 100 Gb/s: 10 ps a bit
    assert received(fabric) == exact_ps // 1000
    assert fabric.native.now_ps == exact_ps


def test_every_packet_is_accounted_for_while_some_are_on_their_way():
    fabric = connected()
    one_message(fabric, 4056 * 50)
    assert received(fabric, 5_000) is None
    links = {link["name"]: link for link in fabric.links()}
    assert sum(link["on_its_way"] for link in links.values()) == fabric.native.in_flight > 0
    for link in links.values():
        assert link["entered"] == link["delivered"] + link["on_its_way"]
    assert links["h1->s1"]["delivered"] == links["s1->s2"]["entered"]
    assert fabric.switches()["s1"]["received"] == links["h1->s1"]["delivered"]


def test_a_queue_marks_what_may_be_marked():
    slow = last_hop("50Gbit limit 1000 ecn 10")
    fabric = connected(slow)
    one_message(fabric, 4056 * 100)
    assert received(fabric) is not None
    last = next(link for link in fabric.links() if link["name"] == "s2->h2")
    assert fabric.endpoints[1].counters()["rx_ce"] == last["marked"] > 50


def test_trimmed_packets_go_ahead_without_their_data():
    slow = last_hop("10Gbit limit 10 trim")
    fabric = connected(slow)
    one_message(fabric, 4056 * 100)
    assert received(fabric, 10**6) is None
    last = next(link for link in fabric.links() if link["name"] == "s2->h2")
    assert fabric.endpoints[1].counters()["rx_trimmed"] == last["trimmed"] > 50
    assert last["dropped_limit"] == 0


@pytest.mark.parametrize("trim", ["", " trim"])
def test_a_host_waits_for_its_link_whatever_its_queue_does(trim):
    short = PATH.replace('"s1:h1"], rate: 100Gbit', f'"s1:h1"], rate: 10Gbit limit 4{trim}')
    fabric = connected(short)
    one_message(fabric, 4056 * 100)
    assert received(fabric) is not None
    first = next(link for link in fabric.links() if link["name"] == "h1->s1")
    assert (first["dropped_limit"], first["trimmed"], first["delivered"]) == (0, 0, 100)


def test_what_rules_drop_is_written_down_and_told_by_rule():
    fabric = connected(
        faults="""
faults:
  - {name: third, links: s1->s2, drop: {message: 0, packet: 2, iter: 1}}
"""
    )
    one_message(fabric, 4056 * 5)
    assert received(fabric, 10**6) is None
    (drop,) = fabric.injections()
    assert (drop["message"], drop["index"], drop["attempt"], drop["effect"]) == (0, 2, 0, 1)
    (hits,) = fabric.hits().values()
    assert [hit.hits for hit in hits] == [1]


# ---------------------------------------------------------------- operations of RC

OPERATION_BYTES = 4096 - 40 - 24  # of data in a packet


def carrying(text=PATH, faults=""):
    """A fabric whose hosts have a reliable connection over csa_ud, and both ends of it."""
    config = simulated_host(carries_payload=True)
    for name, value in (registry.find("csa_ud").engine() | {"carries_operations": True}).items():
        setattr(config, name, value)
    fabric = connected(text, faults, config)
    cap = (64, 64, 4, 4, 0)
    sides = [Side(each, RC, 1 << 20, ALL_ACCESS, cap) for each in fabric.endpoints]
    for one, other in (sides, sides[::-1]):
        one.connect(other, 5, 5, 4096)
    return fabric, sides


def write(fabric, sides, lengths):
    """Carry out WRITEs of these lengths."""
    remote = {"remote_addr": sides[1].address, "rkey": sides[1].key}
    for length in lengths:
        assert sides[0].post_send(WRITE, (0, length), **remote) == 0
    while fabric.run(10**9):
        pass
    assert [each.status for each in sides[0].poll()] == [0] * len(lengths)


def captured(fabric, link, path, work):
    """Rows of the packets that enter a link while the work is done."""
    (number,) = (number for number, name in fabric.link_names.items() if name == link)
    pieces = []
    fabric.capture({number: link}, 0, lambda piece: pieces.append(bytes(piece)))
    work()
    fabric.end_capture()
    path.write_bytes(b"".join(pieces))
    return capture_file.read(path).packets


def test_a_fault_names_packets_of_operations(tmp_path):
    """By the operation's number, its packet and the attempt, as it names those of messages."""
    faults = """
faults:
  - {name: third, links: s1->s2, drop: {message: 1, packet: 2, iter: 1}}
"""
    fabric, sides = carrying(faults=faults)
    lengths = [5 * OPERATION_BYTES] * 3
    rows = captured(fabric, "s2->h2", tmp_path / "x.pcapng", lambda: write(fabric, sides, lengths))
    (drop,) = fabric.injections()
    assert (drop["message"], drop["index"], drop["attempt"], drop["effect"]) == (1, 2, 0, 1)
    rows = rows[(rows["has"] & Has.OPERATION != 0) & (rows["lab_kind"] == 0)]
    sent = [
        tuple(int(row["lab_" + name]) for name in ("message", "index", "attempt")) for row in rows
    ]
    assert (1, 2, 0) not in sent
    assert (1, 2, 1) in sent
    assert {name[:2] for name in sent} == {(message, n) for message in range(3) for n in range(5)}
    assert set(rows["lab_verb"].tolist()) == {1}
    assert set(rows["lab_remote_address"].tolist()) == {sides[1].address}
    assert set(rows["lab_rkey"].tolist()) == {sides[1].key}


def test_trimmed_packets_keep_their_operation(tmp_path):
    slow = PATH.replace('"s2:s1"], rate: 100Gbit', '"s2:s1"], rate: 10Gbit limit 10 trim')
    fabric, sides = carrying(slow)
    rows = captured(
        fabric,
        "s2->h2",
        tmp_path / "x.pcapng",
        lambda: write(fabric, sides, [100 * OPERATION_BYTES]),
    )
    trimmed = rows[rows["has"] & Has.TRIMMED != 0]
    assert len(trimmed) > 10
    assert np.all(trimmed["has"] & Has.OPERATION)
    assert set(trimmed["length"].tolist()) == {HEADERS_BYTES + 24}
    assert set(trimmed["lab_remote_address"].tolist()) == {sides[1].address}
    links = {link["name"]: link for link in fabric.links()}
    assert links["s1->s2"]["trimmed"] == len(trimmed)


def test_routes_go_around_a_link_that_is_down():
    plan = """
name: two-ways
topology: {generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1}}
faults:
  - {name: cut, links: leaf1<->spine1, down: true, at: 1ms}
"""
    fabric = connected(plan)
    one_message(fabric, 4056 * 64, (0, 0, 0))
    assert received(fabric) is not None
    before = {link["name"]: link["entered"] for link in fabric.links()}
    assert before["leaf1->spine1"] > 0
    fabric.run(4_000_000)
    one_message(fabric, 4056 * 64, (0, 0, 1))
    assert received(fabric) is not None
    after = {link["name"]: link["entered"] for link in fabric.links()}
    assert after["leaf1->spine1"] == before["leaf1->spine1"]
    assert after["leaf1->spine2"] >= before["leaf1->spine2"] + 64


def test_a_link_more_changes_no_other_stream():
    faults = """
faults:
  - {name: loss, links: "*<->*", loss: random 5%, key: index}
"""
    more = PATH.replace(
        "links:", 'links:\n    - {endpoints: ["h3:eth1", "s1:h3"], rate: 1Gbit}'
    ).replace("h2: {kind: host}}", "h2: {kind: host}, h3: {kind: host}}")
    drops = []
    for text in (PATH, more):
        fabric = connected(text, faults)
        if text is more:
            assert len(fabric.endpoints) == 3
        one_message(fabric, 4056 * 400)
        received(fabric, 10**6)
        names = [link["name"] for link in fabric.links()]
        drops.append([(names[d["directed_link"]], d["index"]) for d in fabric.injections()])
    assert drops[0] == drops[1] != []


def test_kernel_hosts_need_a_machine():
    plan = dataclasses.replace(
        plan_of(PATH),
        nodes=tuple(
            dataclasses.replace(node, kind="kernel") if node.name == "h1" else node
            for node in plan_of(PATH).nodes
        ),
    )
    with pytest.raises(UserError, match="h1 is a kernel host"):
        SimFabric(plan)
