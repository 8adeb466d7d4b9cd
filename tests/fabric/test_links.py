# SPDX-License-Identifier: GPL-2.0-or-later
import fcntl
import os
import socket
import struct
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from softroce_lab import topology
from softroce_lab.fabric import links, netns


@pytest.fixture
def plan():
    return topology.load("two-hosts")


@pytest.fixture
def namespaces(plan):
    fds = {node.name: netns.create() for node in plan.nodes}
    for fd in fds.values():
        with netns.entered(fd):
            links.silence()
    links.create(plan.links, plan.mtu, fds)
    yield fds
    for fd in fds.values():
        os.close(fd)


def inside(fd, question):
    """What `question` finds out over netlink in the namespace."""
    with netns.entered(fd), IPRoute() as netlink:
        return question(netlink)


def offloads_checksums(name):
    import ctypes

    value = ctypes.create_string_buffer(struct.pack("=II", 0x16, 0), 8)  # ETHTOOL_GTXCSUM
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8946, request)
    return struct.unpack("=II", value.raw)[1] != 0


def test_both_ends_are_where_and_what_the_plan_says(plan, namespaces):
    for node in plan.nodes:
        found = inside(namespaces[node.name], lambda netlink: list(netlink.get_links()))
        assert {
            (link["index"], link.get("ifname"), link.get("address"), link.get("mtu"))
            for link in found
            if link.get("ifname") != "lo"
        } == {(port.ifindex, port.name, port.mac, plan.mtu) for port in node.ports}


def test_the_same_indexes_serve_two_labs(plan, namespaces):
    others = {node.name: netns.create() for node in plan.nodes}
    links.create(plan.links, plan.mtu, others)
    for fd in others.values():
        os.close(fd)


def test_a_host_knows_its_gateway_for_good(plan, namespaces):
    host = plan.node("h1")
    fd = namespaces["h1"]
    gateways = links.gateways(plan)
    with netns.entered(fd):
        links.configure(host, gateways)
        assert not offloads_checksums("eth1")
    (address,) = inside(fd, lambda n: list(n.get_addr(index=host.ports[0].ifindex)))
    assert (address.get("address"), address["prefixlen"]) == (host.address, 32)
    (route,) = inside(fd, lambda n: list(n.get_default_routes(family=socket.AF_INET)))
    assert route.get("gateway") == links.GATEWAY
    (neighbour,) = inside(fd, lambda n: list(n.get_neighbours(family=socket.AF_INET)))
    assert neighbour.get("lladdr") == plan.links[0].b.mac
    assert neighbour["state"] == 0x80


def test_a_switch_has_ports_and_no_addresses(plan, namespaces):
    fd = namespaces["s1"]
    with netns.entered(fd):
        links.configure(plan.node("s1"), links.gateways(plan))
    assert inside(fd, lambda n: list(n.get_addr())) == []
    up = inside(fd, lambda n: {x.get("ifname") for x in n.get_links() if x["flags"] & 1})
    assert up == {"p1", "p2"}


def test_nothing_speaks_ipv6(namespaces):
    for fd in namespaces.values():
        with netns.entered(fd):
            for scope in ("all", "default"):
                setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
                assert setting.read_text().strip() == "1"


def test_deletion_spares_what_only_looks_alike(plan, namespaces):
    s1 = plan.node("s1")
    first, second = s1.ports
    with netns.entered(namespaces["s1"]):
        links.delete([(first.ifindex, first.name), (second.ifindex, "another"), (9999, "none")])
    left = inside(namespaces["s1"], lambda n: {x.get("ifname") for x in n.get_links()})
    assert left == {"lo", second.name}
