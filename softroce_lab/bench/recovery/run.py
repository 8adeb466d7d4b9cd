# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the cells, and what they come to as a document and as lines."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab.bench.recovery import verdicts
from softroce_lab.bench.recovery.cells import NO_LOSS, Cell, Measured, cells
from softroce_lab.bench.recovery.verdicts import JUDGED, Judgement
from softroce_lab.errors import UserError
from softroce_lab.experiment.forecast import blind_rules
from softroce_lab.experiment.forecast.blind_rules import LeftOut
from softroce_lab.experiment.over_oracle import ORACLE
from softroce_lab.sweep import campaign
from softroce_lab.sweep import spec as sweep_spec
from softroce_lab.sweep.campaign import Reporter
from softroce_lab.sweep.spec import Sweep, Task
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

FULL, TUNING = "recovery", "recovery-k4"
"""The sweeps: the one that is judged, and the one that transports are tuned on."""
SHORT_CELLS = ("ring-64KiB/none", "ring-64KiB/random-1%", "incast-64KiB/none", "incast-64KiB/tail")
SHORT_SEEDS = (1, 2)
"""What `--short` runs of TUNING."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    sweep: str = FULL
    short: bool = False  # SHORT_CELLS of TUNING
    cells: Sequence[str] = ()  # patterns of names; all if empty
    under: Path = Path("bench")  # rows that are there are not measured again
    jobs: int | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The cells, and their judgements."""

    sweep: Sweep
    cells: Sequence[Cell]
    judgements: Sequence[Judgement]
    directory: Path
    blind: Mapping[str, Sequence[LeftOut]] = dataclasses.field(default_factory=dict)
    """By the name of a cell the transports that its rules cannot hit, which did not run there."""

    @property
    def notes(self) -> list[str]:
        """What was left out or is not judged, and what so few seeds cannot show."""
        return [
            *(f"{cell}: {each.note}" for cell, out in self.blind.items() for each in out),
            *verdicts.unreachable(self.judgements),
            *verdicts.unjudged(self.cells),
        ]

    @property
    def missed(self) -> list[Judgement]:
        """Judgements above their limits."""
        return [each for each in self.judgements if each.missed]

    @property
    def misses(self) -> list[str]:
        """What is missed, in words: `missed`, and baselines far from the oracle that are near."""
        missed = [f"{each.cell.name}: {each.text}" for each in self.missed]
        return [*missed, *verdicts.not_lower(self.cells)]

    @property
    def failures(self) -> list[str]:
        """Runs that failed, in words."""
        return verdicts.failures(self.cells)

    @property
    def passed(self) -> bool:
        """Whether no criterion is missed, and no run of csa_ud failed."""
        failed = any(cell.of[JUDGED].failed for cell in self.cells if JUDGED in cell.of)
        return not self.misses and not failed

    def of(self, cell: Cell) -> list[Judgement]:
        """The judgements of a cell."""
        return [each for each in self.judgements if each.cell is cell]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        lower, far = verdicts.far_baselines(self.cells)
        clean = {(each.workload, each.message_bytes): each
                 for each in self.cells if each.loss == NO_LOSS}  # fmt: skip
        rows = [
            _row(cell, transport, clean.get((cell.workload, cell.message_bytes)))
            for cell in self.cells
            for transport in cell.of
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            "sweep": self.sweep.name,
            "directory": str(self.directory),
            "verdict": "passed" if self.passed else "failed",
            "cells": rows,
            "judgements": [each.document() for each in self.judgements],
            "missed": self.misses,
            "failed": self.failures,
            "notes": self.notes,
            "left_out": {
                cell: [each.document() for each in out] for cell, out in self.blind.items()
            },
            "far_baselines": {"lower": lower, "of": far, "by": verdicts.LOWER_BY},
            "environment": environment(),
        }


def _row(cell: Cell, transport: str, without: Cell | None) -> dict[str, Any]:
    """A transport in a cell. Figures that are not defined there are None."""
    measure = cell.of[transport]
    whole = not measure.failed
    ratios = {
        name: None if value is None else round(value.value, 4)
        for name, value in verdicts.figures(cell, transport, without).items()
    }
    return {
        "workload": cell.workload,
        "loss": cell.loss,
        "message_bytes": cell.message_bytes,
        "transport": transport,
        "messages": measure.messages if whole else None,
        "repairs": measure.repairs if whole else None,
        "p99_ns": int(measure.p99_ns.value) if whole else None,
        "p999_ns": int(measure.p999_ns.value) if whole else None,
        "time_ns": int(measure.time_ns.value) if whole else None,
        **ratios,
        "spurious": round(measure.spurious, 6) if whole else None,
        "control_share": round(measure.control_share, 5) if whole else None,
        "control_bytes_share": round(measure.control_bytes_share, 5) if whole else None,
        "failed": len(measure.failed),
    }


