# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab compare --figure`: geometric means of ratios that are paired by seed, with 95 % intervals.

A pair is one cell and seed under two transports, or in two directories. The mean of a cell is over
its seeds. The mean over all cells is the mean over the seeds of each seed's mean over the cells, so
every cell counts the same, and only seeds that all cells have count. Intervals are Student's, of
the logarithms: they assume that the seeds' logarithms are independent and about normal.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import SIZE_CLASSES, claimed
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.report.comparison import Key, Values

ALL_CELLS = "all cells"
DEFAULTS = ("makespan_ns", "fct_p99_ns", "slowdown_p99")

# Quantiles of 97.5 % of Student's distribution, for 1 to 30 degrees of freedom.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def _student(freedom: int) -> float:
    """With more than 30 degrees the first term of the expansion about the normal quantile."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.960 + 2.372 / freedom


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean of ratios."""

    mean: float
    low: float | None  # of the interval; None with one pair
    high: float | None
    pairs: int

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of(logs: Sequence[float]) -> Ratio:
    """The mean and its interval, from the logarithms of ratios. ValueError without any."""
    if not logs:
        raise ValueError("no mean of nothing")
    mean, count = statistics.fmean(logs), len(logs)
    if count == 1:
        return Ratio(math.exp(mean), None, None, 1)
    half = _student(count - 1) * statistics.stdev(logs) / math.sqrt(count)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The ratios of one cell, or of all, of one comparison."""

    compared: str  # such as "csa_ud / irn"
    cell: str
    ratios: Mapping[str, Ratio | None]  # by figure; None: no seed has it on both sides

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return dataclasses.asdict(self)


Comparisons = Mapping[str, Sequence[tuple[Key, Key]]]
"""By name pairs of keys: the ratio is that of the second over the first."""


def over_others(values: Values, transport: str) -> Comparisons:
    """A transport over each other one of the same cell. UserError if it is not there."""
    _check_known(values, transport)
    return _by_name(values, [(each, transport) for each in _labels(values) if each != transport])


def over_baseline(values: Values, baseline: str) -> Comparisons:
    """Each other transport over this one. UserError if it is not there."""
    _check_known(values, baseline)
    return _by_name(values, [(baseline, each) for each in _labels(values) if each != baseline])


def ladder(values: Values) -> Comparisons:
    """Each transport over the one before it, in the order of the sweep."""
    labels = _labels(values)
    return _by_name(values, list(itertools.pairwise(labels)))


def of_two(first: Values, second: Values) -> Comparisons:
    """Each transport in the second directory over itself in the first."""
    both: dict[str, list[tuple[Key, Key]]] = {}
    for key in first:
        if key in second:
            both.setdefault(key[1], []).append((key, key))
    return both


def _labels(values: Values) -> list[str]:
    return list(dict.fromkeys(transport for _, transport in values))


def _check_known(values: Values, transport: str) -> None:
    labels = _labels(values)
    if transport not in labels:
        raise UserError(f"there is no transport {transport!r}", hint=f"known: {', '.join(labels)}")


def _by_name(values: Values, names: Sequence[tuple[str, str]]) -> Comparisons:
    cells = list(dict.fromkeys(cell for cell, _ in values))
    return {
        f"{second} / {first}": [
            ((cell, first), (cell, second))
            for cell in cells
            if (cell, first) in values and (cell, second) in values
        ]
        for first, second in names
    }


def failed(values: Values) -> Iterator[str]:
    """The runs that have no figures, each by cell, transport and seed."""
    for (cell, transport), seeds in values.items():
        yield from (f"{cell}, {transport}, seed {seed}" for seed in seeds if seeds[seed] is None)


def check_figures(names: Sequence[str]) -> None:
    """UserError for a factor that is no figure of `lab compare`."""
    known = [*claimed(), *(f"slowdown_p99{size}" for size in SIZE_CLASSES)]
    for factor in (factor for name in names for factor in name.split("*")):
        if factor not in known:
            hint = did_you_mean(factor, known) or f"known: {', '.join(known)}"
            raise UserError(f"{factor!r} is no figure that is compared", hint=hint)


def rows(
    first: Values, second: Values, compared: Comparisons, figures: Sequence[str]
) -> Iterator[Row]:
    """The cells of each comparison, and their mean if there are several.

    A figure may be a product: `makespan_ns*fct_p99_ns`.
    """
    for name, pairs in compared.items():
        logs = {
            figure: {
                ours[0]: _logs(first, second, ours, theirs, figure.split("*"))
                for ours, theirs in pairs
            }
            for figure in figures
        }
        for ours, _ in pairs:
            yield Row(name, ours[0], {each: _ratio(logs[each][ours[0]]) for each in figures})
        if len(pairs) > 1:
            yield Row(name, ALL_CELLS, {each: _ratio(_mean(logs[each])) for each in figures})


def _ratio(logs: Mapping[int, float]) -> Ratio | None:
    return ratio_of([*logs.values()]) if logs else None


def _logs(
    first: Values, second: Values, ours: Key, theirs: Key, factors: Sequence[str]
) -> dict[int, float]:
    """By seed; without seeds of which a side failed, lacks the figure, or has 0."""
    found = {}
    for seed, before in first[ours].items():
        after = second[theirs].get(seed)
        if before is None or after is None:
            continue
        sides = [
            math.prod(side.values.get(each, 0) for each in factors) for side in (before, after)
        ]
        if all(sides):
            found[seed] = math.log(sides[1] / sides[0])
    return found


def _mean(cells: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """By seed over the cells that have the figure; of seeds that all of these have."""
    known = [each for each in cells.values() if each]
    seeds = set[int].intersection(*({*each} for each in known)) if known else set[int]()
    return {seed: statistics.fmean(each[seed] for each in known) for seed in sorted(seeds)}
