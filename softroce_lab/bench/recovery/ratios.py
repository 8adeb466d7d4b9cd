# SPDX-License-Identifier: GPL-2.0-or-later
"""Ratios of two transports over the same seeds, with bootstrap intervals.

Pure: the resamples are drawn from a fixed stream, so that the same rows give the same digits.
The bootstrap draws seeds with replacement (Efron, 1979), the same ones for both transports: that
pairs them. Percentiles are of the messages of all drawn seeds together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.streams import jumps, words

RESAMPLES = 9_999
"""The least p-value is 1 / 10,000: below 5 % of one among 78 cells, divided by their number."""
KEPT_SHARE = 8
"""A run keeps the largest eighth of its times: of ten seeds together, the largest hundredth lies
in it, even if it is all of one seed."""

Floats: TypeAlias = npt.NDArray[np.float64]
Draws: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Resampled:
    """A figure of all seeds, and of each resample."""

    value: float
    resamples: Floats

    def over(self, other: Resampled) -> Resampled:
        """The ratio. ValueError if the other is not above 0."""
        if not other.value > 0:
            raise ValueError("no ratio to nothing")
        return Resampled(self.value / other.value, self.resamples / other.resamples)

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %: without the least and the largest fortieth of the resamples."""
        low, high = np.quantile(self.resamples, (0.025, 0.975), method="nearest")
        return float(low), float(high)

    def p_above(self, limit: float, seeds: int) -> float:
        """How likely resamples are at the limit or below (Davison and Hinkley, 1997, 4.2.3).

        Not below `least_p`: resamples of few seeds are no more evidence than the seeds.
        """
        share = (1 + int((self.resamples <= limit).sum())) / (1 + len(self.resamples))
        return max(share, least_p(seeds))


def least_p(seeds: int) -> float:
    """Of a paired test of so many seeds: that of a sign test in which all of them agree."""
    return float(0.5**seeds)


def seeds_needed(significant: float, tests: int) -> int:
    """The fewest seeds whose `least_p` is significant among so many tests, by Holm."""
    return math.floor(math.log2(tests / significant)) + 1


def draws(seeds: int) -> Draws:
    """How often each seed is drawn, a row for each resample."""
    key = stream_key(0, "bootstrap", seeds)
    drawn = jumps(words(key, 0, RESAMPLES * seeds), seeds).reshape(RESAMPLES, seeds)
    return np.stack([(drawn == seed).sum(axis=1) for seed in range(seeds)], axis=1)


def tail(times_ns: npt.NDArray[np.int64]) -> list[int]:
    """What `percentile` needs of the times of a run: the largest, in descending order."""
    kept = math.ceil(len(times_ns) / KEPT_SHARE)
    largest: list[int] = np.sort(times_ns)[::-1][:kept].tolist()
    return largest


def percentile(
    tails: Sequence[Sequence[int]], counts: Sequence[int], per_mille: int, drawn: Draws
) -> Resampled:
    """A percentile of the messages of all seeds: `counts` of each, and the `tail` of them.

    The smallest value that so many of a thousand do not exceed. ValueError for fewer than 990, or
    without messages.
    """
    if per_mille < 990 or not sum(counts):
        raise ValueError("the tails hold the last hundredth of some messages")
    values = np.concatenate([np.asarray(each, dtype=np.int64) for each in tails])
    owners = np.repeat(np.arange(len(tails)), [len(each) for each in tails])
    order = np.argsort(-values, kind="stable")
    values, owners = values[order], owners[order]
    all_once = np.ones((1, len(tails)), dtype=np.int64)
    weights = np.concatenate([all_once, drawn])
    totals = weights @ np.asarray(counts, dtype=np.int64)
    ranks = totals - np.maximum(1, -(-totals * per_mille // 1000)) + 1  # from the largest on
    places = _places(weights, owners, ranks)
    found = values[places].astype(np.float64)
    return Resampled(float(found[0]), found[1:])


def _places(
    weights: Draws, owners: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of each resample, which value has this rank if each counts as often as its seed is drawn."""
    found = np.full(len(weights), len(owners) - 1)
    left = np.arange(len(weights))
    passed = np.zeros(len(weights), dtype=np.int64)
    block = max(64, int(ranks.max()) * 2)
    for first in range(0, len(owners), block):
        counted = passed[left, None] + np.cumsum(weights[left][:, owners[first : first + block]], 1)
        there = counted >= ranks[left, None]
        done = there[:, -1]
        found[left[done]] = first + there[done].argmax(axis=1)
        passed[left] = counted[:, -1]
        left = left[~done]
        if not len(left):
            break
    return found


def geometric_mean(values: Sequence[float], drawn: Draws) -> Resampled:
    """Of one value a seed. ValueError if one is not above 0."""
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean is of values above 0")
    logs = np.log(np.asarray(values, dtype=np.float64))
    return Resampled(float(np.exp(logs.mean())), np.exp(drawn @ logs / len(values)))
