# SPDX-License-Identifier: GPL-2.0-or-later
"""Collectives by named algorithm; the three ring collectives have kinds of their own, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from softroce_lab.experiment.kinds.base import RepeatedSpec, Setting
from softroce_lab.inputs.validation import KeyedError, did_you_mean
from softroce_lab.workloads.collectives.collective import ALGORITHMS, Collective
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.message import FLOAT32, INT32
from softroce_lab.workloads.work import Sized

Operation: TypeAlias = Literal[
    "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"
]
OPERATIONS: tuple[str, ...] = get_args(Operation)
_DTYPES = {"float32": FLOAT32, "int32": INT32}
_PAIRWISE, _BOUNDED = "pairwise", "bounded"
_PEERS = 4  # of the bounded exchange


def algorithms(operation: str) -> tuple[str, ...]:
    return (_PAIRWISE, _BOUNDED) if operation == "all-to-all" else tuple(ALGORITHMS[operation])


class _VectorSpec(RepeatedSpec):
    """An operation on a vector of whole elements."""

    whole_vector: ClassVar = True

    dtype: Literal["float32", "int32"] = Field(
        "float32", description="Type of the vector's elements."
    )

    @model_validator(mode="after")
    def _whole_elements(self) -> _VectorSpec:
        if self.bytes % 4:
            raise KeyedError("bytes", f"{self.bytes} bytes are no whole elements of {self.dtype}")
        if self.message < 4:
            raise KeyedError("message", f"a message holds an element of {self.dtype} at least")
        return self

    def vector(
        self, setting: Setting, ranks: Sequence[int], operation: str, algorithm: str
    ) -> Collective:
        """The collective on this vector. UserError."""
        shape, hosts = ALGORITHMS[operation][algorithm], len(ranks)
        if shape.powers_of_two and hosts.bit_count() != 1:
            what = f"{algorithm} takes a power of two of hosts, not {hosts}"
            raise setting.error("hosts" if self.hosts else "algorithm", what)
        chunks = shape.chunks(hosts)
        if self.bytes < 4 * chunks:
            what = f"{algorithm} cuts the vector into {chunks} chunks of an element at least"
            raise setting.error("bytes", what, f"{4 * chunks}B or more")
        dtype = _DTYPES[self.dtype]
        return Collective(tuple(ranks), self.bytes, self.message, dtype, operation, algorithm)


class CollectiveSpec(_VectorSpec):
    """A collective operation by one of its algorithms."""

    kind: Literal["collective"]
    op: Operation = Field(description="The operation.")
    algorithm: str | None = Field(
        None, description="Algorithm of the operation. Default: the operation's first."
    )
    peers: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Peers that a host exchanges with at a time, with `algorithm: bounded`.",
    )

    @model_validator(mode="after")
    def _known(self) -> CollectiveSpec:
        known = algorithms(self.op)
        if self.algorithm is not None and self.algorithm not in known:
            hint = did_you_mean(self.algorithm, known)
            raise KeyedError("algorithm", f"{self.op} has no algorithm {self.algorithm!r}", hint)
        if self.peers is not None and self.algorithm != _BOUNDED:
            raise KeyedError(
                "peers", "'peers' without algorithm: bounded", "how many peers at a time"
            )
        return self

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        algorithm = self.algorithm or algorithms(self.op)[0]
        if self.op != "all-to-all":
            return self.vector(setting, ranks, self.op, algorithm)
        if self.bytes % len(ranks):
            what = f"{self.bytes} bytes are not cut into {len(ranks)} equal parts, one a host"
            raise setting.error("bytes", what)
        peers = self.peers or (1 if algorithm == _PAIRWISE else _PEERS)
        return Exchange(tuple(ranks), self.bytes // len(ranks), self.message, peers=peers)


class _RingSpec(_VectorSpec):
    operation: ClassVar[str]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return self.vector(setting, ranks, self.operation, "ring")


class RingAllReduceSpec(_RingSpec):
    """`collective` with `op: all-reduce` and `algorithm: ring`."""

    operation: ClassVar = "all-reduce"

    kind: Literal["ring-all-reduce"]


class RingReduceScatterSpec(_RingSpec):
    """`collective` with `op: reduce-scatter` and `algorithm: ring`."""

    operation: ClassVar = "reduce-scatter"

    kind: Literal["ring-reduce-scatter"]


class RingAllGatherSpec(_RingSpec):
    """`collective` with `op: all-gather` and `algorithm: ring`."""

    operation: ClassVar = "all-gather"

    kind: Literal["ring-all-gather"]
