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


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A distribution of flow sizes, 1 byte or more."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """ValueError for a distribution without sizes, or with a part that no flow can have."""
        if not self.parts:
            raise ValueError("the distribution has no sizes")
        if sum(part.share for part in self.parts) != 1:
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
        return cls(tuple(Part(size, size, Fraction(1, len(sizes))) for size in sizes))

    @classmethod
    def of_range(cls, least: int, most: int) -> Sizes:
        """All sizes of a range, equally often."""
        return cls((Part(least, most, Fraction(1)),))

    @functools.cached_property
    def mean_bytes(self) -> Fraction:
        """The exact mean."""
        means = (part.share * Fraction(part.least + part.most, 2) for part in self.parts)
        return sum(means, Fraction(0))

    @property
    def largest(self) -> int:
        """The largest size, bytes."""
        return max(part.most for part in self.parts)

    @functools.cached_property
    def _begins(self) -> npt.NDArray[np.uint64]:
        """The least 64-bit number of each part."""
        shares = [part.share for part in self.parts]
        sums = itertools.accumulate(shares[:-1], initial=Fraction(0))
        return np.array([round(begin * 2**64) for begin in sums], dtype=np.uint64)

    def drawn(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The size in bytes for each 64-bit number: the inverse of the cumulative distribution."""
        begins = self._begins
        part = np.searchsorted(begins, numbers, side="right") - 1
        least = np.array([each.least for each in self.parts], dtype=np.int64)
        widths = np.array([each.most - each.least + 1 for each in self.parts], dtype=np.int64)
        ends = [*map(int, begins[1:]), 1 << 64]
        spans = np.array([float(e - int(b)) for b, e in zip(begins, ends, strict=True)])
        within = (numbers - begins[part]).astype(np.float64) * (widths / spans)[part]
        sizes: npt.NDArray[np.int64] = least[part] + np.minimum(
            within.astype(np.int64), widths[part] - 1
        )
        return sizes
