# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges cells: `csa_ud` beside the best baseline and beside the oracle, each within a limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from softroce_lab.bench.recovery import ratios
from softroce_lab.bench.recovery.cells import NO_LOSS, Cell, Measure, ends, excess
from softroce_lab.bench.recovery.ratios import Resampled
from softroce_lab.experiment.over_oracle import ORACLE, RATIOS
from softroce_lab.statistics import holm

JUDGED = "csa_ud"
SIGNIFICANT = 0.05  # of Holm's adjusted p-values

OVER_BEST, OVER_BEST_WITHOUT_LOSS = 1.02, 1.05  # our header alone takes 2.1 % of a packet
OVER_ORACLE = {
    "repair_p50_over_oracle": 1.25,
    "repair_p99_over_oracle": 1.5,
    "time_over_oracle": 1.03,
}
EXCESS_LIMITS = {"excess_p99": 1.25, "excess_p999": 1.5}
SPURIOUS_LIMIT = 0.005
CONTROL_LIMIT, CONTROL_BYTES_LIMIT = 0.15, 0.02
FAR_FROM_ORACLE = 1.6  # baselines whose p99 is so many times the oracle's
LOWER_BY = 0.30  # so much lower is csa_ud's p99 than theirs

_BESIDE_BASELINES: Mapping[str, Callable[[Measure], Resampled]] = {
    "p99": lambda measure: measure.p99_ns,
    "p999": lambda measure: measure.p999_ns,
    "time": lambda measure: measure.time_ns,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """One criterion in one cell."""

    cell: Cell
    criterion: str
    limit: float
    value: float
    against: str | None = None  # the transport that the value is a ratio to
    interval: tuple[float, float] | None = None  # 95 %; None: the value is a count's share
    p_value: float | None = None  # that the ratio is within the limit
    adjusted: float | None = None  # by Holm, for all cells of this criterion
    seeds: int = 0
    tests: int = 1  # cells that the correction is for
    count: int | None = None  # samples of a repair time, of all seeds

    @property
    def missed(self) -> bool:
        """Whether the value is above the limit: significantly, if there is an interval.

        Where so few seeds cannot be significant among so many cells, the interval alone decides.
        """
        if self.interval is None or self.adjusted is None:
            return self.value > self.limit
        return self.above and (self.adjusted < SIGNIFICANT or not self.reachable)

    @property
    def reachable(self) -> bool:
        """Whether any result of so many seeds could be significant after the correction."""
        return ratios.least_p(self.seeds) * self.tests < SIGNIFICANT

    @property
    def above(self) -> bool:
        """Whether the whole interval is above the limit, before the correction."""
        return (self.interval[0] if self.interval else self.value) > self.limit

    @property
    def text(self) -> str:
        """For people."""
        beside = f" of {self.against}'s" if self.against else ""
        within = "" if self.interval is None else " [{:.3f}, {:.3f}]".format(*self.interval)
        count = "" if self.count is None else f", n {self.count:,}"
        return f"{self.criterion} {self.value:.4g}{within}{beside}, limit {self.limit:g}{count}"

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "workload": self.cell.workload,
            "loss": self.cell.loss,
            "message_bytes": self.cell.message_bytes,
            "criterion": self.criterion,
            "against": self.against,
            "value": round(self.value, 5),
            "interval_95": None if self.interval is None else ends(self.interval),
            "limit": self.limit,
            "p_holm": None if self.adjusted is None else round(self.adjusted, 5),
            "seeds": self.seeds or None,
            "reachable": self.reachable if self.seeds else None,
            "above": self.above,
            "missed": self.missed,
        }


def judged(cells: Sequence[Cell]) -> list[Judgement]:
    """All criteria of all cells that can be judged, in their order."""
    without = {(each.workload, each.message_bytes): each for each in cells if each.loss == NO_LOSS}
    found = [
        each
        for cell in cells
        if _has(cell, JUDGED)
        for each in _of_cell(cell, without.get((cell.workload, cell.message_bytes)))
    ]
    return _adjusted(found)


def unreachable(found: Sequence[Judgement]) -> list[str]:
    """Where the seeds are too few for Holm's correction, a line for each number of them."""
    most: dict[int, int] = {}
    for each in found:
        if each.seeds and not each.reachable:
            most[each.seeds] = max(each.tests, most.get(each.seeds, 0))
    return [
        f"{seeds} seeds cannot be significant among {tests} tests by Holm's correction (least "
        f"p {min(1.0, ratios.least_p(seeds) * tests):.2g}, {SIGNIFICANT:g} is wanted; "
        f"{ratios.seeds_needed(SIGNIFICANT, tests)} seeds can): the interval alone decides there"
        for seeds, tests in sorted(most.items())
    ]


def unjudged(cells: Sequence[Cell]) -> list[str]:
    """Cells with loss whose repair times have no ratio, a line for each transport without some."""
    return [
        f"{cell.name}: repair times are not judged: {lacking} of {len(measure.rows)} runs of "
        f"{name} have none"
        for cell in cells
        if cell.loss != NO_LOSS and _has(cell, JUDGED) and _has(cell, ORACLE)
        for name in (JUDGED, ORACLE)
        if (lacking := (measure := cell.of[name]).without_repairs)
    ]


