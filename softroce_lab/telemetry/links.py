# SPDX-License-Identifier: GPL-2.0-or-later
"""What each directed link carried in a run, and what was lost on it, by whom: links.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class WireFigures:
    """What the wire stage did on a shaped directed link. Durations are None if nothing passed."""

    released: int
    dropped_by_queue: int  # found it full
    duplicated: int
    marked: int  # CE
    trimmed: int
    reordered: int  # by a rule
    overtaken: int  # released after a packet that was sent later
    disordered: int  # of these, those on a link whose faults do not allow it
    most_waiting_packets: int
    most_waiting_bytes: int
    late_p50_ns: int | None  # after the moment that was due
    late_p99_ns: int | None
    late_most_ns: int  # since the lab came up
    residence_p50_ns: int | None  # from arrival to release
    residence_p99_ns: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class LinkFigures:
    """A directed link's RoCE frames in one run."""

    directed_link: int
    name: str  # "leaf1->spine1"; "s1:p2->s2:p2" where several links join the two
    sent: int  # onto the link: by a switch after rules and queue, by a host before them
    injected_drops: int  # by rules, and by the link's queue
    received: int  # by the program at the far end
    emulator_drops: int  # sent but not received: lost by the machine, not by a rule
    records_lost: int  # effects and captured packets without a record
    wire: WireFigures | None = None  # of a link that was shaped


@dataclasses.dataclass(frozen=True, slots=True)
class PortFigures:
    """What a host's socket did with the frames that its port's program handed to it."""

    node: str
    handed: int
    taken: int
    emulator_drops: int  # the socket had no free frame


@dataclasses.dataclass(frozen=True, slots=True)
class StageFigures:
    """What became of frames between links: at switches, and on the way to the wire stage."""

    fifo: bool  # whether it ran under SCHED_FIFO
    cpu_share: float  # of one core
    lost: int  # by the machine: before the stage saw them, or because it was dead
    no_route: int = 0  # RoCE frames for which a switch had no way left, as where links are down


def simulated(link: Mapping[str, Any]) -> dict[str, Any]:
    """Totals of a link as the real clock writes them; the machine loses nothing here."""
    injected = link["dropped"] + link["dropped_down"] + link["dropped_limit"]
    return {
        "directed_link": link["directed_link"],
        "name": link["name"],
        "sent": link["entered"] + link["duplicated"] - injected,
        "injected_drops": injected,
        "received": link["delivered"],
        "on_its_way": link["on_its_way"],
        "bytes": link["delivered_bytes"],
        "corrupted": link["corrupted"],
        "emulator_drops": 0,
        "records_lost": link["records_lost"],
        "wire": {
            "released": link["delivered"],
            "dropped_by_queue": link["dropped_limit"],
            "duplicated": link["duplicated"],
            "marked": link["marked"],
            "trimmed": link["trimmed"],
            "reordered": link["reordered"],
            "most_waiting_packets": link["most_waiting_packets"],
            "most_waiting_bytes": link["most_waiting_bytes"],
        },
    }
