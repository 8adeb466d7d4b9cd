# SPDX-License-Identifier: GPL-2.0-or-later
"""Distributions of flow sizes: published ones, points of one's own, a list, a range.

Between two points (a, p) and (b, q) of a cumulative distribution sizes are distributed evenly, as
in the traffic generator of HPCC. Sizes are whole bytes: of the flows, q - p have one of the sizes
a + 1 to b, all equally often. So the cumulative distribution is exact at each whole size, and so is
the mean.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Points: TypeAlias = Sequence[tuple[int, Fraction]]
"""(size in bytes, share of the flows that are no larger): from a share of 0 to a share of 1."""

PUBLISHED: Mapping[str, Sequence[tuple[int, float]]] = {
    # Alizadeh et al.: Data Center TCP (DCTCP), SIGCOMM 2010: a cluster for web search.
    "web-search": (
        (0, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53),
        (200_000, 60), (1_000_000, 70), (2_000_000, 80), (5_000_000, 90), (10_000_000, 97),
        (30_000_000, 100),
    ),
    # Roy et al.: Inside the Social Network's (Datacenter) Network, SIGCOMM 2015: Hadoop.
    "hadoop": (
        (0, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30), (600, 40),
        (700, 50), (1_000, 60), (2_000, 67), (7_000, 70), (30_000, 72), (50_000, 82),
        (80_000, 87), (120_000, 90), (300_000, 95), (1_000_000, 97.5), (2_000_000, 99),
        (10_000_000, 100),
    ),
    # Li et al.: HPCC: High Precision Congestion Control, SIGCOMM 2019: Alibaba's storage, 2019.
    "ali-storage": (
        (0, 0), (4_000, 22.93), (8_000, 69.21), (16_000, 80.61), (32_000, 90.47),
        (64_000, 93.53), (128_000, 96.77), (256_000, 97.53), (2_000_000, 100),
    ),
}  # fmt: skip
"""(size in bytes, percent of the flows that are no larger), as in HPCC's traffic_gen:
github.com/alibaba-edu/High-Precision-Congestion-Control."""


class Part(NamedTuple):
    """Flows of these sizes, all equally often; `least == most` is one size."""

    least: int  # bytes
    most: int
    share: Fraction  # of all flows


class _Columns(NamedTuple):
    """Of the parts, one each."""

    least: npt.NDArray[np.int64]
    widths: npt.NDArray[np.int64]  # how many sizes
    slopes: npt.NDArray[np.float64]  # sizes a 64-bit number


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A distribution of flow sizes, 1 byte or more."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """ValueError for a distribution without sizes, or with a part that no flow can have."""
        if not self.parts:
            raise ValueError("the distribution has no sizes")
        weights, whole = self._weights
        if sum(weights) != whole:
            raise ValueError("the shares do not add up to 100 %")
        for part in self.parts:
            if not 1 <= part.least <= part.most:
                raise ValueError(f"sizes {part.least} to {part.most} bytes: 1 or more, rising")
        begins = [*map(int, self._begins), 1 << 64]
        if any(end <= begin for begin, end in itertools.pairwise(begins)):
            raise ValueError("a share is too small for a 64-bit number")

    @classmethod
    def published(cls, name: str) -> Sizes:
        """One of `PUBLISHED`. KeyError if there is none of that name."""
        return cls.of_points([(size, Fraction(str(at)) / 100) for size, at in PUBLISHED[name]])

    @classmethod
    def of_points(cls, points: Points) -> Sizes:
        """Of a cumulative distribution. ValueError for one that does not rise from 0 to 1.

        Two points of one size give that size a share of its own.
        """
        if not points:
            raise ValueError("the distribution has no points")
        if points[0][1] != 0:
            raise ValueError("the first point is not at 0 %")
        if points[-1][1] != 1:
            raise ValueError("the last point is not at 100 %")
        parts = []
        for (low, begin), (high, end) in itertools.pairwise(points):
            if end <= begin:
                raise ValueError("probabilities do not rise from point to point")
            if high < low:
                raise ValueError("sizes fall from point to point")
            parts.append(Part(min(low + 1, high), high, end - begin))
        return cls(tuple(parts))

    @classmethod
    def of_list(cls, sizes: Sequence[int]) -> Sizes:
        """These sizes, all equally often; one that stands twice is twice as frequent."""
        share = Fraction(1, max(len(sizes), 1))
        return cls(tuple(Part(size, size, share) for size in sizes))

    @classmethod
    def of_range(cls, least: int, most: int) -> Sizes:
        """All sizes of a range, equally often."""
        return cls((Part(least, most, Fraction(1)),))

    @functools.cached_property
    def mean_bytes(self) -> Fraction:
        """The exact mean."""
        weights, whole = self._weights
        twice = sum(
            weight * (part.least + part.most)
            for weight, part in zip(weights, self.parts, strict=True)
        )
        return Fraction(twice, 2 * whole)

    @property
    def largest(self) -> int:
        """The largest size, bytes."""
        return max(part.most for part in self.parts)

    @functools.cached_property
    def _weights(self) -> tuple[list[int], int]:
        """Shares of the parts as whole numbers, and what 100 % are: thousands are added at once."""
        whole = math.lcm(*(part.share.denominator for part in self.parts))
        return [
            part.share.numerator * (whole // part.share.denominator) for part in self.parts
        ], whole

    @functools.cached_property
    def _begins(self) -> npt.NDArray[np.uint64]:
        """The least 64-bit number of each part."""
        weights, whole = self._weights
        sums = itertools.accumulate(weights[:-1], initial=0)
        return np.array([_nearest(begin << 64, whole) for begin in sums], dtype=np.uint64)

    @functools.cached_property
    def _columns(self) -> _Columns:
        begins = self._begins
        ends = [*map(int, begins[1:]), 1 << 64]
        spans = np.array([float(e - int(b)) for b, e in zip(begins, ends, strict=True)])
        least = np.array([each.least for each in self.parts], dtype=np.int64)
        widths = np.array([each.most - each.least + 1 for each in self.parts], dtype=np.int64)
        return _Columns(least, widths, widths / spans)

    def drawn(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The size in bytes for each 64-bit number: the inverse of the cumulative distribution."""
        least, widths, slopes = self._columns
        part = np.searchsorted(self._begins, numbers, side="right") - 1
        within = (numbers - self._begins[part]).astype(np.float64) * slopes[part]
        sizes: npt.NDArray[np.int64] = least[part] + np.minimum(
            within.astype(np.int64), widths[part] - 1
        )
        return sizes

    def __getstate__(self) -> dict[str, object]:
        """Without what is computed again."""
        return {"parts": self.parts}


def _nearest(dividend: int, divisor: int) -> int:
    """The quotient, rounded to the nearest whole number, and from the middle to an even one."""
    quotient, twice = dividend // divisor, 2 * (dividend % divisor)
    return quotient + (twice > divisor or (twice == divisor and quotient % 2 == 1))
