# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP echoes between two hosts of a lab, sent from inside a host's namespace.

Round trips end with the kernel's stamp of the reply's arrival (SO_TIMESTAMPNS), so that how late
this process is scheduled does not count.
"""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from softroce_lab.errors import UserError
from softroce_lab.plan.plan import Port

INITIAL_TTL = 64  # of Linux hosts: what is missing from it are hops

_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("=qq")
_ECHO = struct.Struct("!BBHHH")
_HEADERS_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}  # IP and ICMP
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENOBUFS)
_BUFFER_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    sequence: int
    rtt_ns: int
    hops: int  # switches on the way back
    duplicate: bool


@dataclasses.dataclass(slots=True)
class Outcome:
    sent: int = 0
    replies: list[Reply] = dataclasses.field(default_factory=list)

    @property
    def firsts(self) -> list[Reply]:
        return [reply for reply in self.replies if not reply.duplicate]

    @property
    def loss(self) -> float:
        """Share of the echoes without any reply, 0 to 1."""
        return 1 - len(self.firsts) / self.sent if self.sent else 0.0

    def rtt_ns(self) -> dict[str, float] | None:
        """Least, mean, most and mean deviation, as ping(8) has them; None without a reply."""
        times = [reply.rtt_ns for reply in self.firsts]
        if not times:
            return None
        mean = sum(times) / len(times)
        squares = sum(each * each for each in times) / len(times)
        return {
            "min": min(times),
            "avg": mean,
            "max": max(times),
            "mdev": math.sqrt(max(0.0, squares - mean * mean)),
        }


class Pinger:
    """A raw socket that sends echoes from one port's address; it stays in its namespace."""

    def __init__(self, source: Port, target: Port, *, ipv6: bool = False) -> None:
        """Open it in the calling thread's namespace. OSError."""
        self._family = socket.AF_INET6 if ipv6 else socket.AF_INET
        protocol = socket.IPPROTO_ICMPV6 if ipv6 else socket.IPPROTO_ICMP
        self._request, self._answer = (128, 129) if ipv6 else (8, 0)
        self._identifier = os.getpid() & 0xFFFF
        self._target = (_address(target, ipv6=ipv6), 0)
        self._sent_ns: dict[int, int] = {}
        self._answered: set[int] = set()
        self._socket = socket.socket(self._family, socket.SOCK_RAW, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            if ipv6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, source.name.encode())
            self._socket.bind((_address(source, ipv6=ipv6), 0))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, sequence: int, size_bytes: int) -> None:
        """Send one echo with so many bytes of data, lost at once if there is no way. OSError."""
        head = _ECHO.pack(self._request, 0, 0, self._identifier, sequence & 0xFFFF)
        data = bytes(i & 0xFF for i in range(size_bytes))
        if self._family == socket.AF_INET:  # of ICMPv6 the kernel computes it
            total = checksum(head + data)
            head = _ECHO.pack(self._request, 0, total, self._identifier, sequence & 0xFFFF)
        self._sent_ns[sequence & 0xFFFF] = time.time_ns()
        try:
            self._socket.sendto(head + data, self._target)
        except OSError as error:
            if error.errno not in _NO_WAY:
                raise

    def receive(self, until_ns: int) -> Iterator[Reply]:
        """Replies as they arrive, until CLOCK_MONOTONIC is `until_ns`."""
        while (left_ns := until_ns - time.monotonic_ns()) > 0:
            self._socket.settimeout(left_ns / 1e9)
            try:
                data, extra, _, _ = self._socket.recvmsg(_BUFFER_BYTES, 512)
            except TimeoutError:
                return
            reply = self._read(data, extra)
            if reply is not None:
                yield reply

    def _read(self, data: bytes, extra: Sequence[tuple[int, int, bytes]]) -> Reply | None:
        ttl = _hop_limit(extra)
        if self._family == socket.AF_INET:  # a raw socket gives the IP header too
            ttl, data = data[8], data[(data[0] & 0xF) * 4 :]
            if checksum(data):  # a link flipped a bit; the kernel checks ICMPv6 itself
                return None
        if len(data) < _ECHO.size:
            return None
        kind, _, _, identifier, sequence = _ECHO.unpack_from(data)
        if (kind, identifier) != (self._answer, self._identifier) or sequence not in self._sent_ns:
            return None
        duplicate = sequence in self._answered
        self._answered.add(sequence)
        rtt_ns = _stamp_ns(extra) - self._sent_ns[sequence]
        return Reply(sequence, max(0, rtt_ns), INITIAL_TTL - ttl, duplicate)


def run(
    pinger: Pinger,
    *,
    count: int,
    interval_ns: int,
    size_bytes: int,
    timeout_ns: int,
    say: Callable[[Reply], None],
) -> Outcome:
    """Send `count` echoes; the last one is waited for `timeout_ns` at most."""
    outcome = Outcome()
    next_ns = time.monotonic_ns()
    for sequence in range(1, count + 1):
        pinger.send(sequence, size_bytes)
        outcome.sent += 1
        last = sequence == count
        next_ns = time.monotonic_ns() + timeout_ns if last else next_ns + interval_ns
        for reply in pinger.receive(next_ns):
            outcome.replies.append(reply)
            say(reply)
            if last and len(outcome.firsts) == count:
                break
    return outcome


def check_size(size_bytes: int, mtu_bytes: int, *, ipv6: bool) -> None:
    """UserError if so much data would need fragments, which carry no flow for the switches."""
    most = mtu_bytes - _HEADERS_BYTES[socket.AF_INET6 if ipv6 else socket.AF_INET]
    if size_bytes > most:
        raise UserError(
            f"{size_bytes} bytes of data do not fit an MTU of {mtu_bytes}", hint=f"at most {most}"
        )


def checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _address(port: Port, *, ipv6: bool) -> str:
    address = port.address6 if ipv6 else port.address
    assert address is not None, f"{port} is not a host's"  # noqa: S101
    return address


def _stamp_ns(extra: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, value in extra:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _STAMP.unpack_from(value)
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()


def _hop_limit(extra: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, value in extra:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT):
            return int.from_bytes(value[:4], sys.byteorder)
    return INITIAL_TTL
