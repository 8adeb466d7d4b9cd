# SPDX-License-Identifier: GPL-2.0-or-later
"""Window, timers and rates of all hosts of a run: what follows from the fabric and a transport.

The experiment derives them once for each transport of a run, and passes them to each host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.experiment.hosts.settings import WINDOW_PACKETS
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.plan import base_rtt
from softroce_lab.plan.base_rtt import FIRST_RAILS, Rails
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Plan
from softroce_lab.transports import defaults
from softroce_lab.transports.defaults import BLACKOUT_NS, MACHINE_RTT_NS, EngineTiming, Timing


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
        kinds = {"timing": Timing, "engine": EngineTiming, "rc": RcSettings}
        return cls(**document | {key: kind(**document[key]) for key, kind in kinds.items()})

    def facts(self) -> dict[str, Any]:
        return {
            "path_mtu": self.path_mtu,
            "line_rate_bps": self.line_rate_bps,
            "window_packets": self.window_packets,
            "timing": defaults.document(self.timing, self.engine),
            "rc": dataclasses.asdict(self.rc),
        }


def on_virtual_clock(
    transport: Transport,
    plan: Plan,
    hosts_ns: int = 0,
    rails: Rails = FIRST_RAILS,
    *,
    blackout_ns: int = BLACKOUT_NS,
) -> HostTuning:
    """For the virtual clock. `hosts_ns`: time that the hosts at both ends add to a round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    fabric = base_rtt.of(plan, path_mtu, hosts_ns, rails)
    lifetime_ns = base_rtt.lifetime_ns(plan, path_mtu)
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
    rails: Rails = FIRST_RAILS,
    *,
    most_window_packets: int = WINDOW_PACKETS,
) -> HostTuning:
    """For the real clock, where the machine adds time to every round trip."""
    path_mtu = path_mtu_bytes(plan.mtu, ip_version)
    fabric = base_rtt.of(plan, path_mtu, rails=rails)
    lifetime_ns = base_rtt.lifetime_ns(plan, path_mtu)
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
