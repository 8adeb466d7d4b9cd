# SPDX-License-Identifier: GPL-2.0-or-later
"""What a transport is on a host: the engine's settings, and the messengers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from softroce_lab.experiment.hosts.messenger import (
    Memory,
    Messenger,
    RcMessenger,
    RcSettings,
    StripedMessenger,
)
from softroce_lab.experiment.hosts.shift_messenger import OtherRail, ShiftMessenger
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.recovery import congestion
from softroce_lab.recovery.defaults import DEFAULT_TIMING, EngineTiming, Timing
from softroce_lab.recovery.knobs import MOST_PSNS
from softroce_lab.recovery.runner import LatenessRecorder
from softroce_lab.shift import Settings
from softroce_lab.sim.fabric import HostModel

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

_SHIFT = Settings()


def host_model(
    transport: Transport,
    path_mtu: int,
    qkey: int,
    timing: Timing,
    engine: EngineTiming,
    base_rtt_ns: int,
    line_rate_bps: int,
    **settings: Any,
) -> HostModel:
    """The engine of a host that has this transport. `settings`: further ones of `HostModel`."""
    values = {
        "path_mtu": path_mtu,
        "most_unacked": MOST_PSNS,
        "framing": transport.frames,
        "connection_epoch": qkey & 0xFF,
        **settings,
        "timing": timing.session(),
        **dataclasses.asdict(engine),
        **dataclasses.asdict(congestion.FabricFigures.of(base_rtt_ns, line_rate_bps)),
        **transport.knobs.engine(),
        **transport.engine,
        **transport.coding(path_mtu),
    }
    return HostModel(**values)


def open_messenger(
    transport: Transport,
    endpoint: Endpoint,
    *,
    memory: Memory | None = None,
    timing: Timing = DEFAULT_TIMING,
    rc: RcSettings | None = None,
    next_hop_mac: int = 0,
    qkey: int = 0,
    lateness: LatenessRecorder | None = None,
    other_rail: OtherRail | None = None,
) -> Messenger:
    """The messenger of a transport.

    `memory`: what offsets of posts count in, None if packets carry no bytes. `lateness` gets the
    latency of a user's policy. Without `other_rail`, `shift` is `rc`.
    """
    entry = transport.entry
    if other_rail is not None:
        return ShiftMessenger(
            endpoint,
            other_rail,
            memory=memory,
            settings=rc,
            next_hop_mac=next_hop_mac,
            salt=qkey,
        )
    if not entry.striped:
        return RcMessenger(
            endpoint, memory=memory, settings=rc, next_hop_mac=next_hop_mac, salt=qkey
        )
    return StripedMessenger(
        endpoint,
        memory=memory,
        runner=entry.runner(endpoint, timing, transport.options, lateness),
        next_hop_mac=next_hop_mac,
        qkey=qkey,
    )


def open_over(
    transport: Transport,
    rails: Sequence[tuple[Endpoint, int]],
    *,
    shift: Settings = _SHIFT,
    statistics: str = "",
    **options: Any,
) -> list[Messenger]:
    """The messengers of a host, by the rails that it uses: (endpoint, MAC address of its next hop).

    `shift` has one, and the second rail is its backup. `options`: those of `open_messenger`.
    `statistics`: where the first RNIC publishes its counters.
    """
    (first, mac), *more = rails
    if transport.entry.rails > 1 and more:
        other = OtherRail(*more[0], shift, statistics)
        return [open_messenger(transport, first, next_hop_mac=mac, other_rail=other, **options)]
    return [
        open_messenger(transport, endpoint, next_hop_mac=mac, **options) for endpoint, mac in rails
    ]
