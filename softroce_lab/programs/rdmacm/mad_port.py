# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pair 1 of a host's ports, on sockets of the kernel: MADs as they are on the wire.

XDP leaves frames for queue pair 1 to the kernel (`host_port` of xdp/fabric.c). The ICRC covers the
identifier of an IPv4 packet. Linux's rxe chooses it at random, and no UDP socket tells it: packet
sockets receive whole frames. UDP sockets send. They also hold UDP port 4791, or the kernel would
answer frames with ICMP errors.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv6Address

from softroce_lab import _native
from softroce_lab.fabric.net import links
from softroce_lab.programs.rdmacm.connection import Send, Way
from softroce_lab.programs.rdmacm.messages import GSI_QKEY, GSI_QPN, address_of, gid_of

ROCE_UDP_PORT = 4791
UD_SEND_ONLY = 0x64
_LONGEST_FRAME_BYTES = 2048
_MOST_AT_ONCE = 64  # frames, before programs have their turn again

_UDP_AT = {4: 14 + 20, 6: 14 + 40}  # in a frame, by IP version
_HEAD_BYTES = {version: at + 8 for version, at in _UDP_AT.items()}  # up to the BTH
_ETHERTYPES = {4: 0x0800, 6: 0x86DD}

_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2  # linux/in.h
_IP_PKTINFO = 8
_SO_NO_CHECK, _SO_ATTACH_FILTER = 11, 26  # asm-generic/socket.h
_UDP_NO_CHECK6_TX = 101  # linux/udp.h

_LOAD_HALF, _LOAD_WORD, _AND, _UNLESS_EQUAL, _RETURN = 0x28, 0x20, 0x54, 0x15, 0x06


class MadPort:
    """Sends and receives MADs of the network namespace that it is made in."""

    def __init__(self) -> None:
        versions = (4, 6) if links.has_ipv6() else (4,)
        with contextlib.ExitStack() as stack:
            self._senders = {each: stack.enter_context(_sender(each)) for each in versions}
            self.receivers = [stack.enter_context(_receiver(each)) for each in versions]
            self._stack = stack.pop_all()
        self._psns: collections.Counter[IPv6Address] = collections.Counter()  # by local GID

    def close(self) -> None:
        self._stack.close()

    def send(self, send: Send) -> None:
        """A MAD that cannot leave is lost: its sender repeats it."""
        way = send.way
        local, peer = address_of(way.local), address_of(way.peer)
        version = local.version
        if version != peer.version or version not in self._senders:
            return
        datagram = frame_of(send, self._psns[way.local])[_HEAD_BYTES[version] :]
        self._psns[way.local] += 1
        if version == 4:
            source = (socket.IPPROTO_IP, _IP_PKTINFO, struct.pack("=I4s4x", 0, local.packed))
        else:
            source = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, local.packed + bytes(4))
        with contextlib.suppress(OSError):
            self._senders[version].sendmsg([datagram], [source], 0, (str(peer), ROCE_UDP_PORT))

    def receive(self, receiver: socket.socket) -> Iterator[tuple[Way, bytes]]:
        """Some of the MADs that came to one of `receivers`."""
        for _ in range(_MOST_AT_ONCE):
            try:
                frame = receiver.recv(_LONGEST_FRAME_BYTES)
            except BlockingIOError:
                return
            if (mad := mad_in(frame)) is not None:
                yield mad


def frame_of(send: Send, psn: int) -> bytes:
    """The frame that carries a MAD, without MAC addresses. The kernel writes the same headers."""
    local, peer = address_of(send.way.local), address_of(send.way.peer)
    ip, priority = ("ip", "ip.dsfield") if local.version == 4 else ("ipv6", "ipv6.tclass")
    fields = {
        f"{ip}.src": int(local),
        f"{ip}.dst": int(peer),
        priority: 0,
        "udp.srcport": ROCE_UDP_PORT,
        "infiniband.bth.opcode": UD_SEND_ONLY,
        "infiniband.bth.destqp": GSI_QPN,
        "infiniband.bth.psn": psn & 0xFFFFFF,
        "infiniband.deth.q_key": GSI_QKEY,
        "infiniband.deth.srcqp": GSI_QPN,
        "payload": send.mad,
    }
    if local.version == 4:
        fields["ip.id"] = 0  # as Linux sets it where DF is set and the socket is not connected
    frame: bytes = _native.encode_frame(fields)
    return frame


def mad_in(frame: bytes) -> tuple[Way, bytes] | None:
    """Who sent it to whom, and the MAD. None: the frame has none, or is damaged."""
    fields = _native.decode_frame(frame)
    if isinstance(fields, str) or fields["infiniband.bth.destqp"] != GSI_QPN:
        return None
    if fields.get("infiniband.deth.q_key") != GSI_QKEY:
        return None
    ip = "ip" if "ip.src" in fields else "ipv6"
    local, peer = (_gid(fields[f"{ip}.{end}"]) for end in ("dst", "src"))
    return Way(local, peer), fields["payload"]


def _gid(number: int) -> IPv6Address:
    """Of an address as the codec has it: below 2^32 it is of IPv4."""
    return gid_of(address_of(IPv6Address(number if number >> 32 else 0xFFFF << 32 | number)))


def _sender(version: int) -> socket.socket:
    """Bound to the port of RoCE, without UDP checksums; what comes to it is thrown away."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    _attach(made, [(_RETURN, 0, 0, 0)])
    if version == 4:
        made.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        made.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
    else:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_TX, 1)
    made.bind(("", ROCE_UDP_PORT))
    return made


def _receiver(version: int) -> socket.socket:
    """Takes the frames of one IP version that are for queue pair 1, and few others."""
    protocol = socket.htons(_ETHERTYPES[version])
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, protocol)
    _attach(made, [
        (_LOAD_HALF, 0, 0, _UDP_AT[version] + 2),
        (_UNLESS_EQUAL, 0, 4, ROCE_UDP_PORT),
        (_LOAD_WORD, 0, 0, _HEAD_BYTES[version] + 4),  # of the BTH: 8 reserved bits, the queue pair
        (_AND, 0, 0, 0xFFFFFF),
        (_UNLESS_EQUAL, 0, 1, GSI_QPN),
        (_RETURN, 0, 0, _LONGEST_FRAME_BYTES),
        (_RETURN, 0, 0, 0),
    ])  # fmt: skip
    return made


def _attach(to: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    """A filter of classic BPF: code, jumps where true and false, operand."""
    octets = b"".join(struct.pack("=HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(octets, len(octets))
    fprog = struct.pack("HP", len(program), ctypes.addressof(buffer))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)
