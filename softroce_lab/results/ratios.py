# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare --figure`: means of ratios that are paired by seed.

A pair is the same cell and seed under two transports, or in two directories. A key is a cell and a
transport (`comparison.Key`).

- The mean of a cell is over its seeds.
- The mean over all cells first takes, for each seed, the mean over the cells. Then it takes the
  mean over the seeds. So every cell counts the same. A seed counts only if all cells have it.
- Intervals are Student's, of the logarithms of the ratios. They assume that the logarithms of
  different seeds are independent and approximately normal.
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
from softroce_lab.results.comparison import Key, RunFigures, Values

ALL_CELLS = "all cells"
DEFAULTS = ("makespan_ns", "fct_p99_ns", "slowdown_p99")

# The 97.5 % quantile of Student's distribution for 1, 2, ... 30 degrees of freedom.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution.

    For more than 30 degrees of freedom it is the normal quantile and the first term of its
    expansion.
    """
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.960 + 2.372 / freedom


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean of ratios, with its 95 % interval."""

    mean: float
    low: float | None  # ends of the interval; None with one pair
    high: float | None
    pairs: int  # number of seeds

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of(logs: Sequence[float]) -> Ratio:
    """From the logarithms of ratios, one for each seed. ValueError if there are none."""
    if not logs:
        raise ValueError("no mean of no ratios")
    mean, count = statistics.fmean(logs), len(logs)
    if count == 1:
        return Ratio(math.exp(mean), None, None, 1)
    half = _student(count - 1) * statistics.stdev(logs) / math.sqrt(count)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The ratios of one comparison in one cell, or in all cells."""

    compared: str  # such as "csa_ud / irn"
    cell: str  # or `ALL_CELLS`
    ratios: Mapping[str, Ratio | None]  # by figure; None: no seed has the figure on both sides

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


Comparisons = Mapping[str, Sequence[tuple[Key, Key]]]
"""By name, such as "csa_ud / irn": pairs of keys. A ratio divides the second by the first."""


def over_others(values: Values, transport: str) -> Comparisons:
    """This transport over each other one. UserError for an unknown transport."""
    _check_known(values, transport)
    return _pairs(values, [(each, transport) for each in _labels(values) if each != transport])


def over_baseline(values: Values, baseline: str) -> Comparisons:
    """Each other transport over this one. UserError for an unknown transport."""
    _check_known(values, baseline)
    return _pairs(values, [(baseline, each) for each in _labels(values) if each != baseline])


def ladder(values: Values) -> Comparisons:
    """Each transport over the one before it, in the order of the sweep."""
    return _pairs(values, list(itertools.pairwise(_labels(values))))


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
        raise UserError(f"unknown transport {transport!r}", hint=f"known: {', '.join(labels)}")


def _pairs(values: Values, names: Sequence[tuple[str, str]]) -> Comparisons:
    """`names`: two transports each. A pair is of two keys with the same cell."""
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
    """A line for each run without figures: its cell, transport and seed."""
    for (cell, transport), seeds in values.items():
        yield from (f"{cell}, {transport}, seed {seed}" for seed in seeds if seeds[seed] is None)


def check_figures(names: Sequence[str]) -> None:
    """UserError if a factor of a name is no figure of `lab results compare`."""
    known = [*claimed(), *(f"slowdown_p99{size}" for size in SIZE_CLASSES)]
    for factor in (factor for name in names for factor in name.split("*")):
        if factor not in known:
            hint = did_you_mean(factor, known) or f"known: {', '.join(known)}"
            raise UserError(f"{factor!r} is no figure of lab results compare", hint=hint)


def rows(
    first: Values, second: Values, compared: Comparisons, figures: Sequence[str]
) -> Iterator[Row]:
    """A row for each cell of each comparison, and a row for all cells if there are several.

    `first` has the first key of each pair, `second` the second. A figure may be a product:
    `makespan_ns*fct_p99_ns`.
    """
    for name, pairs in compared.items():
        logs = {  # by figure and cell
            figure: {
                first_key[0]: _logs(first[first_key], second[second_key], figure.split("*"))
                for first_key, second_key in pairs
            }
            for figure in figures
        }
        for (cell, _), _ in pairs:
            yield Row(name, cell, {each: _ratio(logs[each][cell]) for each in figures})
        if len(pairs) > 1:
            yield Row(name, ALL_CELLS, {each: _ratio(_mean(logs[each])) for each in figures})


def _ratio(logs: Mapping[int, float]) -> Ratio | None:
    return ratio_of([*logs.values()]) if logs else None


def _logs(
    first: Mapping[int, RunFigures | None],
    second: Mapping[int, RunFigures | None],
    factors: Sequence[str],
) -> dict[int, float]:
    """By seed: the logarithm of the second product of factors over the first.

    A seed is left out if a run of it failed, lacks a factor, or has a factor of 0.
    """
    logs = {}
    for seed, first_run in first.items():
        second_run = second.get(seed)
        if first_run is None or second_run is None:
            continue
        products = [
            math.prod(run.values.get(factor, 0) for factor in factors)
            for run in (first_run, second_run)
        ]
        if all(products):
            logs[seed] = math.log(products[1] / products[0])
    return logs


def _mean(cells: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """By seed: the mean over the cells.

    Cells without any seed do not count. Of the others every one must have the seed.
    """
    used = [logs for logs in cells.values() if logs]
    seeds = set[int].intersection(*({*logs} for logs in used)) if used else set[int]()
    return {seed: statistics.fmean(logs[seed] for logs in used) for seed in sorted(seeds)}
