# SPDX-License-Identifier: GPL-2.0-or-later
"""The switch and the host program, with real frames over real veths."""

from __future__ import annotations

import collections
import dataclasses
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from softroce_lab import _native, topology
from softroce_lab.errors import LabError
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.faults.layout import link_rules
from softroce_lab.paths import TOPOLOGIES
from softroce_lab.plan.effects import CERTAIN, Fault, FaultKey, RandomLoss
from softroce_lab.plan.plan import Plan, Route
from softroce_lab.topology import routing
from tests.fabric import xdp_rig
from tests.fabric.xdp_rig import (
    BATCH,
    TOKEN,
    Rig,
    checksum,
    directed_links,
    lab_header,
    listening,
    number,
    roce,
)
from tests.xdp.packets import packet as native_packet

STREAM = 0x0123456789ABCDEF
OFF_NET = "192.0.2.9"  # RFC 5737: no host has it
NEAR = "10.77.0.0/16"


def with_prefix_route(plan: Plan) -> Plan:
    """h1's leaf sends a whole prefix to h3, but one address of it to h2."""
    leaf = next(link.b.node for link in plan.links if link.a.node == "h1")
    hosts = {name: plan.node(name).address for name in ("h2", "h3")}
    ports = {
        name: next(r.ports for r in plan.routes if (r.node, r.destination) == (leaf, f"{a}/32"))
        for name, a in hosts.items()
    }
    extra = (Route(leaf, NEAR, ports["h3"]), Route(leaf, "10.77.1.1/32", ports["h2"]))
    return dataclasses.replace(plan, routes=plan.routes + extra)


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory) -> Iterator[Rig]:
    plan = with_prefix_route(topology.load(TOPOLOGIES / "leaf-spine.yaml"))
    rig = Rig(plan, "generic", tmp_path_factory.mktemp("xdp"))
    yield rig
    rig.close()


@pytest.fixture
def rig(shared_rig) -> Rig:
    shared_rig.refresh()
    return shared_rig


def spine_rules(plan: Plan, threshold: int, key: FaultKey = "identity") -> list[Fault]:
    """One rule on every link between switches, the same stream on all of them going up."""
    switches = {node.name: node.tier for node in plan.nodes if node.kind == "switch"}
    return [
        Fault("spine-loss", 7, link, key, STREAM + near_is_spine, RandomLoss(threshold))
        for link, near, far in directed_links(plan.links)
        if near.node in switches and far.node in switches
        for near_is_spine in [int(switches[near.node] > switches[far.node])]
    ]


def uplink(plan: Plan, host: str) -> int:
    """The directed link from a host to its switch."""
    return next(link for link, near, _ in directed_links(plan.links) if near.node == host)


def certain(link: int, rule: str = "cut", rule_id: int = 0) -> Fault:
    return Fault(rule, rule_id, link, "identity", STREAM, RandomLoss(CERTAIN))


def send_messages(rig: Rig, count: int, *, attempt: int = 0, paths: int = 8) -> set[int]:
    """Send packets 0 ... count-1 of a message from h1 to h3; the indexes that arrive."""
    src, dst = rig.address("h1"), rig.address("h3")
    headers = (
        lab_header(operation=3, step=4, message=5, index=index, attempt=attempt)
        for index in range(count)
    )
    frames = [
        roce(src, dst, sport=0xC000 + index % paths, psn=index, lab=header)
        for index, header in enumerate(headers)
    ]
    with listening(rig, "h3"):
        arrived = rig.carry("h1", "h3", frames)
    return {struct.unpack_from("!I", frame, 62 + 16)[0] for frame in arrived}


