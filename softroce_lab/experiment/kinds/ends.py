# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads between two hosts: point to point, and a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from softroce_lab.errors import UserError
from softroce_lab.experiment import files
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
from softroce_lab.workloads.flows import PointToPoint
from softroce_lab.workloads.work import Sized

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


class FileSpec(_EndsSpec):
    """One host sends a file to another. Both compare its SHA-256."""

    elsewhere: ClassVar = _BY_ENDS | dict.fromkeys(
        ("repeat", "every", "skew"), "a file is sent once"
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
            size = min(files.size_to_send(path), self.bytes)
        except UserError as error:
            hint = "path: a regular file, relative to the experiment's"
            raise setting.error("path", error.what, hint) from None
        saves = self.save is not None and setting.source.origin is Origin.USER
        save = str(setting.folder / str(self.save)) if saves else None
        return FileTransfer(
            ranks, str(path), size, self.message, setting.depth, save, setting.verified
        )
