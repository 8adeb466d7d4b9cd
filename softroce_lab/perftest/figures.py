# SPDX-License-Identifier: GPL-2.0-or-later
"""What perftest makes of a run's times: bandwidths, rates of messages, latencies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.perftest.options import PerfTest
from softroce_lab.statistics import samples_needed

Times = npt.NDArray[np.int64]

MOST_PEAK = 20_000
"""Beyond so many iterations no peak is looked for: all pairs of posts and ends are compared."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of one size; of both directions together, if there were two."""

    bytes: int
    iterations: int
    peak: float  # bytes/s of the best interval; 0: not known
    average: float  # bytes/s
    messages_per_second: float
    received: int  # messages that a receiver of SENDs completed

    @classmethod
    def of(cls, results: Sequence[Any], test: PerfTest, size: int, received: int) -> Bandwidth:
        """Of the ends that posted."""
        rates = [_rate(result) for result in results]
        peaks = [peak_rate(r.posted_ns, r.completed_ns) for r in results]
        iterations = sum(r.completed for r in results)
        known = test.iterations is not None and all(peaks)
        return cls(
            bytes=size,
            iterations=test.iterations * test.qps if test.iterations else iterations,
            peak=sum(peaks) * size if known else 0.0,
            average=sum(rates) * size,
            messages_per_second=sum(rates),
            received=received,
        )


def _rate(result: Any) -> float:
    """Messages a second."""
    return float(result.completed * 1e9 / max(result.ended_ns - result.began_ns, 1))


def peak_rate(posted_ns: Times, completed_ns: Times) -> float:
    """Messages a second of the best interval: from the post of any to the end of any later one."""
    count = len(completed_ns)
    if not 0 < count <= MOST_PEAK:
        return 0.0
    # Of messages that one completion reports together, the last makes the best rate.
    ends = np.flatnonzero(np.diff(completed_ns, append=completed_ns[-1] + 1))
    best = 0.0
    for first in range(count):
        later = ends[np.searchsorted(ends, first) :]
        spans = np.maximum(completed_ns[later] - posted_ns[first], 1)
        best = max(best, float(((later - first + 1) / spans).max()))
    return best * 1e9


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """Of one size, in microseconds: half of a round trip, or a READ or atomic and its answer."""

    bytes: int
    iterations: int
    least: float | None  # None of these: only the average is known of a duration
    most: float | None
    median: float | None
    average: float
    deviation: float | None
    p99: float | None
    p99_9: float | None

    @classmethod
    def of(cls, result: Any, test: PerfTest, size: int) -> Latency:
        """Of the end that began."""
        if test.iterations is None:
            span = (result.ended_ns - result.began_ns) / 1e3 / test.trips
            return cls(size, result.posted, None, None, None, span / max(result.posted, 1),
                       None, None, None)  # fmt: skip
        times = np.sort(np.diff(result.posted_ns)) / 1e3 / test.trips
        return cls(
            bytes=size,
            iterations=result.posted,
            least=float(times[0]),
            most=float(times[-1]),
            median=float(np.median(times)),
            average=float(times.mean()),
            deviation=float(times.std()),
            p99=_beyond(times, 0.99),
            p99_9=_beyond(times, 0.999),
        )

    @property
    def few_samples(self) -> list[str]:
        """The percentiles that have fewer iterations than they need."""
        each = {"99%": (self.p99, 990), "99.9%": (self.p99_9, 999)}
        return [
            name
            for name, (value, per_mille) in each.items()
            if value is not None and self.iterations < samples_needed(per_mille)
        ]

    @property
    def transactions_per_second(self) -> float:
        """Of one after the other."""
        return 1e6 / self.average if self.average else 0.0


def _beyond(ordered: npt.NDArray[np.float64], share: float) -> float:
    """The value that this share of all lies below."""
    return float(ordered[min(math.ceil(len(ordered) * share), len(ordered) - 1)])