def expected_arrivals(rig: Rig, threshold: int, count: int, attempt: int = 0) -> set[int]:
    """The same by the user-space build of the fault header: up and down links, one stream each."""
    hops = [
        _native.LinkFaults(
            link_rules([Fault("", 0, 0, "identity", stream, RandomLoss(threshold))]).value
        )
        for stream in (STREAM, STREAM + 1)
    ]

    def lost(index: int) -> bool:
        packet = native_packet(
            src=number(rig.address("h1")),
            dst=number(rig.address("h3")),
            kind=0,
            operation=3,
            step=4,
            message=5,
            index=index,
            attempt=attempt,
        )
        return any(hop.decide(packet).effects for hop in hops)

    return {index for index in range(count) if not lost(index)}


def test_a_forwarded_frame_has_one_hop_less_and_new_addresses(rig):
    frame = roce(rig.address("h1"), rig.address("h3"), ttl=9)
    with rig.tap("h1") as sender, rig.tap("h3") as receiver:
        sender.send(frame)
        rig.settle()
        (got,) = receiver.received()
    peers = {near.node: (near.mac, far.mac) for _, near, far in directed_links(rig.plan.links)}
    mac, peer_mac = peers["h3"]
    assert got[:6] == bytes.fromhex(mac.replace(":", ""))
    assert got[6:12] == bytes.fromhex(peer_mac.replace(":", ""))
    assert got[22] == 9 - 3
    assert checksum(got[14:34]) == 0
    assert got[26:] == frame[26:]


@pytest.mark.parametrize("check", [0x0000, 0xFEFF, 0xFFFE, 0x1234])
def test_the_checksum_stays_right_across_its_wrap(rig, check):
    """The identification field is chosen so that the header's checksum has this value."""
    frame = bytearray(roce(rig.address("h1"), rig.address("h2")))
    frame[24:26] = struct.pack("!H", check)
    frame[18:20] = struct.pack("!H", checksum(bytes(frame[14:18] + b"\0\0" + frame[20:34])))
    with rig.tap("h1") as sender, rig.tap("h2") as receiver:
        sender.send(bytes(frame))
        rig.settle()
        (got,) = receiver.received()
    assert checksum(got[14:34]) == 0


def probe(token: int, ifindex: int, hop: int = 0) -> bytes:
    return (b"\xff" * 12 + struct.pack("!HQIB", 0x88B5, token, ifindex, hop)).ljust(60, b"\0")


def test_a_probe_proves_its_own_port_from_either_end(rig):
    leaf = next(far.node for _, near, far in directed_links(rig.plan.links) if near.node == "h1")
    ports = [rig.plan.node("h1").ports[0], rig.plan.node(leaf).ports[0]]
    for port in ports:
        with rig.tap(port.node) as tap:
            tap.send(probe(TOKEN, port.ifindex))
    rig.settle()
    assert rig.xdp.probe_seen() == {port.ifindex for port in ports}


def test_a_strange_probe_proves_nothing(rig):
    port = rig.plan.node("h1").ports[0]
    with rig.tap("h1") as tap:
        tap.send(probe(TOKEN + 1, port.ifindex))  # another lab's
        tap.send(probe(TOKEN, port.ifindex + 1))  # comes back to a port that did not send it
        tap.send(probe(TOKEN, port.ifindex, hop=2))
        tap.send(probe(TOKEN, port.ifindex)[:20])
    rig.settle()
    assert rig.xdp.probe_seen() == set()
    assert rig.total("stray_probe") == 3
    assert rig.total("malformed") == 1


def test_flows_take_the_port_that_the_header_chooses(rig):
    """Golden: the BPF build's choice among equal-cost ports is the user-space build's."""
    leaf = next(far.node for _, near, far in directed_links(rig.plan.links) if near.node == "h1")
    src, dst = rig.address("h1"), rig.address("h3")
    route = next(r for r in rig.plan.routes if (r.node, r.destination) == (leaf, f"{dst}/32"))
    salt = routing.salt(rig.plan.seed, leaf)
    expected = collections.Counter(
        route.ports[
            _native.route_choose(
                salt=salt,
                src=number(src),
                dst=number(dst),
                proto=17,
                sport=sport,
                dport=4791,
                ways=len(route.ports),
            )
        ].ifindex
        for sport in range(0xC000, 0xC000 + 100)
    )
    rig.carry("h1", "h3", [roce(src, dst, sport=sport) for sport in range(0xC000, 0xC000 + 100)])
    counters = rig.counters()
    assert {i: counters[i].tx_roce for i in expected} == expected
    assert len(expected) == 2


