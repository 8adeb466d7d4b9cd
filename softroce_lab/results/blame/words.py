# SPDX-License-Identifier: GPL-2.0-or-later
"""What losses cost, in words and as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from softroce_lab import units
from softroce_lab.plan import locate
from softroce_lab.results.blame import counterfactual
from softroce_lab.results.blame.charges import Blame, Charge
from softroce_lab.results.blame.investigation import Investigation
from softroce_lab.results.story import ordinal
from softroce_lab.telemetry.drops import packet_kind

HEAD = ("charge", "message", "step", "undone as", "loss", "which packet", "dropped")
_NUMBERS = 5  # of these columns
_MOST_ROWS = 12


def sentences(found: Blame, of: Investigation) -> Iterator[str]:
    """The result first, then the critical path."""
    name, total = of.known.name, f"{units.format_count(found.losses, 'loss')} by rules"
    with_all, with_none = (time(each) for each in (found.with_all_ns, found.with_none_ns))
    if of.step is None:
        yield f"{name}: its run took {with_all} with {total}, and takes {with_none} without any."
    else:
        ended = f"step {of.step} ended {with_all} after the start of the run with {total}"
        yield f"{name}: {ended}, and {with_none} after it without any."
    kept = int(of.known.messages.run.get("injected_drops") or 0) - found.losses
    if kept > 0:
        drops = units.format_count(kept, "more packet")
        yield f"Full queues and links that were down dropped {drops}: these losses stay."
    yield from _singles(found)
    shares = of.shares()
    whole = sum(shares.values())
    parts = [
        f"{word} {100 * length / whole:.1f} % ({time(length)})"
        for word, length in shares.items()
        if length
    ]
    messages = units.format_count(sum(each.row >= 0 for each in of.path), "message")
    yield f"Its critical path has {messages}: {', '.join(parts)}."


def _singles(found: Blame) -> Iterator[str]:
    """What the losses cost that the end came later by; what the others cost may be negative."""
    singles = [each for each in found.charges if len(each.losses) == 1 and each.end_ns > 0]
    if not singles:
        return
    cost_ns = sum(each.end_ns for each in singles)
    count = units.format_count(found.losses, "loss")
    words = f"{len(singles):,} of {count}, one by one, cost {time(cost_ns)}"
    if found.losses > len(singles):
        words += f", groups and all others {time(found.cost_ns - cost_ns)}"
    yield f"{words}: together {time(found.cost_ns)}."


def rows(found: Blame, of: Investigation) -> Iterator[Sequence[str]]:
    """The largest charges, then the rest; below HEAD."""
    experiment, _ = counterfactual.opened(of.subject.case)
    plan = experiment.plan(of.subject.case.seed)
    links = list(locate.arrows(plan).values())
    rules = {fault.rule_id: fault.rule for fault in plan.faults}
    order = sorted(enumerate(found.charges, 1), key=lambda each: (-each[1].end_ns, each[0]))
    shown = [each for each in order if each[1].end_ns][:_MOST_ROWS]
    for number, charge in shown:
        yield _row(number, charge, found, of, links, rules)
    hidden = [charge for each in order if each not in shown for charge in each[1:]]
    others = sum(len(each.losses) for each in hidden) + found.rest
    left_ns = sum(each.end_ns for each in hidden) + found.rest_ns
    if others:
        yield (time(left_ns), "", "", "", f"{others:,} others", "", "")
    yield (time(found.cost_ns), "", "", "", f"{found.losses:,}, all", "", "")


def _row(
    number: int,
    charge: Charge,
    found: Blame,
    of: Investigation,
    links: Sequence[str],
    rules: dict[int, str],
) -> Sequence[str]:
    gains = [time(each) for each in (charge.end_ns, charge.message_ns, charge.step_ns)]
    record = found.records[charge.losses[0]]
    where = f"on {links[int(record['directed_link'])]} by {rules.get(int(record['rule_id']), '?')}"
    at = time(int(record["time_ns"]))
    if len(charge.losses) > 1:
        first, last = min(charge.losses) + 1, max(charge.losses) + 1
        packets = f"{len(charge.losses):,} together, of {of.known.messages.name(charge.message)} on"
        return (*gains, f"{number}", f"{first}..{last}", packets, f"from {at} on")
    name = of.known.messages.name(charge.message)
    which = f"{name} {_packet(record)}"
    return (*gains, f"{number}", f"{charge.losses[0] + 1}", which, f"at {at} {where}")


def _packet(record: np.void) -> str:
    kind = packet_kind(int(record["kind"]))
    if kind == "data":
        return f"packet {int(record['index'])}, {ordinal(int(record['attempt']))} transmission"
    if kind == "parity":
        return f"packet {int(record['index'])}, parity"
    if kind == "other":
        return f"PSN {int(record['psn'])} of QP {int(record['qpn'])}"
    return "control packet"


def time(length_ns: int) -> str:
    """A length, which may be negative."""
    sign = "-" if length_ns < 0 else ""
    return sign + units.format_duration(abs(length_ns))


def table(body: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, numbers to the right."""
    lines = [HEAD, *body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    for line in lines:
        cells = [
            cell.rjust(width) if column < _NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
