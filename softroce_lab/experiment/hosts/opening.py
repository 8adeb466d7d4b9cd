# SPDX-License-Identifier: GPL-2.0-or-later
"""Opens a transport on a host: the engine's configuration, and the messengers."""

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
from softroce_lab.experiment.hosts.tuning import HostTuning
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.sim.presets import engine_config
from softroce_lab.transports import congestion
from softroce_lab.transports.defaults import DEFAULT_TIMING, Timing
from softroce_lab.transports.knobs import MOST_PSNS
from softroce_lab.transports.runner import LatenessRecorder
from softroce_lab.transports.shift import Settings

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint, MessageConfig

_SHIFT = Settings()


def host_config(
    transport: Transport, tuning: HostTuning, qkey: int, **settings: Any
) -> MessageConfig:
    """The engine's configuration for a transport. `settings`: further fields of `MessageConfig`."""
    values = {
        "path_mtu": tuning.path_mtu,
        "window_packets": tuning.window_packets,
        "congestion_control": tuning.congestion_control,
        "most_unacked": MOST_PSNS,
        "framing": transport.frames,
        "connection_epoch": qkey & 0xFF,
        **settings,
        **dataclasses.asdict(tuning.engine),
        **dataclasses.asdict(congestion.FabricFigures.of(tuning.base_rtt_ns, tuning.line_rate_bps)),
        **transport.engine,
        **transport.knobs.engine(),
        **transport.coding(tuning.path_mtu),
    }
    config = engine_config(**values)
    tuning.timing.apply(config)
    return config


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
    """Open a transport's messenger on one endpoint.

    `memory`: the memory that posts refer to by offsets; None if packets carry no bytes. `lateness`
    records how late a user's policy decides. `other_rail`: the backup of `shift`; None: `rc`.
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
    """Open a host's messengers. `rails`: (endpoint, MAC address of its next hop) of each rail.

    Other transports than `shift` have a messenger on each rail. `shift` has one, and its backup is
    the second rail. `options`: those of `open_messenger`. `statistics`: where the first RNIC
    publishes its counters.
    """
    (first, mac), *more = rails
    if transport.entry.rails > 1 and more:
        other = OtherRail(*more[0], shift, statistics)
        return [open_messenger(transport, first, next_hop_mac=mac, other_rail=other, **options)]
    return [
        open_messenger(transport, endpoint, next_hop_mac=mac, **options) for endpoint, mac in rails
    ]