def test_the_longest_prefix_wins(rig):
    src = rig.address("h1")
    with rig.tap("h1") as sender, rig.tap("h2") as exact, rig.tap("h3") as wide:
        sender.send(roce(src, "10.77.1.1", psn=1))
        sender.send(roce(src, "10.77.1.2", psn=2))
        rig.settle()
        assert len(exact.received()) == 1
        # h3's leaf has no route for it, so h1's leaf is the one that sent it up.
        assert wide.received() == []
    assert rig.total("no_route") == 1


def test_what_a_switch_cannot_forward_is_dropped_under_its_own_name(rig):
    src, dst = rig.address("h1"), rig.address("h3")
    good = roce(src, dst)
    with rig.tap("h1") as sender:
        sender.send(roce(src, OFF_NET))
        sender.send(roce(src, OFF_NET, dport=53))
        sender.send(roce(src, dst, ttl=1))
        sender.send(roce(src, dst, ttl=3))  # dies at the third switch
        sender.send(good[:12] + b"\x88\xcc" + good[14:])  # LLDP
        malformed = [
            good[:30],  # cut in the IPv4 header
            good[:14] + b"\x65" + good[15:],  # version 6 in an IPv4 frame
            good[:14] + b"\x44" + good[15:],  # header of 16 bytes
            good[:16] + b"\xff\xff" + good[18:],  # longer than its frame
            good[:16] + struct.pack("!H", 27) + good[18:41],  # cut in the UDP header
            good[:16] + struct.pack("!H", 12) + good[18:],  # shorter than its header
        ]
        for frame in malformed:
            sender.send(frame)
    rig.settle()
    names = ("no_route", "no_route_roce", "ttl_exceeded", "unsupported", "malformed")
    assert [rig.total(name) for name in names] == [2, 1, 2, 1, len(malformed)]
    with rig.tap("h3") as receiver:
        assert receiver.received() == []


def test_a_host_speaks_in_its_own_name_only(rig):
    h1, h2, h3 = (rig.address(host) for host in ("h1", "h2", "h3"))
    right = roce(h1, h3, psn=1)
    fragment = bytearray(roce(h2, h3))
    fragment[20:22] = struct.pack("!H", 0x2001)
    with rig.tap("h1") as sender, rig.tap("h3") as receiver:
        for forged in (roce(h2, h3), roce(h3, h3), roce(OFF_NET, h3), bytes(fragment)):
            sender.send(forged)
        sender.send(right)
        rig.settle()
        (got,) = receiver.received()
    assert got[26:] == right[26:]
    (leaf_port,) = (far for _, near, far in directed_links(rig.plan.links) if near.node == "h1")
    assert rig.counters()[leaf_port.ifindex].spoofed == 4
    assert rig.total("spoofed") == 4


@pytest.mark.parametrize("attempt", [0, 1])
def test_identity_loss_hits_the_packets_that_the_header_names(rig, attempt):
    """Golden: the BPF build's decisions are the user-space build's."""
    threshold = 2**64 // 5
    rig.xdp.set_faults(spine_rules(rig.plan, threshold))
    expected = expected_arrivals(rig, threshold, 600, attempt)
    assert 600 * 0.5 < len(expected) < 600 * 0.8
    assert send_messages(rig, 600, attempt=attempt) == expected


