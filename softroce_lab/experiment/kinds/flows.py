# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads that copy among many: permutation, incast, scatter, all-to-all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from softroce_lab.experiment.kinds.base import RepeatedSpec, Setting
from softroce_lab.topology.model import NodeName
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, Scatter
from softroce_lab.workloads.work import Sized


class PermutationSpec(RepeatedSpec):
    """Each host sends to one other and receives from one other, drawn from the seed."""

    kind: Literal["permutation"]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return Permutation(tuple(ranks), self.bytes, self.message, seed=setting.seed)


class IncastSpec(RepeatedSpec):
    """All other hosts send to one host."""

    kind: Literal["incast"]
    to: NodeName | None = Field(None, description="The receiver. Default: the first host.")

    def chosen(self, setting: Setting) -> list[int]:
        """The sink is the first rank."""
        return _first(super().chosen(setting), setting, "to", self.to)

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return Incast(tuple(ranks), self.bytes, self.message)


class ScatterSpec(RepeatedSpec):
    """One host sends to all others."""

    elsewhere: ClassVar = {"to": "from: h1; all others receive"}

    kind: Literal["scatter"]
    from_: Annotated[
        NodeName | None, Field(alias="from", description="The sender. Default: the first host.")
    ] = None

    def chosen(self, setting: Setting) -> list[int]:
        """The source is the first rank."""
        return _first(super().chosen(setting), setting, "from", self.from_)

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return Scatter(tuple(ranks), self.bytes, self.message)


def _first(chosen: list[int], setting: Setting, key: str, name: str | None) -> list[int]:
    """The hosts, the named one before the others."""
    if name is None:
        return chosen
    first = setting.index(name, key)
    return [first, *(host for host in chosen if host != first)]


class AllToAllSpec(RepeatedSpec):
    """Each host sends to each other host."""

    kind: Literal["all-to-all"]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return AllToAll(tuple(ranks), self.bytes, self.message)
