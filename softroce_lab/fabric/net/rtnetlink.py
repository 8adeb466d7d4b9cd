# SPDX-License-Identifier: GPL-2.0-or-later
"""rtnetlink(7) as far as a lab needs it: pairs of interfaces, and a host's addresses and routes.

Messages are packed by hand and sent together: with pyroute2's messages a lab of 101 nodes takes
over 1.15 times as long to come up (docs/records/library-choices.md). All netlink of
`fabric/` and `kernel_host/` is here. pyroute2 reads these messages in the tests.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple, TypeAlias

Ip: TypeAlias = IPv4Address | IPv6Address

TABLE_MAIN = 254

_BATCH = 64  # messages in a datagram: their responses fit into any socket's buffer
_TIMEOUT_S = 5.0  # the kernel responds before it returns from send
_RECEIVE_BYTES = 1 << 16

# linux/netlink.h
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ACKNOWLEDGED = 0x1 | 0x4  # NLM_F_REQUEST, _ACK
_CREATE = _ACKNOWLEDGED | 0x200 | 0x400  # NLM_F_EXCL, _CREATE
_NLMSG_ERROR = 2

# linux/rtnetlink.h, if_link.h, veth.h, if_addr.h, neighbour.h, fib_rules.h
_NEW_ADDRESS, _NEW_ROUTE, _NEW_NEIGHBOUR, _NEW_RULE = 20, 24, 28, 32
_NEW_LINK, _DEL_LINK = 16, 17
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO = 1, 3, 4, 18
_IFLA_NET_NS_FD, _IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 28, 31, 32
_INFO_KIND, _INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFLA_MASTER, _BR_FORWARD_DELAY, _BR_MCAST_SNOOPING = 10, 1, 23
_IFA_ADDRESS, _IFA_LOCAL, _IFA_F_NODAD = 1, 2, 0x02
_NDA_DST, _NDA_LLADDR, _NUD_PERMANENT, _RTN_UNICAST = 1, 2, 0x80, 1
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 4, 5, 7
_RTPROT_BOOT, _RTNH_F_ONLINK = 3, 4
_FRA_SRC, _FR_ACT_TO_TBL = 2, 1

# linux/rtnetlink.h, pkt_sched.h
_NEW_QDISC, _DEL_QDISC, _TCA_KIND, _TCA_OPTIONS = 36, 37, 1, 2
_REPLACE = _ACKNOWLEDGED | 0x100 | 0x400  # NLM_F_REPLACE, _CREATE
_TC_H_ROOT, _TC_LINKLAYER_ETHERNET = 0xFFFFFFFF, 1
_TCA_TBF_PARMS, _TCA_TBF_RATE64, _TCA_TBF_BURST = 1, 4, 6
_MOST_U32 = 0xFFFFFFFF


class Message(NamedTuple):
    kind: int
    body: bytes
    flags: int = _CREATE


def _family(ip: Ip) -> int:
    return socket.AF_INET if ip.version == 4 else socket.AF_INET6


def _attribute(kind: int, value: bytes) -> bytes:
    padding = bytes(-len(value) % 4)
    return struct.pack("=HH", 4 + len(value), kind) + value + padding


def _link(index: int) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, 0, 0)


def veth_end(index: int, name: str, mac: str, mtu: int, namespace: int) -> bytes:
    """One end of a pair, in the namespace behind the descriptor `namespace`."""
    # One queue: an AF_XDP socket serves one, and one keeps the frames of a link in order.
    numbers = {_IFLA_MTU: mtu, _IFLA_NET_NS_FD: namespace}
    numbers |= {_IFLA_NUM_TX_QUEUES: 1, _IFLA_NUM_RX_QUEUES: 1}
    attributes = [_attribute(kind, struct.pack("=I", value)) for kind, value in numbers.items()]
    attributes.append(_attribute(_IFLA_IFNAME, name.encode() + b"\0"))
    attributes.append(_attribute(_IFLA_ADDRESS, bytes.fromhex(mac.replace(":", ""))))
    return _link(index) + b"".join(attributes)


def veth(near: bytes, far: bytes) -> Message:
    data = _attribute(_INFO_DATA, _attribute(_VETH_INFO_PEER, far))
    kind = _attribute(_INFO_KIND, b"veth")
    return Message(_NEW_LINK, near + _attribute(_IFLA_LINKINFO, kind + data))


def bridge(index: int, name: str) -> Message:
    """A bridge, down, that forwards as soon as it has ports; a `%d` in its name is a number."""
    options = _attribute(_BR_FORWARD_DELAY, struct.pack("=I", 0))
    options += _attribute(_BR_MCAST_SNOOPING, b"\0")
    info = _attribute(_INFO_KIND, b"bridge") + _attribute(_INFO_DATA, options)
    attributes = _attribute(_IFLA_IFNAME, name.encode() + b"\0") + _attribute(_IFLA_LINKINFO, info)
    return Message(_NEW_LINK, _link(index) + attributes)


def enslave(index: int, master: int) -> Message:
    attribute = _attribute(_IFLA_MASTER, struct.pack("=I", master))
    return Message(_NEW_LINK, _link(index) + attribute, _ACKNOWLEDGED)


def no_link(index: int) -> Message:
    return Message(_DEL_LINK, _link(index), _ACKNOWLEDGED)


def address(ifindex: int, ip: Ip) -> Message:
    """`ip`, and nothing else of its network, is at this interface; not asked for as a duplicate."""
    flags = _IFA_F_NODAD if ip.version == 6 else 0
    head = struct.pack("=BBBBI", _family(ip), ip.max_prefixlen, flags, 0, ifindex)
    attributes = _attribute(_IFA_LOCAL, ip.packed) + _attribute(_IFA_ADDRESS, ip.packed)
    return Message(_NEW_ADDRESS, head + attributes)


def neighbour(ifindex: int, ip: Ip, mac: str) -> Message:
    """`ip` has this MAC address for good."""
    head = struct.pack("=BBHiHBB", _family(ip), 0, 0, ifindex, _NUD_PERMANENT, 0, _RTN_UNICAST)
    link_address = bytes.fromhex(mac.replace(":", ""))
    attributes = _attribute(_NDA_DST, ip.packed) + _attribute(_NDA_LLADDR, link_address)
    return Message(_NEW_NEIGHBOUR, head + attributes)


class Way(NamedTuple):
    """Where a route leads: by an interface to a gateway, as the host that `source` is."""

    ifindex: int
    gateway: Ip
    source: Ip


def route(way: Way, prefix: tuple[Ip, int] | None = None, table: int = TABLE_MAIN) -> Message:
    """A route to a prefix (its address and length), or the default route."""
    destination, bits = prefix or (None, 0)
    # An IPv4 gateway need not be in a network of the interface's: none is.
    flags = _RTNH_F_ONLINK if way.gateway.version == 4 else 0
    kinds = (table, _RTPROT_BOOT, 0, _RTN_UNICAST)
    head = struct.pack("=BBBBBBBBI", _family(way.gateway), bits, 0, 0, *kinds, flags)
    attributes = _attribute(_RTA_OIF, struct.pack("=I", way.ifindex))
    attributes += _attribute(_RTA_GATEWAY, way.gateway.packed)
    attributes += _attribute(_RTA_PREFSRC, way.source.packed)
    if destination is not None:
        attributes += _attribute(_RTA_DST, destination.packed)
    return Message(_NEW_ROUTE, head + attributes)


def rule(source: Ip, table: int) -> Message:
    kinds = (0, source.max_prefixlen, 0, table, 0, 0, _FR_ACT_TO_TBL)
    head = struct.pack("=BBBBBBBBI", _family(source), *kinds, 0)
    return Message(_NEW_RULE, head + _attribute(_FRA_SRC, source.packed))


def _root_qdisc(ifindex: int) -> bytes:
    return struct.pack("=BxxxiIII", 0, ifindex, 0, _TC_H_ROOT, 0)


def token_bucket(ifindex: int, rate_bps: int, burst_bytes: int, limit_bytes: int) -> Message:
    """The kernel sends by this interface no faster than a token bucket allows, tc-tbf(8)."""
    rate = rate_bps // 8
    spec = struct.pack("=BBHhHI", 0, _TC_LINKLAYER_ETHERNET, 0, 0, 0, min(rate, _MOST_U32))
    parameters = spec + bytes(len(spec)) + struct.pack("=III", limit_bytes, 0, 0)
    options = _attribute(_TCA_TBF_PARMS, parameters)
    options += _attribute(_TCA_TBF_BURST, struct.pack("=I", burst_bytes))
    if rate > _MOST_U32:
        options += _attribute(_TCA_TBF_RATE64, struct.pack("=Q", rate))
    attributes = _attribute(_TCA_KIND, b"tbf\0") + _attribute(_TCA_OPTIONS, options)
    return Message(_NEW_QDISC, _root_qdisc(ifindex) + attributes, _REPLACE)


def no_qdisc(ifindex: int) -> Message:
    """The interface has its default queueing discipline again."""
    return Message(_DEL_QDISC, _root_qdisc(ifindex), _ACKNOWLEDGED)


def request(messages: Sequence[Message]) -> None:
    """Have all of it done in the calling thread's network namespace.

    OSError for the first that the kernel rejects; the others are applied nevertheless.
    """
    parts = [
        _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body
        for sequence, (kind, body, flags) in enumerate(messages)
    ]
    kinds = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    refused: list[int] = []
    with socket.socket(socket.AF_NETLINK, kinds, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_TIMEOUT_S)
        for first in range(0, len(parts), _BATCH):
            batch = parts[first : first + _BATCH]
            netlink.send(b"".join(batch))
            refused += [error for _ in batch if (error := _answer(netlink))]
    if refused:
        raise OSError(refused[0], os.strerror(refused[0]))


def _answer(netlink: socket.socket) -> int:
    """The next response's errno, 0 for success. Each comes in a datagram of its own."""
    data = netlink.recv(_RECEIVE_BYTES)
    _, kind, *_ = _HEADER.unpack_from(data)
    (error,) = struct.unpack_from("=i", data, _HEADER.size)
    return -int(error) if kind == _NLMSG_ERROR else 0
