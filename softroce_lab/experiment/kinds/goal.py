# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL files."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import Setting, WorkloadSpec
from softroce_lab.inputs import text_file
from softroce_lab.workloads.goal import parser
from softroce_lab.workloads.goal.workload import Goal

MAX_GOAL_BYTES = 1 << 28


class GoalSpec(WorkloadSpec):
    """What a GOAL file says."""

    elsewhere: ClassVar = dict.fromkeys(
        ("bytes", "message", "repeat", "every", "skew"), "the GOAL file has sizes and times"
    )

    kind: Literal["goal"]
    file: Annotated[str, Field(min_length=1)]

    def build(self, setting: Setting) -> Goal:
        """The path is relative to the experiment's file. UserError with a place in either file."""
        path = setting.folder / self.file
        try:
            text = text_file.read(path, MAX_GOAL_BYTES)
        except UserError as error:
            raise setting.error("file", f"{self.file} {error.what}") from None
        program = parser.parse(text, str(path))
        ranks, count = self.ranks(setting), len(program.ranks)
        if count > len(ranks):
            what = f"{self.file} has {count} ranks, and there are {len(ranks)} hosts"
            raise setting.error("hosts" if self.hosts else "file", what, "one host a rank")
        return Goal(program, ranks[:count])
