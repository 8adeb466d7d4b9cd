# SPDX-License-Identifier: GPL-2.0-or-later
"""Knobs of transports: settings that several transports have in common, for ablation.

A policy's options are its own; a knob means the same for every transport that has it
(docs/reference/transports.md is made of them). Which transport has which, and its bounds, is in the
registry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from softroce_lab.transports.defaults import DEFAULT_TIMING, MILLISECOND_NS, Timing
from softroce_lab.transports.options import Option, OptionError, Value, validated

NAMES = ("window", "paths", "retry_count", "timeout", "schedule")
SCHEDULES = ("least-left", "fair", "fifo")
"""Native Schedule, native/engine/striped/send_order.hpp."""
MEASURED = "measured"
"""The timeout is SRTT + max(G, 4 RTTVAR), G being the clock's granularity (RFC 6298)."""
RTTVAR_WEIGHT = 4
"""K of RFC 6298, section 2; natively `RttEstimate::rto` of native/engine/striped/peer.hpp."""

RC_TIMEOUT_UNIT_NS = 4096  # IBA 9.7.6.1.3: 4.096 us * 2**code
_RC_MOST_CODE = 31
MOST_PSNS = (1 << 23) - 1  # native/engine/verbs/rc_qp.hpp, kMostUnacked
_MOST_IN_FLIGHT = 1 << 20  # native/engine/striped/peer.hpp
_MOST_PATHS = 16  # native/engine/striped/paths.hpp
_MOST_TIMEOUT_NS = 10_000 * MILLISECOND_NS
_PACKET_RETRIES = DEFAULT_TIMING.most_attempts - 1


class Knob(Option):
    """A knob as one transport has it. Its default holds where that does not follow from others."""

    __slots__ = ()

    def _error(self, what: str, hint: str | None) -> OptionError:
        return OptionError(self.name, f"{self.name}: {what}", hint=hint or None)


class MeasurableTimeout(Knob):
    """A timeout that may follow the measured RTT."""

    __slots__ = ()

    def read(self, given: object) -> Value:
        """Nanoseconds, or `measured`."""
        if given == MEASURED:
            return MEASURED
        try:
            return super().read(given)
        except OptionError as error:
            hint = f"{error.hint}, or {MEASURED!r}"
            raise OptionError(self.name, error.what, hint=hint) from None


def _timeout(help_: str, least_ns: int, most_ns: int, kind: type[Knob] = Knob) -> Knob:
    return kind("timeout", 10 * MILLISECOND_NS, help_, "time", least=least_ns, most=most_ns)


RC = (
    Knob("window", MOST_PSNS, "packets not acknowledged, of a queue pair", least=1,
         most=MOST_PSNS),
    Knob("retry_count", 7, "timeouts in a row without progress", least=0, most=7),
    _timeout("until an unacknowledged packet is sent again; rounded up to 4.096 us * 2**n",
             RC_TIMEOUT_UNIT_NS << 1, RC_TIMEOUT_UNIT_NS << _RC_MOST_CODE),
)  # fmt: skip
STRIPED = (
    Knob("window", _MOST_IN_FLIGHT, "packets in flight to a peer", least=1, most=_MOST_IN_FLIGHT),
    Knob("paths", 8, "UDP source ports of data packets", least=1, most=_MOST_PATHS),
    Knob("schedule", "fifo", "which message's packets leave first", choices=SCHEDULES),
)
OF_PACKETS = (
    Knob("retry_count", _PACKET_RETRIES, "retransmissions of a packet", least=1, most=250),
)
OF_SENDERS_TIMER = (
    _timeout("until a packet is retransmitted", 1000, _MOST_TIMEOUT_NS, MeasurableTimeout),
)

