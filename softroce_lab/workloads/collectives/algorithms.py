# SPDX-License-Identifier: GPL-2.0-or-later
"""Algorithms of collectives: lists of transfers of chunks among ranks, in steps.

In a step a rank first reads all that it sends, then combines what it receives, in the order of the
list. So a list has one result, whatever the network does (`replay` in collective.py), and what each
transfer must await follows from it (`schedule_of` there).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from softroce_lab.workloads.message import ADD, STORE, Combine


class Transfer(NamedTuple):
    """`chunks` neighbours, from `first` on, from one rank to another."""

    step: int
    source: int  # ranks
    destination: int
    first: int
    chunks: int
    combine: Combine


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """How ranks do an operation."""

    transfers: Callable[[int], Iterator[Transfer]]  # for so many ranks
    chunks: Callable[[int], int]  # that the vector is cut into, for so many ranks
    powers_of_two: bool = False  # whether it takes only these numbers of ranks
    pipelined: bool = False
    """Between two ranks messages go in the order of step + place in their chunk, as they flow in
    a pipeline; else as listed, which must be in the order of steps."""


# ---------------------------------------------------------------- rings

# Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009). In
# step s rank r sends chunk r - s to rank r + 1 (modulo N), which adds it to its own in the first
# N - 1 steps, and keeps it in the others.


def _ring(ranks: int, steps: int, adding_steps: int) -> Iterator[Transfer]:
    for rank in range(ranks):
        for step in range(steps):
            combine = ADD if step < adding_steps else STORE
            yield Transfer(step, rank, (rank + 1) % ranks, (rank - step) % ranks, 1, combine)


def _chain(ranks: int) -> Iterator[Transfer]:
    return (Transfer(rank, rank, rank + 1, 0, 1, STORE) for rank in range(ranks - 1))


# ---------------------------------------------------------------- recursive doubling and halving

# Partners are at distances that are powers of two. Thakur, Rabenseifner, Gropp: Optimization of
# collective communication operations in MPICH (2005). Of N ranks that are no power of two, the
# first 2 (N - 2^k) pair up: the even one gives its vector to the odd one, which takes part for
# both, and receives the result in the end.

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


# ---------------------------------------------------------------- trees

# Sums go up to the root, the result goes down from it. A vertex passes each message on as it comes,
# so the messages of a vector are a pipeline. The double tree is Sanders, Speck, Traeff: Two-tree
# algorithms for full bandwidth broadcast, reduction and scan (2009), with the trees of NCCL
# (`src/graph/trees.cc`): each carries one half of the vector, and an inner vertex of one is a leaf
# of the other, but for roots.


@dataclasses.dataclass(frozen=True)
class _Tree:
    """Ranks with their parents, all but the root; children of one parent in their order."""

    parents: Mapping[int, int]

    def depth(self, rank: int) -> int:
        found = 0
        while rank in self.parents:
            rank = self.parents[rank]
            found += 1
        return found

    def up(self, chunk: int) -> Iterator[Transfer]:
        """Sums, from the leaves to the root."""
        depths = {rank: self.depth(rank) for rank in self.parents}
        height = max(depths.values())
        for rank in sorted(depths, key=lambda rank: -depths[rank]):
            yield Transfer(height - depths[rank], rank, self.parents[rank], chunk, 1, ADD)

    def down(self, chunk: int, first_step: int) -> Iterator[Transfer]:
        """What the root has, to all."""
        depths = {rank: self.depth(rank) for rank in self.parents}
        for rank in sorted(depths, key=lambda rank: depths[rank]):
            step = first_step + depths[rank] - 1
            yield Transfer(step, self.parents[rank], rank, chunk, 1, STORE)

    @property
    def height(self) -> int:
        return max(map(self.depth, self.parents))


def _binomial(ranks: int) -> _Tree:
    """The parent of a rank lacks its lowest bit; the largest subtree comes first."""
    return _Tree({rank: rank & rank - 1 for rank in range(ranks - 1, 0, -1)})


def _binary(ranks: int) -> _Tree:
    """In-order: odd ranks are leaves, and rank 0 is the root, with one child."""
    parents = {}
    for rank in range(1, ranks):
        bit = rank & -rank
        above = (rank ^ bit) | (bit << 1)
        parents[rank] = above if above < ranks else rank ^ bit
    return _Tree(parents)


def _other(ranks: int) -> _Tree:
    """The same tree with the ranks mirrored, or shifted by one if their number is odd."""

    def place(rank: int) -> int:
        return (rank + 1) % ranks if ranks % 2 else ranks - 1 - rank

    parents = _binary(ranks).parents
    return _Tree({place(rank): place(parent) for rank, parent in parents.items()})


def _reduce_and_broadcast(trees: tuple[_Tree, ...]) -> Iterator[Transfer]:
    for chunk, tree in enumerate(trees):
        yield from tree.up(chunk)
    turn = max(tree.height for tree in trees)
    for chunk, tree in enumerate(trees):
        yield from tree.down(chunk, turn)


def _broadcast_both(ranks: int) -> Iterator[Transfer]:
    """The first rank is the root; it gives the second half to the root of the second tree."""
    other = _other(ranks)
    (root,) = set(other.parents.values()) - set(other.parents)
    yield from _binary(ranks).down(0, 0)
    if root == 0:
        yield from other.down(1, 0)
        return
    yield Transfer(0, 0, root, 1, 1, STORE)
    for each in other.down(1, 1):
        if each.destination != 0:
            yield each


# ---------------------------------------------------------------- all of them


def _one(_ranks: int) -> int:
    return 1


def _two(_ranks: int) -> int:
    return 2


def _same(ranks: int) -> int:
    return ranks


ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": {
        "ring": Algorithm(lambda ranks: _ring(ranks, 2 * (ranks - 1), ranks - 1), _same),
        "recursive-doubling": Algorithm(_all_reduce, _one),
        # Rabenseifner's: reduce-scatter by halving, then all-gather by doubling.
        "halving-doubling": Algorithm(_halving_doubling, _power),
        "binomial-tree": Algorithm(
            lambda ranks: _reduce_and_broadcast((_binomial(ranks),)), _one, pipelined=True
        ),
        "double-tree": Algorithm(
            lambda ranks: _reduce_and_broadcast((_binary(ranks), _other(ranks))),
            _two,
            pipelined=True,
        ),
    },
    "reduce-scatter": {
        # Afterwards rank r has the sum in chunk r + 1, and parts of sums elsewhere.
        "ring": Algorithm(lambda ranks: _ring(ranks, ranks - 1, ranks - 1), _same),
        # Afterwards rank r has the sum in chunk r.
        "recursive-halving": Algorithm(
            lambda ranks: _halving(list(range(ranks)), 0), _same, powers_of_two=True
        ),
    },
    "all-gather": {  # rank r begins with chunk r
        "ring": Algorithm(lambda ranks: _ring(ranks, ranks - 1, 0), _same),
        "recursive-doubling": Algorithm(
            lambda ranks: _gathering(list(range(ranks)), 0), _same, powers_of_two=True
        ),
    },
    "broadcast": {  # the first rank is the root; each passes the messages on as they come
        "ring": Algorithm(_chain, _one, pipelined=True),
        "binomial-tree": Algorithm(lambda ranks: _binomial(ranks).down(0, 0), _one, pipelined=True),
        "double-tree": Algorithm(_broadcast_both, _two, pipelined=True),
    },
}
"""By operation and name."""
