# SPDX-License-Identifier: GPL-2.0-or-later
"""Timers, window and rates of a transport, derived from the fabric's plan.

The experiment derives them once for each transport of a run, and passes them to each host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from softroce_lab.experiment.forecast import base_rtt, lifetime
from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.experiment.hosts.settings import WINDOW_PACKETS, path_mtu_bytes
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.plan.plan import Plan
from softroce_lab.transports import defaults
from softroce_lab.transports.defaults import BLACKOUT_NS, MACHINE_RTT_NS, EngineTiming, Timing

_Rails = Mapping[str, int]  # the rail of each host that does not use its first one
_OtherRails = Mapping[str, Sequence[int]]  # further rails of each host that uses several
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class HostTuning:
    """The values for all hosts of a run with one transport."""

    path_mtu: int
    base_rtt_ns: int  # of the fabric with empty queues, and of the hosts at both ends
    line_rate_bps: int  # of the slowest port; 0: no port has a limit
    window_packets: int
    congestion_control: str
    timing: Timing
    engine: EngineTiming
    rc: RcSettings

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> HostTuning:
        """The inverse of `dataclasses.asdict`."""
        parts = {
            "timing": Timing(**document["timing"]),
            "engine": EngineTiming(**document["engine"]),
            "rc": RcSettings(**document["rc"]),
        }
        return cls(**{**document, **parts})

    def facts(self) -> dict[str, Any]:
        """For a manifest."""
        return {
            "path_mtu": self.path_mtu,
            "timing": defaults.document(self.timing, self.engine),
            "rc": dataclasses.asdict(self.rc),
        }


def on_virtual_clock(
    transport: Transport,
    plan: Plan,
    hosts_ns: int = 0,
    rails: _Rails = _NONE,
    others: _OtherRails = _NONE,
    *,
    blackout_ns: int = BLACKOUT_NS,
) -> HostTuning:
    """For the virtual clock. `hosts_ns`: time that the hosts at both ends add to a round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    fabric = base_rtt.of(plan, path_mtu, hosts_ns, rails, others)
    lifetime_ns = lifetime.of(plan, path_mtu)
    knobs = transport.knobs
    return HostTuning(
        path_mtu,
        fabric.rtt_ns,
        fabric.rate_bps,
        knobs.window_packets(fabric.window_packets(path_mtu, one_path=transport.one_path)),
        transport.control(plan),
        knobs.timing(Timing.for_rtt(fabric.rtt_ns, blackout_ns=blackout_ns)),
        EngineTiming.for_rtt(fabric.rtt_ns, fabric.buffer_ns, lifetime_ns),
        RcSettings.for_rtt(fabric.rtt_ns, fabric.buffer_ns).with_knobs(knobs),
    )


def on_machine(
    transport: Transport,
    plan: Plan,
    ip_version: int = 4,
    rails: _Rails = _NONE,
    others: _OtherRails = _NONE,
    *,
    most_window_packets: int = WINDOW_PACKETS,
) -> HostTuning:
    """For the real clock, where the machine adds time to every round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, ip_version)
    fabric = base_rtt.of(plan, path_mtu, rails=rails, others=others)
    lifetime_ns = lifetime.of(plan, path_mtu)
    knobs = transport.knobs
    window_packets = fabric.window_packets(
        path_mtu, one_path=transport.one_path, machine_ns=MACHINE_RTT_NS
    )
    return HostTuning(
        path_mtu,
        fabric.rtt_ns + MACHINE_RTT_NS,
        fabric.rate_bps,
        knobs.window_packets(min(window_packets, most_window_packets)),
        transport.control(plan),
        knobs.timing(Timing.on_machine(fabric.rtt_ns)),
        EngineTiming.on_machine(fabric.rtt_ns, fabric.buffer_ns, lifetime_ns),
        RcSettings.on_machine(fabric.rtt_ns, fabric.buffer_ns).with_knobs(knobs),
    )
