# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion time of selective repeat by SDR-RDMA's model (arXiv 2505.05366v2).

[S] Chunk i of M is complete X_i = i T_inj + (RTO + T_inj) (Y_i - 1) after the beginning. Y_i, how
often it is sent, is geometric: P(Y_i > n) = p^n. The message takes T = max X_i + RTT.

With O = RTO + T_inj and x >= M T_inj, chunk i has been sent floor((x - i T_inj) / O) + 1 times by
x, so that ln P(max X_i <= x) is the sum over n of ln(1 - p^n) times the number of chunks that were
sent n times. That number is a difference of two floors: the cost does not grow with M.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Completion:
    """Times in nanoseconds, each with its probability.

    Probabilities of the tail are summed from its end, so that 1e-16 of it keep their digits.
    """

    def __init__(self, times_ns: Floats, masses: Floats) -> None:
        kept = masses > 0
        order = np.argsort(times_ns[kept], kind="stable")
        self._times_ns = times_ns[kept][order]
        masses = masses[kept][order]
        self._masses = masses / masses.sum()
        self._tails = np.cumsum(self._masses[::-1])[::-1]  # P(T >= its time)

    @classmethod
    def certain(cls, time_ns: float) -> Completion:
        """One time with probability 1."""
        return cls(np.array([time_ns]), np.ones(1))

    @classmethod
    def mixture(cls, parts: Iterable[tuple[float, Completion]]) -> Completion:
        """One of several, each with its probability."""
        chosen = [(weight, part) for weight, part in parts if weight > 0]
        return cls(
            np.concatenate([part._times_ns for _, part in chosen]),
            np.concatenate([weight * part._masses for weight, part in chosen]),
        )

    @property
    def least_ns(self) -> float:
        """The earliest time."""
        return float(self._times_ns[0])

    @property
    def mean_ns(self) -> float:
        """The expected time."""
        return self.least_ns + float(self._masses @ (self._times_ns - self.least_ns))

    @property
    def deviation_ns(self) -> float:
        """The standard deviation."""
        beyond = self._times_ns - self.mean_ns
        return float(np.sqrt(self._masses @ beyond**2))

    def quantile_ns(self, share: float) -> float:
        """The earliest time by which at least this share is complete."""
        above = np.append(self._tails[1:], 0.0)  # P(T > its time)
        # The sums are exact to some 1e-16 of 1: a share that a step reaches exactly is reached.
        return float(self._times_ns[np.argmax(above <= (1 - share) * (1 + 1e-12))])

    def exceeds(self, time_ns: float) -> float:
        """The probability of a later time."""
        index = int(np.searchsorted(self._times_ns, time_ns, side="right"))
        return float(self._tails[index]) if index < self._tails.size else 0.0

    def later_by(self, time_ns: float) -> Completion:
        """All times so much later."""
        return Completion(self._times_ns + time_ns, self._masses)

    def slowest_of(self, count: int) -> Completion:
        """The latest of so many that do not depend on each other."""
        above = np.append(self._tails[1:], 0.0)
        with np.errstate(divide="ignore"):
            none_later = count * np.log1p(-np.minimum(above, 1.0))
        later = -np.expm1(none_later)
        return Completion(self._times_ns, np.append(1.0, later[:-1]) - later)

    def draw(self, stream: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Random times."""
        tails = stream.random(shape)  # P(T > t) <= u: the least such t
        above = np.append(self._tails[1:], 0.0)
        drawn = np.searchsorted(-above, -tails, side="left")
        return np.asarray(self._times_ns[drawn])


CELLS = 1 << 14
"""Times within O at which the distribution is computed, if it has more steps than these.

Up to so many chunks the result is exact. Beyond, a time is off by at most O / 2 CELLS.
"""

_NEGLIGIBLE = 1e-18  # probability


def completion(
    chunks: int,
    loss: float,
    inject_ns: float,
    rto_ns: float,
    rtt_ns: float,
    cells: int = CELLS,
    packets: float = 1,
) -> Completion:
    """T of so many chunks, each lost with probability `loss`.

    [D] `packets` of a chunk, each lost with probability `loss`, are kept when they arrive: a chunk
    is complete when each of its packets has arrived in any transmission,
    P(Y_i > n) = 1 - (1 - p^n)^N; their mean, where chunks differ.
    """
    begin_ns = chunks * inject_ns
    if loss == 0:
        return Completion.certain(begin_ns + rtt_ns)
    period_ns = rto_ns + inject_ns
    edges = _edges(chunks, inject_ns, period_ns, cells)
    middles = (edges[:-1] + edges[1:]) / 2
    times: list[Floats] = []
    masses: list[Floats] = []
    above, period = 1.0, 0  # P(T > the beginning of this period); of periods of O
    while above > _NEGLIGIBLE:
        pieces = _log_complete(period, middles, chunks, loss, inject_ns, period_ns)
        later = -np.expm1(packets * pieces)
        times.append(begin_ns + period * period_ns + edges[:-1])
        masses.append(np.concatenate([[above], later[:-1]]) - later)
        above, period = float(later[-1]), period + 1
    return Completion(np.concatenate(times) + rtt_ns, np.concatenate(masses))


def _edges(chunks: int, inject_ns: float, period_ns: float, cells: int) -> Floats:
    """Where in a period the distribution may have steps: 0, ..., O.

    A step is where a chunk's number of transmissions grows. For chunk M - d that is when
    y + d T_inj is a multiple of O.
    """
    if chunks > cells:
        return np.linspace(0, period_ns, cells + 1)
    steps = period_ns - np.fmod(np.arange(1, chunks) * inject_ns, period_ns)
    edges = np.sort(np.concatenate([[0.0, period_ns], steps]))
    # Not np.unique: its first call imports a module for 17 ms, in a host in the middle of a run.
    return edges[np.diff(edges, prepend=-1.0) > 0]


def _log_complete(
    period: int, after_ns: Floats, chunks: int, loss: float, inject_ns: float, period_ns: float
) -> Floats:
    """ln P(max X_i <= x) at x = M T_inj + period O + after."""
    x_ns = chunks * inject_ns + period * period_ns + after_ns
    # All chunks were sent period + 1 times; beyond `last` the chunks' losses are negligible.
    span = math.log(_NEGLIGIBLE / chunks) / math.log(loss)
    last = period + 1 + min(math.ceil(span), math.ceil(chunks * inject_ns / period_ns) + 1)
    total = np.zeros_like(x_ns)
    sent: Floats = np.full_like(x_ns, chunks)  # chunks sent at least n times
    for n in range(period + 1, last + 1):
        again = np.clip(np.floor((x_ns - n * period_ns) / inject_ns), 0, chunks)
        total += (sent - again) * math.log1p(-(loss**n))
        sent = again
    return total
