# SPDX-License-Identifier: GPL-2.0-or-later
"""Do two ways to measure one thing agree, within a margin? Exact tests on pairs, one pair a seed.

With enough runs any two clocks differ, by less than anybody cares for. So what is asked is not
whether they differ, but whether they differ by more than a margin that was set before (an
equivalence test: Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987). What is tested is
the median difference over the seeds, by sign tests: they assume nothing but that seeds are
independent, and messages of one run are not.

A claim that all of several things agree needs no correction for their number (Berger,
Technometrics 24, 1982: the intersection-union test); a claim that one of them differs does (Holm,
Scandinavian J. of Statistics 6, 1979).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.statistics import ALPHA, holm, median_interval

Verdict: TypeAlias = Literal["same", "differs", "undecided"]
Sample: TypeAlias = npt.NDArray[np.float64]

EXCHANGES = 1 << 10
"""Exchanges of labels that are tried at random, where there are more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """What a number of differences, in units of the margin, say about their median."""

    median: float
    low: float  # of the interval of at least 1 - 2 ALPHA; the extremes if that takes more seeds
    high: float
    p_same: float  # of differences like these, or less, if the median were beyond the margin
    p_differs: float  # of differences like these, or more, if it were within
    verdict: Verdict = "undecided"


def fewest_seeds(comparisons: int) -> int:
    """Pairs without which none of so many comparisons can be found to differ, nor to agree."""
    return max(math.ceil(math.log2(1 / ALPHA)), math.ceil(math.log2(2 * comparisons / ALPHA)))


def agreement(differences: Sequence[float]) -> Agreement:
    """Of differences, one a seed, in units of the margin. Without a verdict. ValueError if none.

    A difference that touches the margin is not within.
    """
    if not differences:
        raise ValueError("nothing was compared")
    count = len(differences)
    interval = median_interval(differences, 1 - 2 * ALPHA)
    above = sum(each >= 1 for each in differences), sum(each > 1 for each in differences)
    below = sum(each <= -1 for each in differences), sum(each < -1 for each in differences)
    return Agreement(
        median=interval.median,
        low=interval.low,
        high=interval.high,
        p_same=max(_at_most(above[0], count), _at_most(below[0], count)),
        p_differs=min(1.0, 2 * _at_most(count - max(above[1], below[1]), count)),
    )


def judged(found: Sequence[Agreement]) -> list[Agreement]:
    """The same, with verdicts: `p_differs` is Holm's from now on, adjusted for all of them."""
    adjusted = holm([each.p_differs for each in found])
    return [
        dataclasses.replace(each, p_differs=p, verdict=_verdict(each.p_same, p))
        for each, p in zip(found, adjusted, strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Distance:
    """How far two distributions are from each other, and whether that could be chance."""

    largest: float  # between the distribution functions: Kolmogorov's and Smirnov's D
    p: float  # of such a distance, or a larger one, if the labels of each pair were drawn


def distance(pairs: Sequence[tuple[Sample, Sample]], generator: np.random.Generator) -> Distance:
    """Between all first samples and all second ones of pairs, samples of a pair equally long.

    A permutation test that exchanges the two samples of a pair as a whole, as what is in a sample
    depends on each other: all exchanges, or `EXCHANGES` drawn from the generator. ValueError for
    no pairs, or unequal ones.
    """
    if not pairs or any(len(one) != len(other) for one, other in pairs):
        raise ValueError("samples come in pairs, equally long")
    grid = np.unique(np.concatenate([sample for pair in pairs for sample in pair]))
    counts = np.array([_below(one, grid) - _below(other, grid) for one, other in pairs])
    signs = _signs(len(pairs), generator)
    largest = np.abs(signs @ counts).max(axis=1) / max(1, sum(len(one) for one, _ in pairs))
    return Distance(float(largest[0]), float(np.mean(largest >= largest[0] - 1e-12)))


def _signs(count: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Rows of +1 and -1, the first row all +1; exchanging everything changes no distance."""
    if 1 << (count - 1) <= EXCHANGES:
        bits = np.arange(1 << (count - 1))[:, None] >> np.arange(count) & 1
    else:
        bits = generator.integers(0, 2, size=(EXCHANGES, count))
        bits[0] = 0
    return 1 - 2 * bits


def _below(sample: Sample, grid: Sample) -> npt.NDArray[np.int64]:
    return np.searchsorted(np.sort(sample), grid, side="right")


def _verdict(p_same: float, p_differs: float) -> Verdict:
    if p_same <= ALPHA:
        return "same"
    return "differs" if p_differs <= ALPHA else "undecided"


def _at_most(successes: int, count: int) -> float:
    """Of so many fair coins."""
    return float(sum(math.comb(count, k) for k in range(successes + 1)) / 2**count)
