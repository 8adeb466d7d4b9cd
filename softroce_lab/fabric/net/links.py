# SPDX-License-Identifier: GPL-2.0-or-later
"""veth pairs, and the addresses and routes of hosts.

All pairs are made by one batch of netlink messages from wherever we are, each end directly in
its namespace. What remains per port is an ioctl or two inside the namespace, which is cheaper than
a netlink socket there, and for hosts a single datagram.

Every rail of a host has addresses of its own, IPv4 and IPv6, and the same link-local gateways
behind it. A rail's own network (10.RAIL.0.0/16) is reached over that rail, everything else over
the first; and what is sent from a rail's address leaves by that rail, whatever its destination,
for a switch takes nothing from a host under another's name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from softroce_lab.fabric.net import rtnetlink
from softroce_lab.fabric.net.rtnetlink import Ip, Message, Way
from softroce_lab.plan.plan import Link, Node, Plan, Port

GATEWAY = "169.254.0.1"  # link-local, the same at every host: its first switch
GATEWAY6 = "fe80::1"

_IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")
_ADDR_GEN_NONE = 1  # IN6_ADDR_GEN_MODE_NONE: no link-local address
_STAND_IN = "02:54"  # how a MAC address begins in place of the plan's 02:53
FIRST_TABLE = 100  # of the first rail's routes, the next one's follow
IFF_UP = 0x1
IFF_NOARP = 0x80
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCETHTOOL = 0x8946
_ETHTOOL_STXCSUM = 0x17


def create(
    links: Iterable[Link],
    mtu: int,
    namespaces: Mapping[str, int],
    behind_bridges: Collection[str] = (),
) -> None:
    """Make all veth pairs, down, with the plan's names, indexes and addresses.

    `namespaces` maps each node to a descriptor of its namespace. The nodes `behind_bridges`
    own their MAC addresses there, so their ports here have others. OSError.
    """

    def end(port: Port) -> bytes:
        namespace = namespaces[port.node]
        mac = _STAND_IN + port.mac[5:] if port.node in behind_bridges else port.mac
        return rtnetlink.veth_end(port.ifindex, port.name, mac, mtu, namespace)

    rtnetlink.request([rtnetlink.veth(end(link.a), end(link.b)) for link in links])


def delete(ports: Iterable[tuple[int, str]]) -> None:
    """Delete these (index, name), where they exist, in the calling thread's namespace."""
    for index, name in ports:
        with contextlib.suppress(OSError):
            if socket.if_indextoname(index) == name:
                rtnetlink.request([rtnetlink.no_link(index)])


def silence(node: Node) -> None:
    """No IPv6 autoconfiguration in the calling thread's namespace: an idle fabric sends nothing.

    Before the node's links are made, which inherit it. A switch has no use for IPv6, nor has what
    is around a guest; a host has none but the plan's addresses. OSError.
    """
    if not has_ipv6():
        return
    if node.kind != "host":
        _set_ipv6("all", disable_ipv6=1)  # of a loopback that is there already
        _set_ipv6("default", disable_ipv6=1)
    else:
        _set_ipv6("all", disable_ipv6=0)
        _set_ipv6("default", disable_ipv6=0, addr_gen_mode=_ADDR_GEN_NONE, accept_ra=0)


def has_ipv6() -> bool:
    return _IPV6_SETTINGS.is_dir()


def _set_ipv6(scope: str, **settings: int) -> None:
    for name, value in settings.items():
        (_IPV6_SETTINGS / scope / name).write_text(str(value))


def configure(node: Node, gateways: Mapping[int, str]) -> None:
    """Bring up the node's ports, and a host's addresses; the calling thread is in its namespace.

    `gateways` maps the ifindex of a host's port to the MAC of the switch port at its other end.
    OSError.
    """
    host = node.kind == "host"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if host:
            raise_flags(control, "lo", IFF_UP)
        for port in node.ports:
            if host:
                _checksum_in_software(control, port.name)
            # Without ARP, thus without neighbour discovery, a host joins no multicast group of its
            # own and has nothing to report about it. Its only neighbours are permanent.
            raise_flags(control, port.name, IFF_UP | (IFF_NOARP if host else 0))
    if host:
        rtnetlink.request([message for port in node.ports for message in _rail(port, gateways)])
        rtnetlink.request(list(_routes(node)))
        if len(node.ports) > 1:
            _route_by_source(node)


def _request(name: str, data: bytes) -> bytes:
    return struct.pack("16s24s", name.encode(), data)


def flags_of(control: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _request(name, b""))
    return int(struct.unpack_from("=H", answer, 16)[0])


def raise_flags(control: socket.socket, name: str, raised: int) -> None:
    flags = flags_of(control, name) | raised
    fcntl.ioctl(control, _SIOCSIFFLAGS, _request(name, struct.pack("=H", flags)))


def _checksum_in_software(control: socket.socket, name: str) -> None:
    """Turn transmit checksum offload off, and with it scatter-gather and segmentation offload.

    A redirected frame never meets the code that would fill the checksum in.
    """
    value = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_STXCSUM, 0))
    pointer = struct.pack("P", ctypes.addressof(value))
    fcntl.ioctl(control, _SIOCETHTOOL, _request(name, pointer))


def _ways(port: Port) -> Iterator[Way]:
    """From a rail to its gateway, in IPv4 and, if the kernel has it, in IPv6."""
    if port.address is None or port.address6 is None:
        raise ValueError(f"{port} is no host's")
    yield Way(port.ifindex, IPv4Address(GATEWAY), IPv4Address(port.address))
    if has_ipv6():
        yield Way(port.ifindex, IPv6Address(GATEWAY6), IPv6Address(port.address6))


def _rail(port: Port, gateways: Mapping[int, str]) -> Iterator[Message]:
    for way in _ways(port):
        yield rtnetlink.address(way.ifindex, way.source)
        yield rtnetlink.neighbour(way.ifindex, way.gateway, gateways[way.ifindex])


def _routes(node: Node) -> Iterator[Message]:
    yield from (rtnetlink.route(way) for way in _ways(node.ports[0]))
    if len(node.ports) > 1:
        for way in (way for port in node.ports for way in _ways(port)):
            yield rtnetlink.route(way, network(way.source))


def network(address: Ip) -> tuple[Ip, int]:
    """The network of a rail: all but the last 16 bits of its addresses."""
    bits = address.max_prefixlen - 16
    whole = ipaddress.ip_network((address, bits), strict=False)
    return whole.network_address, bits


def _route_by_source(node: Node) -> None:
    """Packets with a rail's address leave by that rail, if the kernel supports source routing."""
    for table, port in enumerate(node.ports, FIRST_TABLE):
        for way in _ways(port):
            if add_source_rule(way.source, table):
                rtnetlink.request([rtnetlink.route(way, table=table)])


def add_source_rule(source: Ip, table: int) -> bool:
    """Have the kernel route by `table` what comes from `source`; whether it can. OSError."""
    try:
        rtnetlink.request([rtnetlink.rule(source, table)])
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
            return False
        raise
    return True


def gateways(plan: Plan) -> dict[int, str]:
    """ifindex of every port -> MAC of the port at the other end of its link."""
    return {near.ifindex: far.mac for _, near, far in plan.halves}
