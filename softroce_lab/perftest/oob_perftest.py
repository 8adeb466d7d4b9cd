# SPDX-License-Identifier: GPL-2.0-or-later
"""Out-of-band exchange in perftest's words, for a peer that is one of its programs.

As perftest 4.5+0.17 (which calls itself 6.06) speaks on TCP without -R or -z; found in its source
(src/perftest_communication.c) and in what its programs write to each other. docs/connections.md
has which exchange comes when. In each exchange the client sends first.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Sequence
from typing import ClassVar, Self

from softroce_lab.perftest.oob import OobError, OobSocket, gid_of_raw, raw_of_gid, text_of
from softroce_lab.rnic.addr import GID

VERSION = "6.06"
OLDEST_VERSION = 5.70
"""Peers before this are refused, as perftest refuses them."""

VERBS = ("write", "send", "read", "atomic")
KINDS = ("bw", "lat")

PAGE_BYTES = 4096
CACHE_LINE_BYTES = 64

_VERSION_BYTES = 16
_MTUS = range(1, 6)  # enum ibv_mtu
_INT = struct.Struct(">i")
_LONG = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_DONE = b"done\0"


@dataclasses.dataclass(frozen=True, slots=True)
class PerftestDest:
    """A queue pair and the memory that goes with it: `KEY_PRINT_FMT_GID` of perftest."""

    qpn: int
    psn: int
    gid: GID
    rkey: int = 0
    vaddr: int = 0
    out_reads: int = 1
    srqn: int = 0
    lid: int = 0

    SIZE_BYTES: ClassVar[int] = 108

    def build(self) -> bytes:
        """108 octets, the last of them 0."""
        gid = ":".join(f"{octet:02x}" for octet in raw_of_gid(self.gid))
        text = (
            f"{self.lid:04x}:{self.out_reads:04x}:{self.qpn:06x}:{self.psn:06x}:"
            f"{self.rkey:08x}:{self.vaddr:016x}:{gid}:{self.srqn:08x}:"
        )
        return text.encode("ascii").ljust(self.SIZE_BYTES, b"\0")

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """The peer's message; OobError if it is malformed."""
        text = text_of(octets)
        if not re.fullmatch("([0-9a-f]{1,16}:){6}([0-9a-f]{2}:){16}[0-9a-f]{1,8}:", text, re.I):
            raise OobError(f"not a perftest's address: {octets!r}")
        numbers = [int(each, 16) for each in text.split(":")[:-1]]
        lid, out_reads, qpn, psn, rkey, vaddr = numbers[:6]
        gid = gid_of_raw(bytes(numbers[6:22]))
        return cls(qpn, psn, gid, rkey, vaddr, out_reads, numbers[22], lid)


@dataclasses.dataclass(frozen=True, slots=True)
class BwReport:
    """What a bandwidth test's side measured: `struct bw_report_data`.

    Bandwidths are in the unit that the sender reports in: MiB/s or, with --report_gbits, Gb/s.
    `message_rate_avg` is in millions a second.
    """

    size_bytes: int = 0
    iterations: int = 0
    bw_peak: float = 0.0
    bw_avg: float = 0.0
    message_rate_avg: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Negotiated:
    """What both sides came to."""

    version: str  # the peer's
    mtu: int  # enum ibv_mtu: the smaller one
    cycle_buffer_bytes: int  # the larger one
    cache_line_bytes: int  # the larger one


