# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that cannot hit a transport's packets: these lack the fields that the rules match.

Message, packet index and transmission are in the lab's own header. Queue pairs of RC have none, nor
has the framing of one UC WRITE a packet. A transport that was not hit has not recovered: beside
transports that were hit it would look better than it is, so it is left out.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults.opcodes import CNP, UD_SEND_ONLY
from softroce_lab.inputs.validation import listed
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Blackout, Fault, LossModel, NamedDrop

_RC, _UC = range(0x20), range(0x20, 0x40)  # opcodes (IBA 9.2.1)
_MOST_LINKS = 4  # that a note names


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """A transport that does not run, because rules that hit others cannot hit it."""

    transport: str  # its label
    rules: dict[str, list[str]]  # the links that each of them is on

    @property
    def note(self) -> str:
        """For the user."""
        found = []
        for rule, links in self.rules.items():
            where = "link" if len(links) == 1 else "links"
            found.append(f"rule {rule!r} of {where} {listed(links, _MOST_LINKS)}")
        return f"{self.transport} left out: {', '.join(found)} cannot hit its packets"

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return dataclasses.asdict(self)


def compared(experiment: Experiment) -> tuple[Experiment, list[LeftOut]]:
    """The experiment without transports that rules cannot hit; and these.

    All stay if there is none that every rule can hit: none of them is ahead of another by that.
    """
    if experiment.raw.workload.has_transports:
        return experiment, []  # one run
    blind = {each.label: _blind(experiment, each) for each in experiment.transports}
    kept = tuple(each for each in experiment.transports if not blind[each.label])
    if not kept or len(kept) == len(experiment.transports):
        return experiment, []
    out = [LeftOut(label, rules) for label, rules in blind.items() if rules]
    return dataclasses.replace(experiment, transports=kept), out


def notes(experiment: Experiment) -> list[str]:
    """A sentence for each transport with such rules; [] as it should be."""
    whole, left_out = compared(experiment)
    found = [each.note for each in left_out] + [
        f"{transport.label}: cannot be hit by {', '.join(rules)}: "
        "its data packets do not show messages"
        for transport in whole.used_transports
        if (rules := _blind(experiment, transport))
    ]
    return [*found, *_uneven_tails(whole), *_drawn_by_index(whole)]


def _drawn_by_index(experiment: Experiment) -> list[str]:
    """A note on rules whose draws hit different packets of each transport."""
    if len(experiment.transports) < 2:
        return []
    plan = experiment.plan(experiment.seeds[0])
    rules = list(dict.fromkeys(each.rule for each in plan.faults if _draws_by_index(each)))
    if not rules:
        return []
    named = ", ".join(map(repr, rules))
    what = "rule" if len(rules) == 1 else "rules"
    return [f"{what} {named} (key: index) hit other packets of each transport, at the same rate"]


def _draws_by_index(fault: Fault) -> bool:
    is_drawn = isinstance(fault.effect, LossModel) and not isinstance(fault.effect, Blackout)
    return is_drawn and fault.key == "index"


def _uneven_tails(experiment: Experiment) -> list[str]:
    """A sentence for each rule of tails that hits some transports more often than others.

    RC's packets do not show how often they were sent, so its tails are hit once.
    """
    if len({each.shows_messages for each in experiment.used_transports}) == 1:
        return []
    rules = {
        fault.rule: None
        for fault in experiment.plan(experiment.seeds[0]).faults
        if fault.filter.tail is not None and not fault.filter.iters and fault.filter.takes_rc_tails
    }
    return [
        f"rule {rule!r} takes last packets of rc in their first transmission alone, those of other "
        "transports in every one: write iter: 1 to compare these transports"
        for rule in rules
    ]


def _blind(experiment: Experiment, transport: Transport) -> dict[str, list[str]]:
    """The rules that cannot hit any packet of this transport, and their links."""
    plan = experiment.plan(experiment.seeds[0])
    cnps = transport.control(plan) == "dcqcn"
    found: dict[str, dict[int, None]] = {}
    for fault in plan.faults:
        if not _sees(fault, transport, cnps=cnps):
            found.setdefault(fault.rule, {})[fault.directed_link] = None
    if not found:
        return {}
    names = locate.arrows(plan)
    return {rule: [names[link] for link in sorted(links)] for rule, links in found.items()}


def _has_opcode(transport: Transport, opcode: int) -> bool:
    """Whether it sends such packets."""
    if not transport.entry.striped:
        return opcode in _RC
    return opcode == UD_SEND_ONLY or (not transport.shows_messages and opcode in _UC)


def _sees(fault: Fault, transport: Transport, *, cnps: bool) -> bool:
    """Whether any packet of this transport can match the rule. `cnps`: it sends CNPs, too."""
    asks = fault.filter
    if set(asks.kinds) == {"probe"}:
        return True  # beside one that drops tails, it is for those that would find them by a probe
    if asks.opcode not in (None, *[CNP] * cnps) and not _has_opcode(transport, asks.opcode):
        return False
    if transport.shows_messages:
        return set(asks.kinds) != {"other"} or cnps
    if isinstance(fault.effect, NamedDrop):
        return fault.effect.message is None
    if asks.tail is not None and not transport.entry.striped:
        return asks.takes_rc_tails
    if asks.message is not None or asks.tail is not None or asks.iters:
        return False
    kinds = set(asks.kinds)
    # Control messages and reports of striped messages have the header in either framing.
    shown = {"other", "control", "report"} if transport.entry.striped else {"other"}
    return not kinds or bool(kinds & shown)
