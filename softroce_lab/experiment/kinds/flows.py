# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads that copy among many: permutation, incast, all-to-all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from softroce_lab.experiment.kinds.base import RepeatedSpec, Setting
from softroce_lab.topology.model import NodeName
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation
from softroce_lab.workloads.work import Sized


class PermutationSpec(RepeatedSpec):
    """Every host to one other."""

    kind: Literal["permutation"]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:  # noqa: D102
        return Permutation(tuple(ranks), self.bytes, self.message, seed=setting.seed)


class IncastSpec(RepeatedSpec):
    """All to one."""

    kind: Literal["incast"]
    to: NodeName | None = None

    def chosen(self, setting: Setting) -> list[int]:
        """The sink is the first rank."""
        chosen = super().chosen(setting)
        if self.to is None:
            return chosen
        sink = setting.index(self.to, "to")
        return [sink, *(host for host in chosen if host != sink)]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:  # noqa: D102
        return Incast(tuple(ranks), self.bytes, self.message)


class AllToAllSpec(RepeatedSpec):
    """All to all others."""

    kind: Literal["all-to-all"]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:  # noqa: D102
        return AllToAll(tuple(ranks), self.bytes, self.message)
