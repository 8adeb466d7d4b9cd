# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that cannot act on a transport's data: its packets lack the fields that the rules match.

Message, packet index and transmission are in the lab's own header (docs/faults.md). Queue pairs
of RC have none, nor has the framing of one UC WRITE a packet; a rule that matches them drops
nothing there, and a transport that was not hit has not recovered.
"""

from __future__ import annotations

from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.plan.effects import Fault, NamedDrop


def notes(experiment: Experiment) -> list[str]:
    """A sentence for each transport with such rules; [] as it should be."""
    found = []
    faults = experiment.plan(experiment.seeds[0]).faults
    for transport in experiment.transports:
        names = dict.fromkeys(each.rule for each in faults if not _sees(each, transport))
        if names:
            found.append(
                f"{transport.label}: cannot be hit by {', '.join(names)}: "
                "its data packets do not show messages"
            )
    return found


def _sees(fault: Fault, transport: Transport) -> bool:
    """Whether any packet of this transport can match the rule."""
    if transport.shows_messages:
        return True
    asks = fault.filter
    if isinstance(fault.effect, NamedDrop):
        return fault.effect.message is None
    if asks.message is not None or asks.tail is not None or asks.iters:
        return False
    kinds = set(asks.kinds)
    # Control messages and reports of striped messages have the header in either framing.
    shown = {"other", "control", "report"} if transport.entry.striped else {"other"}
    return not kinds or bool(kinds & shown)
