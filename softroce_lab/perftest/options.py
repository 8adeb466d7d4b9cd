# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of `lab perf`: perftest's tests, options and defaults."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from softroce_lab.errors import UserError

Verb = Literal["write", "send", "read", "atomic"]
Service = Literal["RC", "UC", "UD"]

TESTS = (
    "write_bw", "write_lat", "send_bw", "send_lat",
    "read_bw", "read_lat", "atomic_bw", "atomic_lat",
)  # fmt: skip
SERVICES: dict[Verb, tuple[Service, ...]] = {
    "write": ("RC", "UC"),
    "send": ("RC", "UC", "UD"),
    "read": ("RC",),
    "atomic": ("RC",),
}
"""By which services a verb goes."""

ATOMIC_BYTES = 8
MOST_BYTES = 1 << 28
ALL_BYTES = tuple(1 << power for power in range(1, 24))
"""The sizes of -a."""

_BW_BYTES, _LAT_BYTES = 65536, 2
_ITERATIONS, _WRITE_BW_ITERATIONS, _FEWEST = 1000, 5000, 5
_BW_DEPTH, _LAT_DEPTH = 128, 1
_CQ_MODERATION, _MODERATED_BYTES = 100, 8192
_MOST_QPS, _MOST_DEPTH = 1024, 8192
_LONGEST_S = 86400.0
_MTUS = 256, 512, 1024, 2048, 4096
MOST_READS = 16
"""READs and atomics under way at a queue pair (perftest's -o)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose; None: perftest's default."""

    test: str
    bytes: int | None = None
    all_sizes: bool = False
    iterations: int | None = None
    duration_s: float | None = None
    qps: int = 1
    tx_depth: int | None = None
    rx_depth: int = 512
    cq_moderation: int | None = None
    service: Service = "RC"
    mtu: int | None = None
    ipv6: bool = False
    bidirectional: bool = False
    events: bool = False  # sleep until something comes, instead of looking for it all the time
    ack_timeout: int = 14
    patience_s: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class PerfTest:
    """A test with all its parameters."""

    name: str
    verb: Verb
    latency: bool
    service: Service
    sizes: tuple[int, ...]
    iterations: int | None  # per queue pair; None: as many as `duration_s` allows
    duration_s: float | None
    qps: int
    tx_depth: int
    rx_depth: int
    moderation: int | None  # as chosen; by default it depends on the size
    mtu: int  # path MTU, bytes
    ipv6: bool
    bidirectional: bool
    spins: bool
    ack_timeout: int
    patience_s: float

    @classmethod
    def of(cls, options: Options, most_mtu: int) -> PerfTest:
        """Of the user's options, over a path of this MTU. UserError for what makes no sense."""
        verb, latency = _named(options.test)
        _check(options, verb, latency=latency)
        mtu = most_mtu if options.mtu is None else options.mtu
        if mtu not in _MTUS or mtu > most_mtu:
            sizes = [str(each) for each in _MTUS if each <= most_mtu]
            raise UserError(f"there is no path MTU of {mtu} bytes here", hint=", ".join(sizes))
        return cls(
            name=options.test,
            verb=verb,
            latency=latency,
            service=options.service,
            sizes=_sizes(options, verb, mtu, latency=latency),
            iterations=_iterations(options, verb, latency=latency),
            duration_s=options.duration_s,
            qps=options.qps,
            tx_depth=options.tx_depth or (_LAT_DEPTH if latency else _BW_DEPTH),
            rx_depth=options.rx_depth,
            moderation=options.cq_moderation,
            mtu=mtu,
            ipv6=options.ipv6,
            bidirectional=options.bidirectional,
            spins=not options.events,
            ack_timeout=options.ack_timeout,
            patience_s=options.patience_s,
        )

    def signal_every(self, size: int) -> int:
        """CQ moderation: how many requests share one completion."""
        if self.latency:
            return 1
        if self.moderation is None:
            wanted = 1 if size > _MODERATED_BYTES else _CQ_MODERATION
        else:
            wanted = self.moderation
        return min(wanted, self.tx_depth)

    @property
    def trips(self) -> int:
        """How many times the path is taken between two posts of a latency test."""
        return 2 if self.verb in ("send", "write") else 1