_SDR_TIMEOUT = "3 RTT, at least T_min (arXiv 2505.05366)"
_UET_TIMEOUT = "2 SRTT, at least 100 us (htsim), without `trimming` 5 ms (uet-ref-prov)"
_RC_TIMEOUT = (
    "virtual clock: RTO_high, rounded up (IBA 9.7.6.1.3); real clock: the same, at least 67 ms"
)
_TIMEOUTS = {
    "rc": _RC_TIMEOUT,
    "shift": _RC_TIMEOUT,
    "irn": "RTO_high, a round trip through a full queue, and RTO_low, 100/24 of the base RTT "
           "(SIGCOMM 2018, 4.1)",
    "srnic": "10 base RTTs (NSDI 2023)",
    "rack_tlp": "SRTT + max(G, 4 RTTVAR) (RFC 6298)",
    "falcon": "2 SRTT, at least 250 us, and at first 1 ms (Falcon's reference model)",
    "dcp": "8 ms, at least 2 SRTT (authors' simulator of SIGCOMM 2025)",
    "ndp": "SRTT + 4 RTTVAR, at least 5 ms, and at first 20 ms (htsim)",
    "mrc": "the least 1.024 us * 2^n that is at least 4 SRTT; the grid is MRC's",
    "uccl": "500 us (UCCL), at least 2 SRTT, at the next tick of 1 ms",
    "ud_rto": "max(3 SRTT, T_min)",
    "sdr_sr": _SDR_TIMEOUT,
    "sdr_sr_nack": "1 RTT, at least T_min (arXiv 2505.05366)",
    "sdr_ec": _SDR_TIMEOUT,
    "sdr_auto": _SDR_TIMEOUT,
    "uet_rod": _UET_TIMEOUT,
    "uet_rud": _UET_TIMEOUT,
}  # fmt: skip


def usual(transport: str, knob: Knob, schedule: str) -> str:
    """A knob's default of a transport, in words. `schedule`: the transport's own."""
    if knob.name == "window":
        return "the congestion window"
    if knob.name == "timeout":
        return _TIMEOUTS.get(transport, "the transport's own timer")
    return schedule if knob.name == "schedule" else knob.shown(knob.default)


@dataclasses.dataclass(frozen=True, slots=True)
class Knobs:
    """The knobs that are set. None: the transport's own default."""

    window: int | None = None
    paths: int | None = None
    retry_count: int | None = None
    timeout_ns: int | None = None
    timeout_measured: bool = False
    schedule: str | None = None

    @classmethod
    def read(cls, known: Sequence[Knob], given: Mapping[str, Value]) -> Knobs:
        """What a user wrote; OptionError for the first that is wrong, or not of this transport."""
        names = [knob.name for knob in known]
        for name in given:
            if name not in names:
                what = f"this transport has no knob {name!r}"
                raise OptionError(name, what, hint=f"it has {', '.join(names)}")
        values = validated(known, given)
        fields: dict[str, object] = {_field(name): values[name] for name in given}
        if fields.get("timeout_ns") == MEASURED:
            fields |= {"timeout_ns": None, "timeout_measured": True}
        return cls(**fields)  # type: ignore[arg-type]

    def window_packets(self, congestion_packets: int) -> int:
        """The window: the congestion window at its widest, or fewer packets."""
        return congestion_packets if self.window is None else min(congestion_packets, self.window)

    def timing(self, timing: Timing) -> Timing:
        """The timers and bounds of a policy."""
        changes: dict[str, int] = {}
        if self.retry_count is not None:
            changes["most_attempts"] = self.retry_count + 1
        if self.timeout_ns is not None:
            changes["fixed_rto_ns"] = self.timeout_ns
        if self.timeout_measured:
            changes["rto_rttvar_weight"] = RTTVAR_WEIGHT
        return dataclasses.replace(timing, **changes)

    def engine(self) -> dict[str, int | str]:
        """Of an engine's configuration (`MessageConfig`), but for the window."""
        set_ = {
            "paths": self.paths,
            "timeout_ns": self.timeout_ns,
            "timeout_measured": self.timeout_measured or None,
            "schedule": self.schedule,
        }
        return {name: value for name, value in set_.items() if value is not None}


def _field(name: str) -> str:
    return "timeout_ns" if name == "timeout" else name


def rc_timeout_code(timeout_ns: int) -> int:
    """The least code of a timeout that is no shorter (IBA 9.7.6.1.3)."""
    codes = range(1, _RC_MOST_CODE)
    return next((each for each in codes if RC_TIMEOUT_UNIT_NS << each >= timeout_ns), _RC_MOST_CODE)
