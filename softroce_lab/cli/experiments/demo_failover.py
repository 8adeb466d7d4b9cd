# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover`: what it prints."""

from __future__ import annotations

from collections.abc import Callable

from softroce_lab import units
from softroce_lab.experiment.failover.rig import Outcome, first_events

_MS = 1e6


def lines(outcomes: list[Outcome]) -> list[str]:
    """A table of both jobs, then what happened and when."""
    width = max(len(label) for label, _ in _ROWS) + 2
    heads = ["with SHIFT" if each.shift else "without SHIFT" for each in outcomes]
    made = [" " * width + "".join(f"{head:>18}" for head in heads)]
    for label, show in _ROWS:
        made.append(f"{label:{width}}" + "".join(f"{show(each):>18}" for each in outcomes))
    for head, each in zip(heads, outcomes, strict=True):
        made += [f"  {head}, {error}" for error in each.errors]
        if each.moments:
            made += ["", "time since the NIC died, host and peer, transition"]
        for moment in first_events(each):
            event = moment.event
            ends = f"{moment.host}-{moment.peer}"
            step = f"{event.before} -> {event.after}"
            made.append(f"{moment.at_ns / _MS:>10.1f} ms  {ends}  {step}: {event.why}")
    return made


def _time(name: str) -> Callable[[Outcome], str]:
    def show(outcome: Outcome) -> str:
        value = getattr(outcome, name)
        return "-" if value is None else units.format_duration(value)

    return show


def _model(outcome: Outcome) -> str:
    if outcome.errors:
        return "not finished"
    return "right" if set(outcome.checksums) == {outcome.reference} else "WRONG"


_ROWS: list[tuple[str, Callable[[Outcome], str]]] = [
    ("steps done", lambda o: f"{o.steps_done} of {o.steps}"),
    ("p50 step", _time("step_p50_ns")),
    ("goodput gap", _time("gap_ns")),
    ("detection", _time("detection_ns")),
    ("failed to good completion", _time("failover_ns")),
    ("requests consumed", lambda o: f"{o.total('consumed'):,}"),
    ("requests resubmitted", lambda o: f"{o.total('resubmitted'):,}"),
    ("notifications", lambda o: f"{o.notifications:,} of {o.expected:,}"),
    ("once and in order", lambda o: "yes" if o.in_order else "NO"),
    ("model (SHA-256)", _model),
]
