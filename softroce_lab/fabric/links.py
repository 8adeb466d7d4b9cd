# SPDX-License-Identifier: GPL-2.0-or-later
"""veth pairs and the addresses of hosts.

All pairs are made by one batch of netlink messages from wherever we are, each end directly in
its namespace. What remains per port is an ioctl or two inside the namespace, which is cheaper than
opening a netlink socket there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from softroce_lab.topology.plan import Link, Node, Plan, Port

GATEWAY = "169.254.0.1"  # link-local, the same at every host: its first switch

_IFF_UP = 0x1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCETHTOOL = 0x8946
_ETHTOOL_STXCSUM = 0x17
_NUD_PERMANENT = 0x80
_RTNH_F_ONLINK = 4


def create(links: Iterable[Link], mtu: int, namespaces: Mapping[str, int]) -> None:
    """Make all veth pairs, down, with the plan's names, indexes and addresses.

    `namespaces` maps each node to a descriptor of its namespace. NetlinkError.
    """
    messages = [_new_pair(link, mtu, namespaces) for link in links]
    with IPRoute() as netlink:
        netlink.nlm_request_batch(messages)


def _new_pair(link: Link, mtu: int, namespaces: Mapping[str, int]) -> ifinfmsg:
    peer = {"index": link.b.ifindex, "attrs": _end(link.b, mtu, namespaces[link.b.node])}
    veth = {"attrs": [("VETH_INFO_PEER", peer)]}
    kind = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", veth)]}
    message = ifinfmsg()
    message["index"] = link.a.ifindex
    message["attrs"] = [*_end(link.a, mtu, namespaces[link.a.node]), ("IFLA_LINKINFO", kind)]
    message["header"] = {
        "type": RTM_NEWLINK,
        "flags": NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
    }
    return message


def _end(port: Port, mtu: int, namespace: int) -> list[tuple[str, Any]]:
    return [
        ("IFLA_IFNAME", port.name),
        ("IFLA_ADDRESS", port.mac),
        ("IFLA_MTU", mtu),
        ("IFLA_NET_NS_FD", namespace),
        # One queue: an AF_XDP socket serves one, and one keeps the frames of a link in order.
        ("IFLA_NUM_TX_QUEUES", 1),
        ("IFLA_NUM_RX_QUEUES", 1),
    ]


def delete(ports: Iterable[tuple[int, str]]) -> None:
    """Delete these (index, name), where they exist, in the calling thread's namespace."""
    with IPRoute() as netlink:
        for index, name in ports:
            with contextlib.suppress(NetlinkError):
                (present,) = netlink.link("get", index=index)
                if present.get("ifname") == name:
                    netlink.link("del", index=index)


def silence() -> None:
    """No IPv6 autoconfiguration in the calling thread's namespace: an idle fabric is silent."""
    for scope in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")


def configure(node: Node, gateways: Mapping[int, str]) -> None:
    """Bring up the node's ports, and a host's addresses; the calling thread is in its namespace.

    `gateways` maps the ifindex of a host's port to the MAC of the switch port at its other end.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if node.kind == "host":
            _bring_up(control, "lo")
        for port in node.ports:
            if node.kind == "host":
                _checksum_in_software(control, port.name)
            _bring_up(control, port.name)
    if node.address is not None:
        _address(node, gateways)


def _request(name: str, data: bytes) -> bytes:
    """A struct ifreq."""
    return struct.pack("16s24s", name.encode(), data)


def _bring_up(control: socket.socket, name: str) -> None:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _request(name, b""))
    (flags,) = struct.unpack_from("=H", answer, 16)
    fcntl.ioctl(control, _SIOCSIFFLAGS, _request(name, struct.pack("=H", flags | _IFF_UP)))


def _checksum_in_software(control: socket.socket, name: str) -> None:
    """Turn transmit checksum offload off, and with it scatter-gather and segmentation offload.

    A redirected frame never meets the code that would fill the checksum in.
    """
    value = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_STXCSUM, 0))
    pointer = struct.pack("P", ctypes.addressof(value))
    fcntl.ioctl(control, _SIOCETHTOOL, _request(name, pointer))


def _address(node: Node, gateways: Mapping[int, str]) -> None:
    uplink = node.ports[0].ifindex
    with IPRoute() as netlink:
        netlink.addr("add", index=uplink, address=node.address, prefixlen=32)
        for port in node.ports:
            netlink.neigh(
                "add",
                ifindex=port.ifindex,
                dst=GATEWAY,
                lladdr=gateways[port.ifindex],
                state=_NUD_PERMANENT,
            )
        netlink.route("add", dst="default", gateway=GATEWAY, oif=uplink, flags=_RTNH_F_ONLINK)


def gateways(plan: Plan) -> dict[int, str]:
    """ifindex of every port -> MAC of the port at the other end of its link."""
    pairs = [(link.a, link.b) for link in plan.links]
    return {near.ifindex: far.mac for a, b in pairs for near, far in ((a, b), (b, a))}
