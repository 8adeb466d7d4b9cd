# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults' models as Markov chains, written again from their definition, and what n packets may do.

Everything that is tested (packets hit, runs of them, runs of one packet) is a sum over the steps of
a finite chain. The moment generating function of such a sum is exactly u M(t)^n 1, with the chain's
matrix M weighted by e^(t f) at each step (Kemeny and Snell, Finite Markov Chains; Dembo and
Zeitouni, Large Deviations Techniques, 3.1). Chernoff's inequality then bounds its tails:

    P(S >= s) <= min over t > 0 of exp(log u M(t)^n 1 - t s)

No limit theorem and no asymptotic variance is assumed, so the bounds hold for any rate and number
of packets, however few are hit. They are wider than exact ones, by a tenth at five deviations.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import numpy as np

from softroce_lab.plan.effects import (
    Burst,
    Corrupt,
    Duplicate,
    Effect,
    Gemodel,
    RandomLoss,
    Reorder,
    probability,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """From one state to another, with or without a hit."""

    state: int
    following: int
    hit: bool
    probability: float


def steps(effect: Effect) -> Iterator[Step]:
    """Of the chain that the effect is."""
    match effect:
        case RandomLoss(threshold) | Corrupt(threshold) | Duplicate(threshold):
            yield from _either(0, probability(threshold), (0, 0))
        case Gemodel(p, r, loss_bad, loss_good):
            for state, leave, loss in ((0, p, loss_good), (1, r, loss_bad)):
                for to, move in ((1 - state, probability(leave)), (state, 1 - probability(leave))):
                    yield Step(state, to, True, move * probability(loss))
                    yield Step(state, to, False, move * (1 - probability(loss)))
        case Burst(begin, length):  # a state: packets that the burst still takes
            yield from _either(0, probability(begin), (length - 1, 0))
            yield from (Step(left, left - 1, True, 1.0) for left in range(1, length))
        case Reorder(threshold, gap, _):  # a state: packets that cannot be chosen
            yield from _either(0, probability(threshold), (max(gap - 1, 0), 0))
            yield from (Step(left, left - 1, False, 1.0) for left in range(1, gap))
        case _:
            raise ValueError(f"{effect} draws nothing")


def first_state(effect: Effect) -> int:
    """In which the chain begins: a gap lies before the first packet, too."""
    return max(effect.gap - 1, 0) if isinstance(effect, Reorder) else 0


def _either(state: int, q: float, following: tuple[int, int]) -> Iterator[Step]:
    yield Step(state, following[0], True, q)
    yield Step(state, following[1], False, 1 - q)


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What became of `packets` consecutive ones."""

    packets: int
    hits: int
    runs: int
    lone: int  # runs of one packet, but for one that the last packet is

    @classmethod
    def of(cls, packets: int, positions: np.ndarray) -> Counts:
        """From the positions of those that were hit, in order."""
        edges = np.diff(positions.astype(np.int64), prepend=-2, append=packets) > 1
        if positions.size and positions[-1] == packets - 1:
            edges[-1] = False  # nobody knows yet how long that run is
        starts, ends = edges[:-1], edges[1:]
        return cls(packets, positions.size, int(starts.sum()), int((starts & ends).sum()))

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            *(getattr(self, name) + getattr(other, name) for name in Counts.__slots__),
        )


# What a step adds to each of Counts' numbers, by the two packets before it and its own.
_ADDS: dict[str, Callable[[bool, bool, bool], bool]] = {
    "hits": lambda _, last, hit: hit,
    "runs": lambda _, last, hit: hit and not last,
    "lone": lambda before, last, hit: last and not before and not hit,
}

_LONG_RUN = 48  # doublings


class Model:
    """An effect's chain, whose states know the fates of the two packets before."""

    def __init__(self, effect: Effect) -> None:
        self._steps = list(steps(effect))
        states = 1 + max(step.state for step in self._steps)
        self._start = np.zeros(4 * states)
        self._start[4 * first_state(effect)] = 1.0
        self._matrices = self._weighted(states)

    def _weighted(self, states: int) -> list[tuple[np.ndarray, tuple[int, ...]]]:
        """The chain's matrix in parts, each with what its steps add to hits, runs and lone ones."""
        parts: dict[tuple[int, ...], np.ndarray] = {}
        for step in self._steps:
            for past in range(4):
                before, last = bool(past & 2), bool(past & 1)
                adds = tuple(int(add(before, last, step.hit)) for add in _ADDS.values())
                part = parts.setdefault(adds, np.zeros((4 * states, 4 * states)))
                row, column = 4 * step.state + past, 4 * step.following + (last << 1 | step.hit)
                part[row, column] += step.probability
        return [(part, adds) for adds, part in parts.items()]

    def _tilted(self, t: float, weights: tuple[float, ...]) -> np.ndarray:
        tilted = np.zeros_like(self._matrices[0][0])
        for part, adds in self._matrices:
            tilted += part * math.exp(t * float(np.dot(weights, adds)))
        return tilted

    def share(self, name: str) -> float:
        """The mean of a count a packet, in the long run."""
        matrix = self._tilted(0.0, (0.0,) * len(_ADDS))
        for _ in range(_LONG_RUN):
            matrix = matrix @ matrix
            matrix /= matrix.sum(axis=1, keepdims=True)
        which = list(_ADDS).index(name)
        added = sum(part * adds[which] for part, adds in self._matrices)
        return float((self._start @ matrix @ added).sum())

    def log_moment(self, t: float, weights: tuple[float, ...], packets: int) -> float:
        """log E exp(t * sum), of what `packets` steps add up to."""
        matrix, vector = self._tilted(t, weights), np.ones(len(self._start))
        log = scale = 0.0  # of what `vector` and `matrix` were divided by
        left = packets
        while left:
            if left & 1:
                vector = matrix @ vector
                log += scale + math.log(vector.max())
                vector /= vector.max()
            matrix = matrix @ matrix
            most = float(matrix.max())
            matrix /= most
            scale = 2 * scale + math.log(most)
            left >>= 1
        return log + math.log(float(self._start @ vector))


def bounds(
    model: Model, weights: tuple[float, ...], packets: int, streams: int, alpha: float
) -> tuple[float, float]:
    """What a sum over `streams` runs of `packets` stays between, but for alpha below and above."""

    def most(sign: int) -> float:
        log_alpha = math.log(alpha)

        def at(log_t: float) -> float:
            t = math.exp(log_t)
            moment = streams * model.log_moment(sign * t, weights, packets)
            return (moment - log_alpha) / t

        return sign * _least(at, math.log(1e-9), math.log(20.0))

    return most(-1), most(1)


def _least(function: Callable[[float], float], low: float, high: float, looks: int = 40) -> float:
    """The least value of a function that falls, then rises; any value above it is a bound too."""
    golden = (math.sqrt(5) - 1) / 2
    seen = functools.cache(function)
    for _ in range(looks):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if seen(left) < seen(right):
            high = right
        else:
            low = left
    return seen((low + high) / 2)
