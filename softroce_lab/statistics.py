# SPDX-License-Identifier: GPL-2.0-or-later
"""Medians with intervals, for figures from machines that are noisy; p-values; few samples.

A percentile needs so many samples that some lie above it: p50 2, p99 100, p99.9 1,000. With fewer
it is the largest sample, and is marked wherever it is printed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A median and its confidence interval of at least 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median and the narrowest pair of order statistics around it that holds the true one.

    Without any assumption on the distribution: the number of values below the true median is
    binomial(n, 1/2) (David and Nagaraja, Order Statistics, 7.1). With fewer than six values not
    even the extremes reach 95 %: their range is the interval then. ValueError without values.
    """
    if not values:
        raise ValueError("no median of nothing")
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    below, tail = 0.0, (1 - confidence) / 2
    rank = 0
    while rank < count // 2 and (below := below + math.comb(count, rank) / 2**count) <= tail:
        rank += 1
    low = max(rank - 1, 0)
    return Interval(middle, ordered[low], ordered[count - 1 - low])


FEWEST = 6
"""Values of which the extremes reach 95 %: with fewer an interval is their range."""


def spread_name(counts: Iterable[int]) -> str:
    """What `median_interval` gives for so many values each."""
    enough = {count >= FEWEST for count in counts}
    if enough == {True, False}:
        return f"95 % interval, below {FEWEST} seeds range"
    return "95 % interval" if True in enough else "range"


ALPHA = 0.05
"""How often what is not so may be claimed: of one claim, or of all that Holm corrects together."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for their number by Holm's step-down procedure (1979), in their order."""
    adjusted = [1.0] * len(p_values)
    most = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = most
    return adjusted


MARK = "*"
FOOTNOTE = f"{MARK} fewer samples than the percentile needs: p50 2, p99 100, p99.9 1,000"


def samples_needed(per_mille: int) -> int:
    """The fewest samples of which one lies beyond so many of a thousand."""
    return -(-1000 // (1000 - per_mille))


def marked(text: str, per_mille: int, samples: int) -> str:
    """A percentile as it is printed: with `MARK` if it has fewer samples than it needs."""
    return text + MARK if samples < samples_needed(per_mille) else text


def footnotes(texts: Iterable[str]) -> list[str]:
    """The line that explains `MARK`, if any of the printed texts has it."""
    return [FOOTNOTE] if any(MARK in text for text in texts) else []
