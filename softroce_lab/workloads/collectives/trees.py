# SPDX-License-Identifier: GPL-2.0-or-later
"""Trees: sums go up to the root, the result goes down from it.

A vertex passes each message on as it comes, so the messages of a vector are a pipeline.

The double tree is Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast,
reduction and scan (2009), with the trees of NCCL (`src/graph/trees.cc`): each carries one half of
the vector, and an inner vertex of one is a leaf of the other, but for roots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from softroce_lab.workloads.collectives.shape import Algorithm, Transfer
from softroce_lab.workloads.message import ADD, STORE


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


def _one(_ranks: int) -> int:
    return 1


def _two(_ranks: int) -> int:
    return 2


ALL_REDUCE_BINOMIAL = Algorithm(
    lambda ranks: _reduce_and_broadcast((_binomial(ranks),)), _one, pipelined=True
)
ALL_REDUCE_DOUBLE = Algorithm(
    lambda ranks: _reduce_and_broadcast((_binary(ranks), _other(ranks))), _two, pipelined=True
)
# The first rank is the root.
BROADCAST_BINOMIAL = Algorithm(lambda ranks: _binomial(ranks).down(0, 0), _one, pipelined=True)
BROADCAST_DOUBLE = Algorithm(_broadcast_both, _two, pipelined=True)
