# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault profiles: files with a list of rules, to be armed on any topology they fit."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import Field

from softroce_lab import paths
from softroce_lab.faults import sentence
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.ready import find
from softroce_lab.inputs.validation import Model, editor_schema, validate
from softroce_lab.inputs.yaml_source import Source


class ProfileFile(Model):
    """The whole file."""

    faults: Annotated[list[FaultRule], Field(min_length=1)]


def load(where: str | os.PathLike[str]) -> FaultRules:
    """Read a profile by path, or a ready one by name; UserError with file, line and column.

    A sentence, such as `nic down h1:eth1`, is a profile of one rule.
    """
    if sentence.is_sentence(where):
        source = Source(None, {"faults": [str(where)]}, {}, {})
        return FaultRules(tuple(validate(ProfileFile, source).faults), source)
    source = yaml_source.read(find(where, paths.FAULTS, "fault profile"))
    if "topology" in source.data:
        hint = "lab up FILE brings it up, with the faults that it holds"
        raise source.error((), "this is a topology, not a fault profile", hint=hint)
    return FaultRules(tuple(validate(ProfileFile, source).faults), source)


def schema() -> dict[str, Any]:
    return editor_schema(ProfileFile, "softroce_lab fault profile")
