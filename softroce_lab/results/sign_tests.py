# SPDX-License-Identifier: GPL-2.0-or-later
"""Sign tests of many figures over the same seeds, corrected for all of them together.

Westfall and Young's step-down procedure (Resampling-Based Multiple Testing, 1993, algorithm 2.8)
on sign tests: without a difference, a seed's two sides might as well be exchanged, in all of its
figures at once. Every exchange of seeds gives p-values that chance might have given, and a claim
counts as many claims as it is independent of. Figures that are one measurement, such as makespan
and busbw, always have the same signs: they count once, whatever their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ALL_UP_TO = 12
"""With so many seeds, or fewer, every exchange is tried; with more, as many are drawn."""
_BLOCK = 256


def _p(count: int, above: int) -> float:
    """Two-sided p of the hypothesis that the median is 0; equal pairs are not in the count."""
    most = max(above, count - above)
    tail = sum(math.comb(count, each) for each in range(most, count + 1)) / (1 << count)
    return min(1.0, 2 * tail)


def adjusted(claims: Sequence[Mapping[int, float]]) -> list[float]:
    """p of each claim, so that of all of them one is wrong in at most 5 % if 0.05 is the limit.

    A claim has a difference by seed; its sign alone counts. A seed that it lacks is no pair of it.
    """
    seeds = sorted({seed for claim in claims for seed in claim})
    if not seeds:
        return [1.0] * len(claims)
    signs = np.array(
        [[_sign(claim.get(seed, 0)) for seed in seeds] for claim in claims], dtype=np.int64
    )
    table = _table(len(seeds))
    counts = np.abs(signs).sum(axis=1)
    found = table[counts, (counts + signs.sum(axis=1)) // 2]
    order = np.argsort(found, kind="stable")
    ordered, signs, counts = found[order], signs[order], counts[order]
    beaten, tried = np.zeros(len(claims), np.int64), 0
    for flips in _exchanges(len(seeds)):
        above = (counts[:, None] + signs @ flips) // 2
        least = np.minimum.accumulate(table[counts[:, None], above][::-1], axis=0)[::-1]
        beaten += (least <= ordered[:, None]).sum(axis=1)
        tried += flips.shape[1]
    stepped = np.maximum.accumulate(np.maximum(beaten / tried, ordered))
    result = np.empty(len(claims))
    result[order] = stepped
    return [float(each) for each in result]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _table(most: int) -> npt.NDArray[np.float64]:
    """p by the number of pairs that differ, and how many of them are above."""
    table = np.ones((most + 1, most + 1))
    for count in range(1, most + 1):
        table[count, : count + 1] = [_p(count, above) for above in range(count + 1)]
    return table


def _exchanges(seeds: int) -> Iterator[npt.NDArray[Any]]:
    """1 or -1 by seed and exchange, in blocks; none exchanged is the first."""
    if seeds <= ALL_UP_TO:
        numbers = np.arange(1 << seeds)
        flips = 1 - 2 * (numbers[None, :] >> np.arange(seeds)[:, None] & 1)
    else:
        flips = 1 - 2 * np.random.default_rng(1).integers(0, 2, (seeds, 1 << ALL_UP_TO))
        flips[:, 0] = 1
    for begin in range(0, flips.shape[1], _BLOCK):
        yield flips[:, begin : begin + _BLOCK]


def fewest_pairs(limit: float) -> int:
    """With fewer pairs no claim has so small a p."""
    return math.ceil(math.log2(2 / limit))
