# SPDX-License-Identifier: GPL-2.0-or-later
"""Training of models: a mixture of experts' exchanges, and whole steps with their computations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import (
    DEFAULT_MESSAGE_BYTES,
    Bytes,
    MessageBytes,
    Setting,
    WorkloadSpec,
    warm_up_field,
)
from softroce_lab.experiment.kinds.collectives import algorithms
from softroce_lab.faults.words import Filled, Length, Time
from softroce_lab.inputs.validation import KeyedError, did_you_mean
from softroce_lab.workloads.collectives.collective import ALGORITHMS
from softroce_lab.workloads.message import FLOAT32, MAX_OPERATIONS, piece_count
from softroce_lab.workloads.moe import Gate, MixtureOfExperts
from softroce_lab.workloads.training import Model, Parallel, Training


def _parse_share(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError("expected a percentage", hint="such as 5%")
    return int(units.parse_percent(str(value)) * 10**6)


_Ppm = Annotated[
    int,
    PlainValidator(_parse_share),
    WithJsonSchema({"type": "string", "pattern": "^[0-9.]+ *%$"}),
]
_MOST_WEIGHED = 1 << 34  # tokens, times the experts that each is drawn from, of all hosts
_MOST_GATES = 1 << 17  # of all hosts and layers: each layer has exchanges of its own to write down
_AtLeastOne = Annotated[int, Field(ge=1, le=1 << 20)]


class MoeSpec(WorkloadSpec):
    """A mixture of experts: tokens go to the hosts of their experts and come back."""

    kind: Literal["moe"]
    tokens: _AtLeastOne = Field(description="Tokens of each host.")
    hidden: _AtLeastOne = Field(description="Elements of a token.")
    bytes_per_element: Annotated[int, Field(ge=1, le=8, description="Bytes of an element.")] = 2
    experts: _AtLeastOne = Field(
        description="Experts of a layer: a multiple of the number of hosts."
    )
    top_k: _AtLeastOne = Field(1, description="Experts that a token goes to.")
    skew: Annotated[
        float,
        Field(
            ge=0,
            le=16,
            description="Exponent of Zipf's law: the n-th most popular expert has weight n^-skew.",
        ),
    ] = 0.0
    token_time: Time = Field(0, description="Time of an expert for one token.")
    message: MessageBytes = Field(DEFAULT_MESSAGE_BYTES, description="Largest message.")
    repeat: Annotated[
        int, Field(ge=1, le=MAX_OPERATIONS, description="Layers, one after the other.")
    ] = 1
    warm_up: int = warm_up_field("layers")
    every: Length | None = Field(
        None,
        description="Earliest start of layer n: n times this time. Layers of the warm-up count.",
    )

    @property
    def layers(self) -> int:
        """The warm-up's among them."""
        return self.warm_up + self.repeat

    @model_validator(mode="after")
    def _enough_experts(self) -> MoeSpec:
        if self.every is not None and self.layers == 1:
            raise KeyedError("every", "'every' without a repeat", "repeat: 10 beside it")
        if self.top_k > self.experts:
            what = f"a token goes to {self.top_k} experts, and there are {self.experts}"
            raise KeyedError("top_k", what)
        return self

    def build(self, setting: Setting) -> MixtureOfExperts:
        ranks = self.ranks(setting)
        if self.experts % len(ranks):
            what = f"{self.experts} experts are not spread evenly over {len(ranks)} hosts"
            raise setting.error("experts", what, hint="a multiple of the number of hosts")
        self._check_size(setting, len(ranks))
        return MixtureOfExperts(
            ranks,
            Gate(self.tokens, self.experts, self.top_k, self.skew),
            self.hidden * self.bytes_per_element,
            self.message,
            self.token_time,
            self.layers,
            setting.seed,
            self.warm_up,
            self.every or 0,
        )

    def _check_size(self, setting: Setting, hosts: int) -> None:
        weighed = hosts * self.layers * self.tokens * self.top_k * self.experts
        if weighed > _MOST_WEIGHED:
            what = f"gates draw from {weighed:,} experts in all, {_MOST_WEIGHED:,} at most"
            raise setting.error("tokens", what, hint="fewer tokens, experts or layers")
        if hosts * self.layers > _MOST_GATES:
            what = f"{self.layers:,} layers on {hosts} hosts, {_MOST_GATES // hosts:,} at most"
            raise setting.error("repeat", what, hint="fewer layers, each of more tokens")
        copies = piece_count(self.tokens * self.top_k * (hosts - 1), hosts)  # that leave a host
        sent_bytes = copies * self.hidden * self.bytes_per_element
        messages = max(sent_bytes // self.message, min(copies, hosts - 1))
        setting.check_size("tokens", hosts * self.layers * (2 * messages + 1))


class ParallelSpec(Filled):
    """Degrees of parallelism: `data` x `tensor` x `pipeline` is the number of hosts."""

    data: _AtLeastOne | None = Field(
        None, description="Replicas. Default: the number of hosts divided by the other degrees."
    )
    tensor: _AtLeastOne = Field(1, description="Hosts that share a layer.")
    pipeline: _AtLeastOne = Field(1, description="Stages.")
    expert: _AtLeastOne = Field(1, description="Hosts that share the experts; divides `data`.")


class TrainingSpec(WorkloadSpec):
    """Steps of a training: computations, all-reduces of gradients, and a barrier."""

    kind: Literal["training"]
    layers: _AtLeastOne = Field(
        description="Layers of the model. Each pipeline stage has the same number."
    )
    forward: Time = Field(description="Time of the forward pass of a layer for a microbatch.")
    backward: Time | None = Field(
        None, description="Time of the backward pass. Default: twice `forward`."
    )
    jitter: _Ppm = Field(
        0,
        description=(
            "A share: each computation takes up to so much less or more time, drawn from "
            "seed, host and step."
        ),
    )
    gradient: Bytes = Field(description="Bytes of a layer's gradients on a host.")
    bucket: Bytes = Field(
        25 << 20,
        description=(
            "Largest bucket: a stage's gradients are cut into the least number of equal parts."
        ),
    )
    activation: Bytes = Field(0, description="Bytes of a layer's output for a microbatch.")
    microbatches: _AtLeastOne = Field(1, description="Microbatches of a step.")
    parallel: ParallelSpec = Field(
        ParallelSpec(),
        description="Degrees of parallelism: `data`, `tensor`, `pipeline`, `expert`.",
    )
    algorithm: str = Field("ring", description="Algorithm of all all-reduces, as for `collective`.")
    message: MessageBytes = Field(DEFAULT_MESSAGE_BYTES, description="Largest message.")
    steps: Annotated[
        int, Field(ge=1, le=MAX_OPERATIONS, description="Steps, one after the other.")
    ] = 1
    warm_up: int = warm_up_field("steps")

    @model_validator(mode="after")
    def _consistent(self) -> TrainingSpec:
        width = FLOAT32.itemsize
        for key in ("gradient", "activation"):
            if getattr(self, key) % width:
                what = f"{getattr(self, key)} bytes are no whole elements of float32"
                raise KeyedError(key, what, f"a multiple of {width} bytes")
        for key in ("bucket", "message"):
            if getattr(self, key) < width:
                raise KeyedError(key, f"'{key}' holds an element of float32 at least")
        known = algorithms("all-reduce")
        if self.algorithm not in known:
            what = f"all-reduce has no algorithm {self.algorithm!r}"
            raise KeyedError("algorithm", what, did_you_mean(self.algorithm, known))
        shared = self.parallel
        if not self.activation and max(shared.tensor, shared.pipeline, shared.expert) > 1:
            what = "tensor, pipeline and expert parallelism exchange activations"
            raise KeyedError("parallel", what, "activation: 4MiB, for example")
        return self

    def build(self, setting: Setting) -> Training:
        ranks = self.ranks(setting)
        model = Model(
            self.layers,
            self.forward,
            2 * self.forward if self.backward is None else self.backward,
            self.gradient,
            self.activation,
            self.bucket,
            self.microbatches,
            self.jitter,
        )
        parallel = self._spread(setting, len(ranks))
        gradients = self.layers // parallel.pipeline * self.gradient
        setting.check_size("gradient", piece_count(gradients, self.bucket))
        training = Training(
            ranks, parallel, model, self.message, self.algorithm, self._all_steps, setting.seed,
            self.warm_up,
        )  # fmt: skip
        self._check_elements(setting, training)
        self._check_size(setting, parallel)
        return training

    @property
    def _all_steps(self) -> int:
        """The warm-up's among them."""
        return self.warm_up + self.steps

    def _spread(self, setting: Setting, hosts: int) -> Parallel:
        """UserError for a product that is not the number of hosts, and for uneven parts."""
        shared = self.parallel
        data = shared.data or hosts // (shared.tensor * shared.pipeline)
        product = data * shared.tensor * shared.pipeline
        if product != hosts:
            what = f"data {data} x tensor {shared.tensor} x pipeline {shared.pipeline} is {product}"
            hint = "without 'data' it is what the others leave"
            raise setting.error("parallel", f"{what}, and there are {hosts} hosts", hint)
        uneven = None
        if data % shared.expert:
            uneven = "expert", f"experts on {shared.expert} hosts do not divide data: {data}"
        elif self.layers % shared.pipeline:
            uneven = "pipeline", f"{self.layers} layers are not cut into {shared.pipeline} stages"
        if uneven is not None:
            key, what = uneven
            raise setting.source.error((*setting.place, "parallel", key), what)
        return Parallel(data, shared.tensor, shared.pipeline, shared.expert)

    def _check_size(self, setting: Setting, parallel: Parallel) -> None:
        """UserError for more than fits: computations, the barrier, and what is shared."""
        hosts, data, tensor = parallel.hosts, parallel.data, parallel.tensor
        passes = 2 * self.microbatches * self.layers // parallel.pipeline  # of a layer, on a host
        computed = self._all_steps * 2 * passes * hosts
        setting.check_size("layers", computed + self._all_steps * hosts * (hosts - 1).bit_length())
        stage_bytes = self.layers // parallel.pipeline * self.gradient
        buckets = piece_count(stage_bytes, self.bucket)
        in_bucket = self._messages(data, min(self.bucket, stage_bytes))
        groups = tensor * parallel.pipeline
        setting.check_size("gradient", self._all_steps * groups * buckets * in_bucket + computed)
        shared = piece_count(self.activation, self.message)
        times = 2 * passes * data * parallel.pipeline * self._messages(tensor, self.activation)
        times += shared * 2 * passes * hosts * (parallel.expert > 1)
        times += shared * 2 * self.microbatches * data * tensor * (parallel.pipeline - 1)
        setting.check_size("activation", self._all_steps * times + computed)

    def _messages(self, hosts: int, size_bytes: int) -> int:
        """Of an all-reduce, at the least."""
        pieces = piece_count(size_bytes, self.message)
        return 2 * (hosts - 1) * (max(hosts, pieces) if self.algorithm == "ring" else pieces)

    def _check_elements(self, setting: Setting, training: Training) -> None:
        """UserError for vectors with fewer elements than an all-reduce has chunks."""
        parallel, whole = training.parallel, training.stage_layers * self.gradient
        smallest = min((size for size, _ in training.buckets), default=0)
        shared = "gradient" if whole <= self.bucket else "bucket"
        wanted = (
            (shared, smallest, parallel.data),
            ("activation", self.activation, parallel.tensor),
        )
        for key, size_bytes, hosts in wanted:
            chunks = ALGORITHMS["all-reduce"][self.algorithm].chunks(hosts)
            if hosts > 1 and 0 < size_bytes < FLOAT32.itemsize * chunks:
                what = f"{self.algorithm} among {hosts} hosts sums up"
                least = f"{FLOAT32.itemsize * chunks} bytes at least, not {size_bytes}"
                raise setting.error(key, f"{what} {least}")
