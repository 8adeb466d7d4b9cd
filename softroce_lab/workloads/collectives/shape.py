# SPDX-License-Identifier: GPL-2.0-or-later
"""What an algorithm is: a list of transfers of chunks among ranks, in steps.

In a step a rank first reads all that it sends, then combines what it receives, in the order of the
list. So a list has one result, whatever the network does (`replay.py`), and what each transfer must
await follows from it (`dataflow.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from softroce_lab.workloads.message import Combine


class Transfer(NamedTuple):
    """`chunks` neighbours, from `first` on, from one rank to another."""

    step: int
    source: int  # ranks
    destination: int
    first: int
    chunks: int
    combine: Combine


def same(ranks: int) -> int:
    """As many as there are ranks."""
    return ranks


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """How ranks do an operation."""

    transfers: Callable[[int], Iterator[Transfer]]  # for so many ranks
    chunks: Callable[[int], int]  # that the vector is cut into, for so many ranks
    powers_of_two: bool = False  # whether it takes only these numbers of ranks
    pipelined: bool = False
    """Between two ranks messages go in the order of step + place in their chunk, as they flow in
    a pipeline; else as listed, which must be in the order of steps."""
