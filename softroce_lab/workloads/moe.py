# SPDX-License-Identifier: GPL-2.0-or-later
"""Mixture of experts: tokens go to the hosts of their experts, and come back.

Lepikhin et al.: GShard (2020). The experts of a layer are spread evenly over hosts, in their order.
In the dispatch each host sends every token to the hosts of its experts, a copy for each expert. The
experts compute, then the combine sends the results back: the same sizes the other way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.composite import After, Composite, Writer
from softroce_lab.workloads.gate import popularity, tokens_of_experts
from softroce_lab.workloads.message import UINT8
from softroce_lab.workloads.unequal import Sizes, UnequalAllToAll

DISPATCH, COMBINE = 0, 1  # steps of an operation, which is a layer


@dataclasses.dataclass(frozen=True)
class Gate:
    """What a layer's gate chooses from."""

    tokens: int  # of a host
    experts: int  # of the layer, a multiple of the number of hosts
    top_k: int = 1  # experts of a token
    skew: float = 0.0  # exponent of Zipf's law

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if not 1 <= self.top_k <= self.experts or self.tokens < 1 or self.skew < 0:
            raise ValueError("a gate sends each of its tokens to 1 to all of its experts")


@dataclasses.dataclass(frozen=True)
class MixtureOfExperts(Composite):
    """`layers` one after the other, each with draws of its own."""

    ranks: tuple[int, ...]
    gate: Gate
    token_bytes: int
    message_bytes: int
    token_ns: int = 0  # an expert's computation for one token
    layers: int = 1
    seed: int = 0
    dtype: np.dtype[np.generic] = UINT8

    name: ClassVar = "moe"

    def __post_init__(self) -> None:
        """ValueError for experts that are not spread evenly."""
        if self.hosts < 2 or self.gate.experts % self.hosts:
            raise ValueError("the hosts, two at least, have as many experts each")

    def write(self, to: Writer) -> None:
        at: After = dict.fromkeys(self.ranks, ())
        for layer in range(self.layers):
            to.operation = layer
            tokens = tokens_of_hosts(self, layer)
            at = to.add(self._exchange(tokens), DISPATCH, at)
            at = {
                host: to.compute(host, sum(row[rank] for row in tokens) * self.token_ns, at[host])
                for rank, host in enumerate(self.ranks)
            }
            at = to.add(self._exchange(np.transpose(tokens).tolist()), COMBINE, at)

    def _exchange(self, tokens: Sequence[Sequence[int]]) -> UnequalAllToAll:
        sizes: Sizes = tuple(
            tuple(0 if to == source else count * self.token_bytes for to, count in enumerate(row))
            for source, row in enumerate(tokens)
        )
        return UnequalAllToAll(self.ranks, sizes, self.message_bytes)


@functools.lru_cache(maxsize=16)
def tokens_of_hosts(moe: MixtureOfExperts, layer: int) -> list[list[int]]:
    """Copies of tokens in a layer, by the rank that has the token and by that of the expert."""
    gate = moe.gate
    weights = popularity(gate.experts, gate.skew, stream_key(moe.seed, "layer", layer))
    found = []
    for host in moe.ranks:
        key = stream_key(moe.seed, "gate", layer, host)
        by_expert = tokens_of_experts(gate.tokens, gate.top_k, weights, key)
        found.append(by_expert.reshape(moe.hosts, -1).sum(axis=1).tolist())
    return found
