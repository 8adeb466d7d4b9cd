# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import Setting, Use, WorkloadSpec
from softroce_lab.inputs import text_file
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.workloads.goal import parser
from softroce_lab.workloads.goal.parser import Program
from softroce_lab.workloads.goal.workload import Goal

MAX_GOAL_BYTES = 1 << 28
_PROGRAM = "the program"


class GoalSpec(WorkloadSpec):
    """The operations of a GOAL file. Rank n is the n-th host of `hosts`."""

    elsewhere: ClassVar = dict.fromkeys(
        ("bytes", "message", "repeat", "every", "skew"), "the GOAL file has sizes and times"
    )

    kind: Literal["goal"]
    file: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="The GOAL file, relative to the experiment's file."
    )
    program: str | None = Field(None, description="The text itself, instead of a file.")

    @model_validator(mode="after")
    def _one_text(self) -> GoalSpec:
        if self.file is None and self.program is None:
            raise UserError("a goal workload without a program", hint="file: trace.goal")
        if self.file is not None and self.program is not None:
            raise KeyedError("program", "'program' beside 'file'", "one of them")
        return self

    def uses(self, place: Place) -> Iterator[Use]:
        if self.file is not None:
            yield Use((*place, "file"), "file", self.file)

    def build(self, setting: Setting) -> Goal:
        """The path is relative to the experiment's file. UserError with a place in either file."""
        if self.program is None:
            return self._of(setting, self._of_file(setting, str(self.file)))
        try:
            return self._of(setting, parser.parse(self.program, _PROGRAM))
        except UserError as error:
            if error.file != _PROGRAM:
                raise
            at = "" if error.line is None else f"line {error.line}, column {error.column}: "
            raise setting.error("program", f"{at}{error.what}", error.hint) from None

    def _of(self, setting: Setting, program: Program) -> Goal:
        ranks, count = self.ranks(setting), len(program.ranks)
        if count > len(ranks):
            what = f"{program.file} has {count} ranks, and there are {len(ranks)} hosts"
            key = "hosts" if self.hosts else "file" if self.program is None else "program"
            raise setting.error(key, what, "one host a rank")
        return Goal(program, ranks[:count])

    def _of_file(self, setting: Setting, name: str) -> Program:
        path = setting.folder / name
        try:
            text = text_file.read(path, MAX_GOAL_BYTES)
        except UserError as error:
            raise setting.error("file", f"{name} {error.what}") from None
        return parser.parse(text, str(path))
