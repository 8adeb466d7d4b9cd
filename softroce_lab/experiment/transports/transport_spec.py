# SPDX-License-Identifier: GPL-2.0-or-later
"""A transport as an experiment file has it: of the experiment, or of one of its jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field, WithJsonSchema, model_validator

from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.transports import knobs

MOST_LABEL = 40
"""Characters of a label."""

_Number: TypeAlias = Annotated[Any, WithJsonSchema({"type": "integer"})]


class TransportSpec(Filled):
    """A transport and its settings. A name alone stands for `{name: NAME}`."""

    elsewhere: ClassVar = {"interval": "options: {interval: fixed}"}

    name: str = Field("", description="A built-in transport. An entry has this key or `policy`.")
    policy: str | None = Field(
        None, description="A policy of your own, `FILE:CLASS`. The path is relative to this file."
    )
    label: Annotated[str, Field(min_length=1, max_length=MOST_LABEL)] | None = Field(
        None,
        description=(
            "Name in tables and in the run directory, different for each transport. "
            "Default: the name and all settings, such as `rc+window=128`."
        ),
    )
    congestion_control: str | None = Field(
        None,
        description=(
            "`bdp`, `dcqcn`, `grants`, `nscc` or `swift`. Default: the transport's own; "
            "else `dcqcn` where queues set congestion marks, otherwise `bdp`."
        ),
    )
    framing: str | None = Field(
        None, description="`ud` or `uc_immediate`, if the transport supports both."
    )
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Options that the transport declares."
    )
    # Knobs; each transport has bounds of its own for them.
    window: _Number = Field(None, description="Knob: most packets in flight.")
    paths: _Number = Field(None, description="Knob: UDP source ports of data packets.")
    retry_count: _Number = Field(
        None, description="Knob: retransmissions before the transport gives up."
    )
    timeout: Annotated[Any, WithJsonSchema({"type": "string"})] = Field(
        None, description="Knob: the retransmission timer, or `measured`."
    )
    schedule: Annotated[Any, WithJsonSchema({"enum": list(knobs.SCHEDULES)})] = Field(
        None, description="Knob: which message's packets leave first."
    )

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