def test_index_loss_hits_the_nth_packets_of_a_link(rig):
    rule = Fault("grey", 0, uplink(rig.plan, "h1"), "index", STREAM, RandomLoss(2**64 // 3))
    rig.xdp.set_faults([rule])
    survivors = set(range(300)) - set(_native.LinkFaults(link_rules([rule]).value).run(300))
    assert 160 < len(survivors) < 240
    assert send_messages(rig, 300) == survivors
    rig.xdp.restart(time.monotonic_ns())
    assert send_messages(rig, 300) == survivors


def test_a_frame_that_the_machine_lost_is_not_taken_for_one_that_a_rule_took(tmp_path, monkeypatch):
    """The rig's own way to send: what makes tests of losses able to fail."""
    monkeypatch.setattr(xdp_rig, "PATIENCE_S", 0.3)
    rig = Rig(topology.load(TOPOLOGIES / "two-hosts.yaml"), "generic", tmp_path)
    frames = [roce(rig.address("h1"), rig.address("h2"), psn=psn) for psn in range(BATCH + 1)]
    try:
        rig.xdp.set_faults([certain(uplink(rig.plan, "h1"))])
        assert rig.carry("h1", "h2", frames) == []
        rig.xdp.clear_faults()
        with rig.enter("h2"), IPRoute() as ip:
            ip.link("set", index=rig.plan.node("h2").ports[0].ifindex, state="down")
        with pytest.raises(AssertionError, match=r"lost by the machine.*s1:p2->h2:eth1': 20"):
            rig.carry("h1", "h2", frames)
    finally:
        rig.close()


def test_counters_conserve_every_packet(rig):
    rig.xdp.set_faults(spine_rules(rig.plan, 2**64 // 10))
    arrived = send_messages(rig, 1000)
    counters = rig.counters()
    sent_by_host = {uplink(rig.plan, "h1"): 1000}
    for link, near, far in directed_links(rig.plan.links):
        at_near = counters[near.ifindex].tx_roce or sent_by_host.get(link, 0)
        assert at_near == counters[far.ifindex].rx_roce, (near, far)
    injected = sum(c.injected_tx for c in counters.values())
    assert len(arrived) + injected == 1000
    assert injected > 0
    sizes = {c.rx_bytes // c.rx_packets for c in counters.values() if c.rx_packets}
    assert sizes == {len(roce(rig.address("h1"), rig.address("h3")))}


def test_opening_what_is_not_there_says_so(tmp_path):
    with pytest.raises(LabError, match="no XDP fabric"):
        XdpFabric.open(tmp_path)


def test_the_gateway_answers_arp(rig):
    mac = bytes.fromhex(rig.plan.node("h1").ports[0].mac.replace(":", ""))
    own = socket.inet_aton(rig.address("h1"))
    request = b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
    request += mac + own + bytes(6) + socket.inet_aton("169.254.0.1")
    with rig.tap("h1") as tap:
        tap.send(request.ljust(60, b"\0"))
        rig.settle()
        (reply,) = (frame for frame in tap.received() if frame[12:14] == b"\x08\x06")
    gateway = next(far.mac for _, near, far in directed_links(rig.plan.links) if near.node == "h1")
    gateway_mac = bytes.fromhex(gateway.replace(":", ""))
    assert reply[:12] == mac + gateway_mac
    assert reply[20:42] == b"\0\x02" + gateway_mac + socket.inet_aton("169.254.0.1") + mac + own


def test_options_in_the_ip_header_hide_nothing(rig):
    src, dst = rig.address("h1"), rig.address("h2")
    frame = roce(src, dst, lab=lab_header(message=9))
    head = b"\x46" + frame[15:16] + struct.pack("!H", len(frame) - 14 + 4) + frame[18:24] + b"\0\0"
    head += frame[26:34] + b"\x01\x01\x01\x00"  # three no-operations and the end
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    rig.xdp.set_faults([certain(uplink(rig.plan, "h1"))])
    with rig.tap("h1") as sender:
        sender.send(frame[:14] + head + frame[34:])
    rig.settle()
    assert rig.total("rx_roce") == 1
    assert rig.total("injected_rx") == 1
