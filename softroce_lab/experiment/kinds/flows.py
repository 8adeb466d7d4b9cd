# SPDX-License-Identifier: GPL-2.0-or-later
"""Flows between two hosts, of bytes or of a file, and among many."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import (
    DEFAULT_MESSAGE_BYTES,
    MAX_BYTES,
    Bytes,
    MessageBytes,
    RepeatedSpec,
    Setting,
    Use,
    WorkloadSpec,
)
from softroce_lab.inputs.yaml_source import Origin, Place
from softroce_lab.topology import routing
from softroce_lab.topology.model import NodeName
from softroce_lab.workloads.file import FileTransfer
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, PointToPoint, Scatter
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


_BY_ENDS = dict.fromkeys(("hosts", "placement"), "from: h1, and to: h2")


class _EndsSpec(WorkloadSpec):
    from_: Annotated[
        NodeName | None, Field(alias="from", description="The sender. Default: the first host.")
    ] = None
    to: NodeName | None = Field(
        None, description="The receiver. Default: the first of the hosts farthest from the sender."
    )

    def chosen(self, setting: Setting) -> list[int]:
        """As written; else the first host, and the first of those farthest from it."""
        names, plan = setting.names, setting.plan
        if len(names) < 2:
            return super().chosen(setting)
        for key, name in (("from", self.from_), ("to", self.to)):
            if name is not None:
                setting.index(name, key)
        begin = self.from_ or next(name for name in names if name != self.to)
        among = routing.neighbours((node.name for node in plan.nodes), plan.links)
        hops = routing.distances([begin], among)
        others = (name for name in names if name != begin)
        end = self.to or max(others, key=lambda name: hops[name])
        if begin == end:
            raise setting.error("to", f"{begin} would send to itself")
        return [names.index(begin), names.index(end)]


class PointToPointSpec(_EndsSpec, RepeatedSpec):
    """One host sends to another."""

    elsewhere: ClassVar = _BY_ENDS

    kind: Literal["point-to-point"]

    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        return PointToPoint(tuple(ranks), self.bytes, self.message)


def size_to_send(path: Path) -> int:
    """Bytes of a regular file that can be read; UserError if it is none or its size is not true."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # never waits for a FIFO
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path} is not a regular file", hint="send another one: --file")
            begins = os.read(fd, 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="--file PATH") from error
    if begins and status.st_size == 0:
        raise UserError(f"{path} does not say how long it is", hint="send a copy of it")
    return status.st_size


class FileSpec(_EndsSpec):
    """One host sends a file to another. Both compare its SHA-256."""

    elsewhere: ClassVar = _BY_ENDS | dict.fromkeys(
        ("repeat", "warm_up", "every", "skew"), "a file is sent once"
    )
    carries_bytes: ClassVar = True

    kind: Literal["file"]
    path: Annotated[
        str, Field(min_length=1, description="The file, relative to the experiment's file.")
    ]
    bytes: Bytes = Field(MAX_BYTES, description="Send at most this much of the file.")
    message: MessageBytes = Field(DEFAULT_MESSAGE_BYTES, description="Largest message.")
    save: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="A file to which each run writes the received bytes."
    )

    def uses(self, place: Place) -> Iterator[Use]:
        yield Use((*place, "path"), "payload", self.path)

    def build(self, setting: Setting) -> FileTransfer:
        """Paths are relative to the experiment's file. That of a run directory saves nothing."""
        path = setting.folder / self.path
        ranks = self.ranks(setting)
        try:
            size = min(size_to_send(path), self.bytes)
        except UserError as error:
            hint = "path: a regular file, relative to the experiment's"
            raise setting.error("path", error.what, hint) from None
        saves = self.save is not None and setting.source.origin is Origin.USER
        save = str(setting.folder / str(self.save)) if saves else None
        return FileTransfer(
            ranks, str(path), size, self.message, setting.depth, save, setting.verified
        )
