# SPDX-License-Identifier: GPL-2.0-or-later
"""Training of a model over hosts: data, tensor, pipeline and expert parallelism in any mix.

The passes of a pipeline's stages are 1F1B: Narayanan et al.: Efficient Large-Scale Language Model
Training on GPU Clusters Using Megatron-LM (SC 2021), section 2.2. Tensor parallelism adds up what
its hosts have after each half of a layer, attention and feed-forward (section 2.3). Gradients are
added up in buckets, as soon as the backward pass has computed all of a bucket: Li et al.: PyTorch
Distributed (VLDB 2020), section 3.2. Experts of a layer's second half are spread over hosts of one
data-parallel group: Lepikhin et al.: GShard (2020), with a balanced gate.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.collectives.barrier import Barrier
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.composite import Composite, Writer
from softroce_lab.workloads.flows import PointToPoint
from softroce_lab.workloads.message import FLOAT32
from softroce_lab.workloads.moe import UnequalAllToAll
from softroce_lab.workloads.schedule import Requires
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import Buffered

_WIDTH = FLOAT32.itemsize


class Traffic(enum.IntEnum):
    """What a message is for: the step of its key."""

    PIPELINE = 0
    TENSOR = 1
    EXPERT = 2
    GRADIENT = 3
    BARRIER = 4


@dataclasses.dataclass(frozen=True)
class Parallel:
    """How a model is spread over hosts: data x tensor x pipeline of them.

    The rank of a host is (stage x data + replica) x tensor + shard, as in Megatron-LM. Experts are
    spread over so many neighbours of a data-parallel group; 1: there are none.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if min(self.data, self.tensor, self.pipeline, self.expert) < 1 or self.data % self.expert:
            raise ValueError("each is 1 or more, and the experts' hosts divide the data's")

    @property
    def hosts(self) -> int:
        """How many it takes."""
        return self.data * self.tensor * self.pipeline

    def stage(self, stage: int) -> range:
        """The ranks of a stage."""
        size = self.data * self.tensor
        return range(stage * size, (stage + 1) * size)

    def tensor_groups(self, stage: int) -> list[range]:
        """The ranks that share a layer, for each replica."""
        ranks, size = self.stage(stage), self.tensor
        return [ranks[at : at + size] for at in range(0, len(ranks), size)]

    def data_groups(self, stage: int) -> list[range]:
        """The ranks that have the same parameters, for each shard."""
        return [self.stage(stage)[shard :: self.tensor] for shard in range(self.tensor)]

    def expert_groups(self, stage: int) -> list[range]:
        """The ranks that share the experts of a layer."""
        size = self.expert
        groups = self.data_groups(stage)
        return [each[at : at + size] for each in groups for at in range(0, self.data, size)]


@dataclasses.dataclass(frozen=True)
class Model:
    """What a host does for a layer and a microbatch. Times in ns, sizes in bytes."""

    layers: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int  # of a layer, on a host
    activation_bytes: int = 0  # of a microbatch, between layers
    bucket_bytes: int = 25 << 20
    microbatches: int = 1
    jitter_ppm: int = 0
    """Each computation takes up to this share less or more, drawn from seed, host and step."""


class _Pass(NamedTuple):
    """A stage's forward or backward pass of a microbatch."""

    backward: bool
    microbatch: int


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> Iterator[_Pass]:
    """The passes of a stage, in order: forward until the first backward can come, then by turns."""
    ahead = min(stages - stage - 1, microbatches)
    for number in range(microbatches + ahead):
        if number < microbatches:
            yield _Pass(backward=False, microbatch=number)
        if number >= ahead:
            yield _Pass(backward=True, microbatch=number - ahead)


