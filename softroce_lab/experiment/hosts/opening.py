# SPDX-License-Identifier: GPL-2.0-or-later
"""The messenger of a transport: which one, and what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softroce_lab.experiment.hosts.messenger import (
    Memory,
    Messenger,
    RcMessenger,
    RcSettings,
    StripedMessenger,
)
from softroce_lab.experiment.hosts.shift_messenger import OtherRail, ShiftMessenger
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.recovery.defaults import DEFAULT_TIMING, Timing
from softroce_lab.recovery.runner import LatenessRecorder, Recorder

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint


def open_messenger(
    transport: Transport,
    endpoint: Endpoint,
    *,
    memory: Memory | None = None,
    timing: Timing = DEFAULT_TIMING,
    rc: RcSettings | None = None,
    next_hop_mac: int = 0,
    qkey: int = 0,
    recorder: Recorder | None = None,
    lateness: LatenessRecorder | None = None,
    other_rail: OtherRail | None = None,
) -> Messenger:
    """The messenger of a transport.

    `memory`: what offsets of posts count in, None if packets carry no bytes. `recorder` and
    `lateness` get the decisions of a Python policy and their latency. Without `other_rail`, `shift`
    is `rc`.
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
        policy=entry.make(endpoint, timing, transport.options),
        next_hop_mac=next_hop_mac,
        qkey=qkey,
        recorder=recorder,
        lateness=lateness,
    )
