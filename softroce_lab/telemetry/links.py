# SPDX-License-Identifier: GPL-2.0-or-later
"""What each directed link carried in a run, and what was lost on it, by whom: links.json."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class LinkFigures:
    """A directed link's RoCE frames in one run."""

    directed_link: int
    name: str  # "leaf1->spine1"
    sent: int  # onto the link: by a switch after the link's rules, by a host before them
    injected_drops: int
    received: int  # by the program at the far end
    emulator_drops: int  # sent but not received: lost by the machine, not by a rule
    records_lost: int  # drops and captured packets without a record


@dataclasses.dataclass(frozen=True, slots=True)
class PortFigures:
    """What a host's socket did with the frames that its port's program handed to it."""

    node: str
    handed: int
    taken: int
    emulator_drops: int  # the socket had no free frame