@dataclasses.dataclass(frozen=True)
class Training(Composite):
    """`steps` steps, the warm-up's among them: an operation each, with a barrier at its end."""

    ranks: tuple[int, ...]
    parallel: Parallel
    model: Model
    message_bytes: int
    algorithm: str = "ring"  # of all-reduce
    steps: int = 1
    seed: int = 0
    warm_up: int = 0
    dtype: np.dtype[np.generic] = FLOAT32

    name: ClassVar = "training"

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if self.parallel.hosts != self.hosts or self.hosts < 2:
            raise ValueError("the parallelism multiplies to the hosts, two at least")
        if self.model.layers % self.parallel.pipeline:
            raise ValueError("all stages have the same number of layers")

    @property
    def stage_layers(self) -> int:
        """The layers of a stage."""
        return self.model.layers // self.parallel.pipeline

    @functools.cached_property
    def buckets(self) -> list[tuple[int, int]]:
        """Of a stage: its size, bytes, and how many layers' backward passes it awaits.

        The stage's gradients in the order of the backward pass, cut into as few equal parts as
        have `bucket_bytes` at most.
        """
        elements = self.stage_layers * self.model.gradient_bytes // _WIDTH
        if not elements:
            return []
        count = -(-elements // (self.model.bucket_bytes // _WIDTH))
        ends = [number * elements // count for number in range(count + 1)]
        layer = self.model.gradient_bytes // _WIDTH
        return [
            (_WIDTH * (end - begin), -(-end // layer)) for begin, end in itertools.pairwise(ends)
        ]

    def all_reduce(self, ranks: Sequence[int], size_bytes: int) -> Collective:
        """A sum among ranks."""
        return Collective(
            tuple(self.ranks[rank] for rank in ranks), size_bytes, self.message_bytes, FLOAT32,
            "all-reduce", self.algorithm,
        )  # fmt: skip

    def write(self, to: Writer) -> None:
        everybody = Barrier(self.ranks)
        at: list[Requires] = [()] * self.hosts
        for step in range(self.steps):
            to.operation = step
            ended = _Step(self, to, step, at).write()
            left = to.add(everybody, Traffic.BARRIER, dict(zip(self.ranks, ended, strict=True)))
            at = [left[host] for host in self.ranks]

    def busiest_ns(self, step: int) -> int:
        """The computation of the host that computes longest."""
        return max(self.written.computed_ns[step, host] for host in self.ranks)


class _Step:
    """Writes one step down."""

    def __init__(self, training: Training, to: Writer, step: int, at: Sequence[Requires]) -> None:
        self._training, self._to = training, to
        self._model, self._parallel = training.model, training.parallel
        self._at = list(at)  # by rank: what its next computation requires
        self._arrived: dict[tuple[_Pass, int], Requires] = {}  # (pass, rank) -> its input
        self._reduced: list[Requires] = [()] * training.hosts
        self._jitter = [
            Stream(stream_key(training.seed, "compute", step, host)) for host in training.ranks
        ]

    def write(self) -> list[Requires]:
        """What each rank's step requires to be over."""
        stages, microbatches = self._parallel.pipeline, self._model.microbatches
        left = [
            collections.deque(one_forward_one_backward(stage, stages, microbatches))
            for stage in range(stages)
        ]
        while any(left):
            for stage, passes in enumerate(left):
                while passes and self._can_begin(stage, passes[0]):
                    self._pass(stage, passes.popleft())
        return [(*a, *b) for a, b in zip(self._at, self._reduced, strict=True)]

    def _can_begin(self, stage: int, each: _Pass) -> bool:
        first = stage == (self._parallel.pipeline - 1 if each.backward else 0)
        return first or (each, self._parallel.stage(stage)[0]) in self._arrived

    def _pass(self, stage: int, each: _Pass) -> None:
        for rank in self._parallel.stage(stage):
            self._at[rank] += self._arrived.pop((each, rank), ())
        last = each.backward and each.microbatch == self._model.microbatches - 1
        for layer in range(self._training.stage_layers):
            self._layer(stage, backward=each.backward)
            if last:
                self._reduce(stage, layer + 1)
        self._pass_on(stage, each)

    def _layer(self, stage: int, *, backward: bool) -> None:
        """Two halves: in the forward pass the second one is that of the experts."""
        whole_ns = self._model.backward_ns if backward else self._model.forward_ns
        for half in (0, 1):
            of_experts = self._parallel.expert > 1 and half != backward
            if of_experts:
                self._exchange(stage)
            for rank in self._parallel.stage(stage):
                duration_ns = self._jittered(rank, (whole_ns + half) // 2)
                host = self._training.ranks[rank]
                self._at[rank] = self._to.compute(host, duration_ns, self._at[rank])
            if of_experts:
                self._exchange(stage)
            if self._parallel.tensor > 1:
                for group in self._parallel.tensor_groups(stage):
                    work = self._training.all_reduce(group, self._model.activation_bytes)
                    self._add(work, Traffic.TENSOR, group)

    def _jittered(self, rank: int, duration_ns: int) -> int:
        most_ns = duration_ns * self._model.jitter_ppm // 10**6
        return duration_ns - most_ns + self._jitter[rank].below(2 * most_ns + 1)

    def _exchange(self, stage: int) -> None:
        """An equal share of each host's activations for each host of its group."""
        for group in self._parallel.expert_groups(stage):
            count, size = len(group), self._model.activation_bytes
            shares = [(to + 1) * size // count - to * size // count for to in range(count)]
            sizes = tuple(
                tuple(0 if to == source else share for to, share in enumerate(shares))
                for source in range(count)
            )
            hosts = tuple(self._training.ranks[rank] for rank in group)
            work = UnequalAllToAll(hosts, sizes, self._training.message_bytes)
            self._add(work, Traffic.EXPERT, group)

    def _add(self, work: Buffered, traffic: Traffic, group: Sequence[int]) -> None:
        """What comes next awaits it."""
        for rank, ends in self._added(work, traffic, group):
            self._at[rank] = ends

    def _added(
        self, work: Buffered, traffic: Traffic, group: Sequence[int]
    ) -> Iterator[tuple[int, Requires]]:
        ranks = self._training.ranks
        ends = self._to.add(work, traffic, {ranks[rank]: self._at[rank] for rank in group})
        return ((rank, ends[ranks[rank]]) for rank in group)

    def _reduce(self, stage: int, layers: int) -> None:
        """Sum up the buckets that the backward passes of so many layers have filled."""
        if self._parallel.data == 1:
            return
        for size_bytes, awaited in self._training.buckets:
            if awaited == layers:
                for group in self._parallel.data_groups(stage):
                    work = self._training.all_reduce(group, size_bytes)
                    for rank, ends in self._added(work, Traffic.GRADIENT, group):
                        self._reduced[rank] += ends

    def _pass_on(self, stage: int, each: _Pass) -> None:
        """Send the activations to the next stage, or their gradients to the one before."""
        to = stage - 1 if each.backward else stage + 1
        if not 0 <= to < self._parallel.pipeline:
            return
        ranks, training = self._training.ranks, self._training
        for rank, peer in zip(self._parallel.stage(stage), self._parallel.stage(to), strict=True):
            work = PointToPoint(
                (ranks[rank], ranks[peer]), self._model.activation_bytes, training.message_bytes
            )
            ends = self._to.add(work, Traffic.PIPELINE, {ranks[rank]: self._at[rank]})
            self._arrived[each, peer] = ends[ranks[peer]]
