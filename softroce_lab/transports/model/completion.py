# SPDX-License-Identifier: GPL-2.0-or-later
"""A distribution of completion times: what a model of a transport predicts."""

from __future__ import annotations

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
