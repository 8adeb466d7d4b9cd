# SPDX-License-Identifier: GPL-2.0-or-later
"""What the fabric makes of a host's transport: timers, window, rates.

The experiment derives these values once for each transport of a run. A host's process gets them.
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
from softroce_lab.recovery import congestion, defaults
from softroce_lab.recovery.defaults import BLACKOUT_NS, MACHINE_RTT_NS, EngineTiming, Timing

_Rails = Mapping[str, int]  # by name, of hosts that use another rail than their first
_OtherRails = Mapping[str, Sequence[int]]  # by name: further rails that a host uses
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class HostTuning:
    """Of all hosts that have one transport."""

    path_mtu: int
    base_rtt_ns: int  # of the empty fabric and of the hosts at both ends
    line_rate_bps: int  # of the slowest port; 0: nothing limits it
    window_packets: int
    congestion_control: str
    timing: Timing
    engine: EngineTiming
    rc: RcSettings

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> HostTuning:
        """From what `dataclasses.asdict` makes of one."""
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
    """On the virtual clock. `hosts_ns`: what the hosts at both ends add to a round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    empty = base_rtt.of(plan, path_mtu, hosts_ns, rails, others)
    lifetime_ns = lifetime.of(plan, path_mtu)
    knobs = transport.knobs
    return HostTuning(
        path_mtu,
        empty.rtt_ns,
        empty.rate_bps,
        knobs.window_packets(empty.window_packets(path_mtu)),
        transport.congestion_control or congestion.for_plan(plan),
        knobs.timing(Timing.for_rtt(empty.rtt_ns, blackout_ns=blackout_ns)),
        EngineTiming.for_rtt(empty.rtt_ns, empty.buffer_ns, lifetime_ns),
        RcSettings.for_rtt(empty.rtt_ns).with_knobs(knobs),
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
    """On the real clock, where the machine adds to every round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, ip_version)
    fabric = base_rtt.of(plan, path_mtu, rails=rails, others=others)
    whole = dataclasses.replace(fabric, rtt_ns=fabric.rtt_ns + MACHINE_RTT_NS)
    lifetime_ns = lifetime.of(plan, path_mtu)
    knobs = transport.knobs
    return HostTuning(
        path_mtu,
        whole.rtt_ns,
        fabric.rate_bps,
        knobs.window_packets(min(whole.window_packets(path_mtu), most_window_packets)),
        transport.congestion_control or congestion.for_plan(plan),
        knobs.timing(Timing.on_machine(fabric.rtt_ns)),
        EngineTiming.on_machine(fabric.rtt_ns, fabric.buffer_ns, lifetime_ns),
        RcSettings.on_machine(fabric.rtt_ns).with_knobs(knobs),
    )
