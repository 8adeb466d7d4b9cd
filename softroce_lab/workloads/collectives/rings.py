# SPDX-License-Identifier: GPL-2.0-or-later
"""Ring algorithms.

Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009). In
step s rank r sends chunk r - s to rank r + 1 (modulo N), which adds it to its own in the first
N - 1 steps, and keeps it in the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from softroce_lab.workloads.collectives.shape import Algorithm, Transfer, same
from softroce_lab.workloads.message import ADD, STORE


def _ring(ranks: int, steps: int, adding_steps: int) -> Iterator[Transfer]:
    for rank in range(ranks):
        for step in range(steps):
            combine = ADD if step < adding_steps else STORE
            yield Transfer(step, rank, (rank + 1) % ranks, (rank - step) % ranks, 1, combine)


def _chain(ranks: int) -> Iterator[Transfer]:
    return (Transfer(rank, rank, rank + 1, 0, 1, STORE) for rank in range(ranks - 1))


# Afterwards rank r has the sum in chunk r + 1, and parts of sums elsewhere.
REDUCE_SCATTER = Algorithm(lambda ranks: _ring(ranks, ranks - 1, ranks - 1), same)
# Rank r begins with chunk r.
ALL_GATHER = Algorithm(lambda ranks: _ring(ranks, ranks - 1, 0), same)
ALL_REDUCE = Algorithm(lambda ranks: _ring(ranks, 2 * (ranks - 1), ranks - 1), same)
# Each rank passes the messages on as they come: a pipeline.
BROADCAST = Algorithm(_chain, lambda _ranks: 1, pipelined=True)