def failures(cells: Sequence[Cell]) -> list[str]:
    """Runs without figures, a line for each cell and transport that has some."""
    return [
        f"{cell.name}: {len(failed)} of {len(measure.rows)} runs of {transport} failed: {failed[0]}"
        for cell in cells
        for transport, measure in cell.of.items()
        if (failed := measure.failed)
    ]


def far_baselines(cells: Sequence[Cell]) -> tuple[int, int]:
    """Of baselines far from the oracle: in how many csa_ud's p99 is 30 % lower, and how many."""
    far = list(_far(cells))
    return sum(each.is_lower for each in far), len(far)


def not_lower(cells: Sequence[Cell]) -> list[str]:
    """Baselines far from the oracle whose p99 csa_ud's is not 30 % below, a line for each."""
    return [
        f"{each.cell.name}: p99 {each.ours / each.theirs:.4g} of {each.name}'s, which is "
        f"{each.theirs / each.bound:.3g} times the oracle's, limit {1 - LOWER_BY:g}"
        for each in _far(cells)
        if not each.is_lower
    ]


class _Far(NamedTuple):
    """A baseline far from the oracle: its p99 in ns, the oracle's and csa_ud's."""

    cell: Cell
    name: str
    bound: float
    ours: float
    theirs: float

    @property
    def is_lower(self) -> bool:
        return self.ours <= (1 - LOWER_BY) * self.theirs


def _far(cells: Sequence[Cell]) -> Iterator[_Far]:
    for cell in cells:
        if not (_has(cell, JUDGED) and _has(cell, ORACLE)):
            continue
        bound, ours = cell.of[ORACLE].p99_ns.value, cell.of[JUDGED].p99_ns.value
        for name, measure in _baselines(cell).items():
            if (theirs := measure.p99_ns.value) >= FAR_FROM_ORACLE * bound:
                yield _Far(cell, name, bound, ours, theirs)


def _has(cell: Cell, transport: str) -> bool:
    return transport in cell.of and not cell.of[transport].failed


def _baselines(cell: Cell) -> dict[str, Measure]:
    return {name: each for name, each in cell.of.items()
            if name not in (JUDGED, ORACLE) and not each.failed}  # fmt: skip


def _of_cell(cell: Cell, without: Cell | None) -> Iterator[Judgement]:
    ours = cell.of[JUDGED]
    if baselines := _baselines(cell):
        limit = OVER_BEST_WITHOUT_LOSS if cell.loss == NO_LOSS else OVER_BEST
        for criterion, figure in _BESIDE_BASELINES.items():
            best = min(baselines, key=lambda name: figure(baselines[name]).value)
            yield _ratio(cell, criterion, limit, figure(ours).over(figure(baselines[best])), best)
    yield Judgement(cell, "spurious", SPURIOUS_LIMIT, ours.spurious)
    yield Judgement(cell, "control_share", CONTROL_LIMIT, ours.control_share)
    yield Judgement(cell, "control_bytes_share", CONTROL_BYTES_LIMIT, ours.control_bytes_share)
    if _has(cell, ORACLE):
        yield from _beside_oracle(cell, without)


def _beside_oracle(cell: Cell, without: Cell | None) -> Iterator[Judgement]:
    ours = figures(cell, JUDGED, without)
    for key, limit in {**OVER_ORACLE, **EXCESS_LIMITS}.items():
        if (value := ours[key]) is not None:
            yield _ratio(cell, key, limit, value, ORACLE)


def _ratio(cell: Cell, criterion: str, limit: float, ratio: Resampled, other: str) -> Judgement:
    ours = cell.of[JUDGED]
    seeds = len(ours.rows)
    p_value = ratio.p_above(limit, seeds)
    count = ours.repairs if criterion.startswith("repair") else None
    return Judgement(
        cell, criterion, limit, ratio.value, other, ratio.interval, p_value,
        seeds=seeds, count=count,
    )  # fmt: skip


def figures(cell: Cell, transport: str, without: Cell | None) -> dict[str, Resampled | None]:
    """What a transport is beside the oracle; None where that is not defined."""
    found: dict[str, Resampled | None] = dict.fromkeys((*RATIOS, *EXCESS_LIMITS))
    if not (_has(cell, transport) and _has(cell, ORACLE)):
        return found
    measure, oracle = cell.of[transport], cell.of[ORACLE]
    for name, key in RATIOS.items():
        value, least = measure.mean_ns(key), oracle.mean_ns(key)
        found[name] = value.over(least) if value and least else None
    if without is not None and _has(without, ORACLE) and cell.loss != NO_LOSS:
        clean = without.of[ORACLE]
        found["excess_p99"] = excess(measure.p99_ns, oracle.p99_ns, clean.p99_ns, measure.rtt_ns)
        found["excess_p999"] = excess(
            measure.p999_ns, oracle.p999_ns, clean.p999_ns, measure.rtt_ns
        )
    return found


def _adjusted(found: Sequence[Judgement]) -> list[Judgement]:
    """With Holm's correction, over the cells of each criterion."""
    families: dict[str, list[int]] = {}
    for index, each in enumerate(found):
        if each.p_value is not None:
            families.setdefault(each.criterion, []).append(index)
    done = list(found)
    for family in families.values():
        p_values = [p for index in family if (p := found[index].p_value) is not None]
        for index, adjusted in zip(family, holm(p_values), strict=True):
            done[index] = dataclasses.replace(found[index], adjusted=adjusted, tests=len(p_values))
    return done
