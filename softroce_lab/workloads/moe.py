# SPDX-License-Identifier: GPL-2.0-or-later
"""Mixture of experts: tokens go to the hosts of their experts, and come back.

Lepikhin et al.: GShard (2020). The experts of a layer are spread evenly over hosts, in their order.
In the dispatch each host sends every token to the hosts of its experts, a copy for each expert. The
experts compute, then the combine sends the results back: the same sizes the other way.

The gate, Shazeer et al.: Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts
Layer (2017). Experts differ in popularity by Zipf's law; a token goes to `top_k` different ones,
drawn one after the other, each by its popularity among those that are left.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.composite import After, Composite, Writer
from softroce_lab.workloads.message import UINT8, Message, piece_count, pieces
from softroce_lab.workloads.streams import Stream, words
from softroce_lab.workloads.work import Copying

Sizes = tuple[tuple[int, ...], ...]
"""Bytes, by the rank of the source and by that of the destination."""


@dataclasses.dataclass(frozen=True)
class UnequalAllToAll(Copying):
    """Every rank sends each other one its bytes, its neighbour first; of 0 bytes no message.

    What a host sends lies in the order of ranks, and so does what it receives.
    """

    ranks: tuple[int, ...]
    sizes: Sizes
    message_bytes: int
    dtype: np.dtype[np.generic] = UINT8

    name: ClassVar = "unequal-all-to-all"

    def __post_init__(self) -> None:
        """ValueError for what a rank would send to itself."""
        if any(self.sizes[rank][rank] for rank in range(self.hosts)):
            raise ValueError("no rank sends to itself")

    @property
    def longest_message_bytes(self) -> int:
        return min(self.message_bytes, max(size for _, _, size in self._flows()))

    @property
    def message_count(self) -> int:
        return sum(piece_count(size, self.message_bytes) for _, _, size in self._flows() if size)

    def _flows(self) -> Iterator[tuple[int, int, int]]:
        """(source, destination, bytes), ranks: in the order of the distance."""
        for source in range(self.hosts):
            for distance in range(1, self.hosts):
                destination = (source + distance) % self.hosts
                yield source, destination, self.sizes[source][destination]

    @functools.cached_property
    def _sent_at(self) -> npt.NDArray[np.int64]:
        """Offsets by source and destination; the last column is the size of the area."""
        return _begins(np.array(self.sizes, dtype=np.int64))

    @functools.cached_property
    def _received_at(self) -> npt.NDArray[np.int64]:
        """The same in the area that is received, by destination and source."""
        return _begins(np.array(self.sizes, dtype=np.int64).T)

    @functools.cached_property
    def areas(self) -> Mapping[int, tuple[int, int]]:
        ends = zip(self._sent_at[:, -1].tolist(), self._received_at[:, -1].tolist(), strict=True)
        return dict(zip(self.ranks, ends, strict=True))

    def messages(self) -> Iterator[Message]:
        for source, destination, size in self._flows():
            at = int(self._sent_at[source, destination])
            to = int(self._sent_at[destination, -1] + self._received_at[destination, source])
            for number, offset, length in pieces(size, self.message_bytes) if size else ():
                yield Message(
                    (0, 0, number),
                    self.ranks[source],
                    self.ranks[destination],
                    length,
                    at + offset,
                    to + offset,
                )


def _begins(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of a row begins if they lie one behind the other, and where the last one ends."""
    return np.concatenate([np.zeros((len(sizes), 1), np.int64), sizes.cumsum(axis=1)], axis=1)


_SCALE = 1 << 20  # of weights, which are whole numbers, so that draws are alike on every machine
_BATCH = 1 << 20  # tokens times experts at a time


def popularity(experts: int, skew: float, seed: int) -> npt.NDArray[np.int64]:
    """Weights of experts: the n-th most popular one has n**-skew of the first; the seed has who."""
    order = Stream(stream_key(seed, "experts")).permutation(experts)
    weights = [max(1, round(_SCALE * (place + 1) ** -skew)) for place in range(experts)]
    found = np.zeros(experts, dtype=np.int64)
    found[order] = weights
    return found


def tokens_of_experts(
    tokens: int, top_k: int, weights: npt.NDArray[np.int64], key: int
) -> npt.NDArray[np.int64]:
    """How many of a host's tokens go to each expert; the stream `key` draws them."""
    batch = max(1, _BATCH // len(weights))
    found = np.zeros(len(weights), dtype=np.int64)
    for first in range(0, tokens, batch):
        count = min(batch, tokens - first)
        drawn = words(key, first * top_k, count * top_k).reshape(count, top_k)
        found += _batch(drawn, weights)
    return found


def _batch(drawn: npt.NDArray[np.uint64], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    left = np.tile(weights, (len(drawn), 1))
    rows = np.arange(len(drawn))
    found = np.zeros(len(weights), dtype=np.int64)
    for column in drawn.T:
        ends = left.cumsum(axis=1)
        places = (column % ends[:, -1].astype(np.uint64)).astype(np.int64)
        chosen = (ends <= places[:, None]).sum(axis=1)
        left[rows, chosen] = 0
        found += np.bincount(chosen, minlength=len(weights))
    return found


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
    """`layers` one after the other, the warm-up's among them, each with draws of its own."""

    ranks: tuple[int, ...]
    gate: Gate
    token_bytes: int
    message_bytes: int
    token_ns: int = 0  # an expert's computation for one token
    layers: int = 1
    seed: int = 0
    warm_up: int = 0
    every_ns: int = 0  # the n-th layer begins no earlier than n times this
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
            if layer and self.every_ns:
                at_ns = layer * self.every_ns
                at = {host: to.compute(host, 0, at[host], at_ns=at_ns) for host in self.ranks}
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
