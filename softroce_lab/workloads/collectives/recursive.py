# SPDX-License-Identifier: GPL-2.0-or-later
"""Recursive doubling and halving: partners at distances that are powers of two.

Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH (2005).
Of N ranks that are no power of two, the first 2 (N - 2^k) pair up: the even one gives its vector to
the odd one, which takes part for both, and receives the result in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from softroce_lab.workloads.collectives.shape import Algorithm, Transfer, same
from softroce_lab.workloads.message import ADD, STORE, Combine

_Part: TypeAlias = Callable[[int], tuple[int, int]]
"""Of a place among those who take part: the first chunk that it sends, and how many."""


def _power(ranks: int) -> int:
    """The largest power of two that is no more."""
    return 1 << ranks.bit_length() - 1


def _exchange(
    ranks: list[int], step: int, distance: int, part: _Part, combine: Combine
) -> Iterator[Transfer]:
    """Each rank sends its partner at a distance the `part` (first chunk, count) of its own."""
    for place, rank in enumerate(ranks):
        yield Transfer(step, rank, ranks[place ^ distance], *part(place), combine)


def _distances(power: int) -> list[int]:
    return [1 << bit for bit in range(power.bit_length() - 1)]


def _own(distance: int) -> _Part:
    """The chunks that a rank and its partners at smaller distances have."""
    return lambda place: (place & -distance, distance)


def _partners(distance: int) -> _Part:
    """The same of the partner."""
    return lambda place: ((place ^ distance) & -distance, distance)


def _doubling(ranks: list[int], step: int) -> Iterator[Transfer]:
    """Sums of the whole vector: log2(N) exchanges."""
    for distance in _distances(len(ranks)):
        yield from _exchange(ranks, step, distance, lambda _place: (0, 1), ADD)
        step += 1


def _halving(ranks: list[int], step: int) -> Iterator[Transfer]:
    """Of what a rank still adds up, it sends the half that its partner keeps."""
    for distance in reversed(_distances(len(ranks))):
        yield from _exchange(ranks, step, distance, _partners(distance), ADD)
        step += 1


def _gathering(ranks: list[int], step: int) -> Iterator[Transfer]:
    """What a rank has doubles in each exchange."""
    for distance in _distances(len(ranks)):
        yield from _exchange(ranks, step, distance, _own(distance), STORE)
        step += 1


def _folded(
    ranks: int, chunks: int, core: Callable[[list[int], int], Iterator[Transfer]], steps: int
) -> Iterator[Transfer]:
    """`core`, of so many steps, among a power of two of the ranks, which stand in for the rest."""
    rest = ranks - _power(ranks)
    for pair in range(rest):
        yield Transfer(0, 2 * pair, 2 * pair + 1, 0, chunks, ADD)
    yield from core([*range(1, 2 * rest, 2), *range(2 * rest, ranks)], 1)
    for pair in range(rest):
        yield Transfer(1 + steps, 2 * pair + 1, 2 * pair, 0, chunks, STORE)


def _all_reduce(ranks: int) -> Iterator[Transfer]:
    return _folded(ranks, 1, _doubling, len(_distances(_power(ranks))))


def _halving_doubling(ranks: int) -> Iterator[Transfer]:
    exchanges = len(_distances(_power(ranks)))

    def core(members: list[int], step: int) -> Iterator[Transfer]:
        yield from _halving(members, step)
        yield from _gathering(members, step + exchanges)

    return _folded(ranks, _power(ranks), core, 2 * exchanges)


ALL_REDUCE = Algorithm(_all_reduce, lambda _ranks: 1)
# Rabenseifner's: reduce-scatter by halving, then all-gather by doubling.
ALL_REDUCE_HALVING = Algorithm(_halving_doubling, _power)
# Afterwards rank r has the sum in chunk r.
REDUCE_SCATTER = Algorithm(lambda ranks: _halving(list(range(ranks)), 0), same, powers_of_two=True)
ALL_GATHER = Algorithm(lambda ranks: _gathering(list(range(ranks)), 0), same, powers_of_two=True)