def _named(name: str) -> tuple[Verb, bool]:
    for verb in SERVICES:
        if name in (f"{verb}_bw", f"{verb}_lat"):
            return verb, name.endswith("_lat")
    raise UserError(f"there is no test {name}", hint=", ".join(TESTS))


def _check(options: Options, verb: Verb, *, latency: bool) -> None:
    if options.service not in SERVICES[verb]:
        raise UserError(
            f"{verb} does not go over {options.service}", hint=f"-c {' or '.join(SERVICES[verb])}"
        )
    if latency and (options.bidirectional or options.qps > 1 or options.cq_moderation):
        raise UserError(
            "a latency test has one queue pair, one message at a time",
            hint="-q, -b and -Q are of bandwidth tests",
        )
    _check_length(options)
    _check_bytes(options, verb)
    for flag, value, least, most, what in (
        ("-q", options.qps, 1, _MOST_QPS, "queue pairs"),
        ("-r", options.rx_depth, 1, _MOST_DEPTH, "receives posted"),
        ("-t", options.tx_depth, 1, _MOST_DEPTH, "requests under way"),
        ("-Q", options.cq_moderation, 1, _MOST_DEPTH, "requests to a completion"),
        ("-u", options.ack_timeout, 0, 31, "for 4.096 us * 2^this until a packet is sent again"),
    ):
        if value is not None and not least <= value <= most:
            raise UserError(f"{flag} {value} is not possible", hint=f"{least} to {most} {what}")
    _check_moderation(options)


def _check_moderation(options: Options) -> None:
    depth = options.tx_depth or _BW_DEPTH
    if options.cq_moderation is not None and options.cq_moderation > depth:
        raise UserError(
            f"-Q {options.cq_moderation} is more than the {depth} requests under way",
            hint=f"no completion would ever come: -Q {depth}, or a larger -t",
        )


def _check_length(options: Options) -> None:
    if options.duration_s is None:
        if options.iterations is not None and options.iterations < _FEWEST:
            raise UserError(
                f"-n {options.iterations} is too few", hint=f"at least {_FEWEST} iterations"
            )
        return
    if options.iterations is not None:
        raise UserError("-n or -D?", hint="a number of iterations, or a duration")
    if not (math.isfinite(options.duration_s) and 0 < options.duration_s <= _LONGEST_S):
        raise UserError(
            f"-D {options.duration_s:g} is no duration", hint="seconds, more than 0, up to a day"
        )
    if options.all_sizes:
        raise UserError("-D or -a?", hint="as in perftest: one size for a duration")


def _check_bytes(options: Options, verb: Verb) -> None:
    if options.bytes is None:
        return
    if options.all_sizes:
        raise UserError("-a or -s?", hint="all sizes, or one")
    if not 1 <= options.bytes <= MOST_BYTES:
        raise UserError(f"-s {options.bytes} is not possible", hint=f"1 to {MOST_BYTES} bytes")
    if verb == "atomic" and options.bytes != ATOMIC_BYTES:
        raise UserError(
            f"-s {options.bytes} is not possible", hint=f"atomics are of {ATOMIC_BYTES} bytes"
        )


def _sizes(options: Options, verb: Verb, mtu: int, *, latency: bool) -> tuple[int, ...]:
    if verb == "atomic":
        return (ATOMIC_BYTES,)
    most = mtu if options.service == "UD" else MOST_BYTES
    if options.all_sizes:
        return tuple(size for size in ALL_BYTES if size <= most)
    if options.bytes is not None and options.bytes > most:
        raise UserError(
            f"-s {options.bytes} over UD is too much", hint=f"a datagram holds {most} bytes"
        )
    return (min(options.bytes or (_LAT_BYTES if latency else _BW_BYTES), most),)


def _iterations(options: Options, verb: Verb, *, latency: bool) -> int | None:
    if options.duration_s is not None:
        return None
    usual = _WRITE_BW_ITERATIONS if verb == "write" and not latency else _ITERATIONS
    return options.iterations or usual
