# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport as an experiment file has it: of the experiment, or of one of its jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field, WithJsonSchema, model_validator

from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.recovery import knobs

MOST_LABEL = 40
"""Characters of a label."""

_Number: TypeAlias = Annotated[Any, WithJsonSchema({"type": "integer"})]


class TransportSpec(Filled):
    """A transport, with what it is to do differently from its defaults."""

    elsewhere: ClassVar = {"interval": "options: {interval: fixed}"}

    name: str = ""
    policy: str | None = None  # FILE:CLASS, a user's own
    label: Annotated[str, Field(min_length=1, max_length=MOST_LABEL)] | None = None
    congestion_control: str | None = None
    framing: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    # Knobs; each transport has bounds of its own for them.
    window: _Number = None
    paths: _Number = None
    retry_count: _Number = None
    timeout: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    schedule: Annotated[Any, WithJsonSchema({"enum": list(knobs.SCHEDULES)})] = None

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        return {"policy" if policy_file.is_reference(data) else "name": data}

    @model_validator(mode="after")
    def _fits(self) -> TransportSpec:
        if self.label is not None and not self.label.isprintable():
            raise KeyedError("label", f"{self.label!r} cannot be shown in a table")
        if self.policy is None and not self.name:
            raise UserError("a transport has a name, or a policy", hint=policy_file.EXAMPLE)
        if self.policy is not None and self.name:
            raise KeyedError("name", "'name' beside 'policy'", "label: NAME, for tables")
        return self
