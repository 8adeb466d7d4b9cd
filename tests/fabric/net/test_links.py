# SPDX-License-Identifier: GPL-2.0-or-later
import fcntl
import os
import socket
import struct
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from softroce_lab import topology
from softroce_lab.fabric.net import links, netns


@pytest.fixture
def plan():
    return topology.load("two-hosts")


@pytest.fixture
def namespaces(plan):
    yield from made(plan)


def made(plan):
    """The plan's namespaces with its links, which are down."""
    fds = {node.name: netns.create() for node in plan.nodes}
    for node in plan.nodes:
        with netns.entered(fds[node.name]):
            links.silence(node)
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


def test_a_host_knows_its_gateway_for_good(plan, namespaces):
    host = plan.node("h1")
    fd = namespaces["h1"]
    gateways = links.gateways(plan)
    with netns.entered(fd):
        links.configure(host, gateways)
        assert not offloads_checksums("eth1")
    assert addresses(fd, host.ports[0]) == {(host.address, 32), (host.ports[0].address6, 128)}
    (route,) = inside(fd, lambda n: list(n.get_default_routes(family=socket.AF_INET)))
    assert route.get("gateway") == links.GATEWAY
    (neighbour,) = inside(fd, lambda n: list(n.get_neighbours(family=socket.AF_INET)))
    assert neighbour.get("lladdr") == plan.links[0].b.mac
    assert neighbour["state"] == 0x80


def addresses(fd, port):
    found = inside(fd, lambda n: list(n.get_addr(index=port.ifindex)))
    return {(address.get("address"), address["prefixlen"]) for address in found}


def test_a_switch_does_not_speak_ipv6(plan, namespaces):
    with netns.entered(namespaces["s1"]):
        for scope in ("all", "default", *(port.name for port in plan.node("s1").ports)):
            setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            assert not setting.parent.exists() or setting.read_text().strip() == "1"


def test_without_ipv6_in_the_kernel_hosts_speak_ipv4(plan, namespaces, monkeypatch, tmp_path):
    monkeypatch.setattr(links, "_IPV6_SETTINGS", tmp_path / "none")
    with netns.entered(namespaces["h1"]):
        links.silence(plan.node("h1"))
        links.configure(plan.node("h1"), links.gateways(plan))
    port = plan.node("h1").ports[0]
    assert addresses(namespaces["h1"], port) == {(port.address, 32)}


def test_deletion_spares_what_only_looks_alike(plan, namespaces):
    s1 = plan.node("s1")
    first, second = s1.ports
    with netns.entered(namespaces["s1"]):
        links.delete([(first.ifindex, first.name), (second.ifindex, "another"), (9999, "none")])
    left = inside(namespaces["s1"], lambda n: {x.get("ifname") for x in n.get_links()})
    assert left == {"lo", second.name}


needs_ipv6 = pytest.mark.skipif(not links.has_ipv6(), reason="the kernel has no IPv6")


class TestRails:
    """Two rails a host."""

    @pytest.fixture
    def plan(self):
        return topology.load("dual-rail")

    @pytest.fixture
    def h1(self, plan, namespaces):
        with netns.entered(namespaces["h1"]):
            links.configure(plan.node("h1"), links.gateways(plan))
        return namespaces["h1"]

    def way(self, fd, to, source=None):
        """The port and the address by which the kernel would send there."""
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        question = {"family": family, "dst": to, **({"src": source} if source else {})}
        (route,) = inside(fd, lambda n: list(n.route("get", **question)))
        return route.get("oif"), source or route.get("prefsrc")

    @pytest.mark.parametrize("family", ["address", pytest.param("address6", marks=needs_ipv6)])
    def test_what_a_rail_sends_leaves_by_it(self, plan, h1, family):
        for mine in plan.node("h1").ports:
            for theirs in plan.node("h3").ports:
                source = getattr(mine, family)
                there = self.way(h1, getattr(theirs, family), source)
                assert there == (mine.ifindex, source)

    def test_a_kernel_that_routes_by_destination_alone_is_enough(
        self, plan, namespaces, monkeypatch
    ):
        def refuse(source, table):
            return False

        monkeypatch.setattr(links, "add_source_rule", refuse)
        with netns.entered(namespaces["h1"]):
            links.configure(plan.node("h1"), links.gateways(plan))
        _, two = plan.node("h1").ports
        assert self.way(namespaces["h1"], "10.1.0.3") == (two.ifindex, two.address)