def run(options: Options, reporter: Reporter) -> Outcome:
    """Measure what is left, and judge. UserError for cells that there are not."""
    name = TUNING if options.short else options.sweep
    wanted = _chosen(name, options.cells or (SHORT_CELLS if options.short else ()))
    sweep = sweep_spec.load(name)
    if options.short:
        sweep = dataclasses.replace(sweep, seeds=SHORT_SEEDS)
    blind = _blind(sweep, wanted)
    for each in blind.values():
        for out in each:
            reporter.say(out.note)
    out_of = {(name, out.transport) for name, each in blind.items() for out in each}
    how = campaign.Options(
        options.under,
        jobs=options.jobs,
        option="--resume DIR",
        where=lambda task: (
            _name(task) in wanted and (_name(task), task.transport.label) not in out_of
        ),
    )
    outcome = campaign.run(sweep, how, reporter, Measured)
    found = cells(sweep, outcome.rows)
    return Outcome(sweep, found, verdicts.judged(found), outcome.directory, blind)


def _name(task: Task) -> str:
    return "/".join(task.labels.values())


def _chosen(sweep: str, patterns: Iterable[str]) -> set[str]:
    """Names of the cells that a pattern matches; all of them without patterns. UserError."""
    axes = sweep_spec.labels(sweep)
    names = ["/".join(each) for each in itertools.product(*axes.values())]
    chosen: set[str] = set()
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern)
        if not matching:
            known = "/".join(f"{{{', '.join(labels)}}}" for labels in axes.values())
            raise UserError(f"{sweep} has no cell {pattern!r}", hint=f"cells are {known}")
        chosen.update(matching)
    return chosen or set(names)


def _blind(sweep: Sweep, wanted: Container[str]) -> dict[str, list[LeftOut]]:
    """Of cells, by name, the transports that their rules cannot hit; those without are absent."""
    found = {}
    for each in sweep.combinations:
        name = "/".join(point.label for point in each.points)
        if name in wanted and (out := blind_rules.compared(each.experiment)[1]):
            found[name] = out
    return found


_EXPLAINED = (
    f"p99, p999, time: {JUDGED}'s over those of the best baseline, which is named; intervals of "
    "95 %; docs/recovery.md has all figures and limits"
)


def lines(outcome: Outcome) -> list[str]:
    """One line a cell, then what is missed, and how many baselines are far behind."""
    width = max((len(cell.name) for cell in outcome.cells), default=0)
    found = [f"{cell.name:{width}}  {_line(outcome, cell)}" for cell in outcome.cells]
    if found:
        found.append(_EXPLAINED)
    found += [f"missed: {each}" for each in outcome.misses]
    found += [f"failed: {each}" for each in outcome.failures]
    found += [f"note: {each}" for each in outcome.notes]
    if any(ORACLE in cell.of for cell in outcome.cells):
        lower, far = verdicts.far_baselines(outcome.cells)
        found.append(
            f"baselines with a p99 of {verdicts.FAR_FROM_ORACLE} times the oracle's or more: "
            f"{far}; {JUDGED}'s is at least {verdicts.LOWER_BY:.0%} lower than that of {lower}"
        )
    missed = {each.cell.name for each in outcome.missed}
    above = {each.cell.name for each in outcome.judgements if each.above}
    found.append(
        f"cells that miss a limit: {len(missed)} of {len(outcome.cells)}, "
        f"{len(above)} before Holm's correction"
    )
    return found


def _line(outcome: Outcome, cell: Cell) -> str:
    if JUDGED not in cell.of or cell.of[JUDGED].failed:
        return f"{JUDGED} failed, or did not run"
    parts = []
    for each in outcome.of(cell):
        if each.interval is None:
            parts.append(f"{each.criterion} {each.value:.2%}")
        else:
            low, high = each.interval
            beside = "" if each.against == ORACLE else f" of {each.against}"
            count = "" if each.count is None else f" (n {each.count:,})"
            parts.append(
                f"{each.criterion} {each.value:.2f} [{low:.2f}, {high:.2f}]{beside}{count}"
            )
    missed = " ".join(each.criterion for each in outcome.of(cell) if each.missed)
    return "  ".join(parts) + (f"  MISSED {missed}" if missed else "")
