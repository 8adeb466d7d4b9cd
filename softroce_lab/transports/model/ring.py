# SPDX-License-Identifier: GPL-2.0-or-later
"""Ring all-reduce over sites, each step a message of the model (docs/explanation/sdr.md).

2 (N - 1) steps; in each, every site sends an N-th of the vector to the next one. [D] A site begins
a step when its own message of the step before, and that of its predecessor, are complete:

    C(s, r) = max(C(s-1, r), C(s-1, r-1)) + T(s, r)
"""

from __future__ import annotations

import dataclasses

import numpy as np

from softroce_lab.errors import UserError
from softroce_lab.transports.model.selective_repeat import Completion, Floats

MOST_SITES = 64
_MOST_DRAWN = 1 << 22  # times in memory at once


@dataclasses.dataclass(frozen=True, slots=True)
class AllReduce:
    """Completion of the collective, by drawn times and by bounds of its mean."""

    times_ns: Floats  # ascending, one a run
    least_mean_ns: float  # every site waits for itself alone
    most_mean_ns: float  # every site waits for all others after each step

    @property
    def mean_ns(self) -> float:
        """The mean of the runs."""
        return float(self.times_ns.mean())

    @property
    def standard_error_ns(self) -> float:
        """Of the mean."""
        return float(self.times_ns.std(ddof=1) / self.times_ns.size**0.5)

    def quantile_ns(self, share: float) -> float:
        """The earliest time by which at least this share of the runs is complete."""
        return float(np.quantile(self.times_ns, share, method="inverted_cdf"))


def steps_of(sites: int) -> int:
    """Steps of an all-reduce. UserError if there is no ring of so many sites."""
    if not 2 <= sites <= MOST_SITES:
        raise UserError(f"a ring of {sites} sites: 2 to {MOST_SITES} are possible")
    return 2 * (sites - 1)


def all_reduce(
    message: Completion,
    sites: int,
    runs: int,
    stream: np.random.Generator,
) -> AllReduce:
    """The collective whose messages, each an N-th of the vector, take such times."""
    steps = steps_of(sites)
    if runs < 2:
        raise UserError(f"{runs} runs have no standard error", hint="2 or more")
    at_once = max(1, _MOST_DRAWN // (steps * sites))
    parts = [
        _run(message, min(at_once, runs - begin), sites, stream)
        for begin in range(0, runs, at_once)
    ]
    return AllReduce(
        np.sort(np.concatenate(parts)),
        steps * message.mean_ns,
        steps * message.slowest_of(sites).mean_ns,
    )


def _run(message: Completion, runs: int, sites: int, stream: np.random.Generator) -> Floats:
    complete = np.zeros((runs, sites))
    for _ in range(steps_of(sites)):
        ready = np.maximum(complete, np.roll(complete, 1, axis=1))
        complete = ready + message.draw(stream, (runs, sites))
    return np.asarray(complete.max(axis=1))