class PerftestPeer:
    """The exchange with a perftest program, or with `lab perf`."""

    def __init__(self, peer: OobSocket, *, client: bool) -> None:
        self._peer = peer
        self._client = client

    def swap(self, own: bytes) -> bytes:
        """Send `own`, receive as many octets."""
        if self._client:
            self._peer.write(own)
            return self._peer.read(len(own))
        received = self._peer.read(len(own))
        self._peer.write(own)
        return received

    def negotiate(
        self,
        mtu: int,
        *,
        cycle_buffer_bytes: int = PAGE_BYTES,
        cache_line_bytes: int = CACHE_LINE_BYTES,
    ) -> Negotiated:
        """Versions, page and cache line sizes, path MTUs: what every program begins with."""
        version = text_of(self.swap(VERSION.encode().ljust(_VERSION_BYTES, b"\0")))
        found = re.match(r"\d+(\.\d+)?", version)
        if not found or float(found[0]) < OLDEST_VERSION:
            raise OobError(
                f"{self._peer.peer} speaks perftest's version {version!r}",
                hint=f"versions from {OLDEST_VERSION:.2f} on are understood",
            )
        buffer = self._larger(cycle_buffer_bytes)
        line = self._larger(cache_line_bytes)
        received = text_of(self.swap(f"{mtu}\0".encode()))
        theirs = int(received) if received.isdecimal() and int(received) in _MTUS else mtu
        return Negotiated(version, min(mtu, theirs), buffer, line)

    def exchange(self, own: PerftestDest) -> PerftestDest:
        """Send a queue pair, receive the peer's."""
        return PerftestDest.parse(self.swap(own.build()))

    def exchange_all(self, own: Sequence[PerftestDest]) -> list[PerftestDest]:
        """`exchange` for each of `-q` queue pairs."""
        return [self.exchange(each) for each in own]

    def synchronise(self, own: PerftestDest) -> None:
        """Go on when the peer has come as far; perftest uses the first queue pair's address."""
        self.exchange(own)

    def report(self, own: BwReport) -> BwReport:
        """Send what was measured, receive what the peer did; a passive side's means nothing."""
        size = int(self._swap(_LONG, own.size_bytes))
        iterations = int(self._swap(_LONG, own.iterations))
        measured = (own.bw_peak, own.bw_avg, own.message_rate_avg)
        return BwReport(size, iterations, *(self._swap(_DOUBLE, each) for each in measured))

    def finish(self, own: PerftestDest) -> None:
        """The last words: an address and "done". Then the peer may be gone."""
        self.synchronise(own)
        self._peer.say_goodbye(_DONE)

    def _larger(self, own: int) -> int:
        return max(own, int(self._swap(_INT, own)))

    def _swap(self, kind: struct.Struct, own: float) -> float:
        value: float = kind.unpack(self.swap(kind.pack(own)))[0]
        return value


class Conversation:
    """What one of perftest's programs sends when; the queue pairs are the caller's business.

    `negotiate`, `meet`, connect the queue pairs, `connected`; then for each size `before_run`, run,
    `after_run`; at last `part`. Both sides call the same, in the same order.
    """

    def __init__(
        self,
        peer: PerftestPeer,
        test: str,
        *,
        duplex: bool = False,
        all_sizes: bool = False,
        duration: bool = False,
    ) -> None:
        self.peer = peer
        self.verb, _, self.kind = test.partition("_")  # as in write_bw
        if self.verb not in VERBS or self.kind not in KINDS:
            raise OobError(f"perftest has no test {test!r}")
        self._duplex = duplex and self.kind == "bw"
        self._all_sizes = all_sizes
        self._sends = self.verb == "send"
        self._reports = self._duplex and not (self._sends and duration)

    def meet(self, own: Sequence[PerftestDest]) -> list[PerftestDest]:
        """The peer's queue pairs, to connect ours to."""
        if self.kind == "lat" and not self._sends:
            self.peer.synchronise(own[0])
        return self.peer.exchange_all(own)

    def connected(self, own: Sequence[PerftestDest]) -> None:
        """Our queue pairs are in RTS; afterwards the peer's are."""
        if self._sends:
            self.peer.synchronise(own[0])
        self.peer.exchange_all(own)
        if not self._sends:
            self.peer.synchronise(own[0])

    def before_run(self, own: PerftestDest) -> None:
        """Receives are posted, warm-up is over."""
        if self._sends or self._duplex:
            self.peer.synchronise(own)

    def after_run(self, own: PerftestDest, measured: BwReport) -> BwReport | None:
        """All of ours has completed; the peer's report where it sends one."""
        report = None
        if self._duplex and self.verb == "write" and self._all_sizes:
            self.peer.synchronise(own)
        if self._reports:
            report = self.peer.report(measured)
        if self._sends and self.kind == "bw" and self._all_sizes:
            self.peer.synchronise(own)
        return report

    def part(self, own: PerftestDest, measured: BwReport) -> BwReport | None:
        """The end; of a one-way test that needs no receives its passive side comes here at once."""
        report = None
        if self.kind == "bw" and not self._sends and not self._duplex:
            self.peer.synchronise(own)
            report = self.peer.report(measured)
        if (self.verb, self.kind) != ("write", "lat"):  # which ends without a word
            self.peer.finish(own)
        return report
