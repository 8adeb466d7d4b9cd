# SPDX-License-Identifier: GPL-2.0-or-later
"""What a GOAL file contains, before anything is matched."""

from __future__ import annotations

import dataclasses
import enum

from softroce_lab.errors import UserError


class Act(enum.Enum):
    """What an operation does."""

    SEND = "send"
    RECEIVE = "recv"
    COMPUTE = "calc"


@dataclasses.dataclass(slots=True)
class Operation:
    """An operation of a rank."""

    act: Act
    amount: int  # bytes; of a computation, nanoseconds
    line: int
    column: int
    peer: int = -1  # a rank
    tag: int = 0
    cpu: int = 0
    label: str | None = None
    requires: list[int] = dataclasses.field(default_factory=list)  # of the same rank
    irequires: list[int] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.label or self.act.value} (line {self.line})"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The operations of all ranks, in the file's order."""

    file: str
    ranks: list[list[Operation]]

    def error(self, at: Operation, what: str, hint: str | None = None) -> UserError:
        """An error at an operation."""
        return UserError(what, hint=hint, file=self.file, line=at.line, column=at.column)
