# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs of verbs, a command for each host (docs/howto/programs.md)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import Setting, Use, WorkloadSpec
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.topology.model import NodeName
from softroce_lab.workloads.programs import Command, Programs

MOST_RETRIES = 1000
_RESERVED = "LD_LIBRARY_PATH", "SOFTROCE_COUNTERS", "SOFTROCE_LOSSES", "SOFTROCE_VERBS"


def _command(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise UserError("expected a command", hint="run: ib_write_bw -x 0 h2")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UserError(f"{text!r} is no regular expression: {error}") from None
    return text


def _free(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if name in _RESERVED or not name or "=" in name or "\0" in name:
            raise UserError(f"{name!r}: the lab sets that one, or it is no name of a variable")
    return environment


Environment = Annotated[dict[str, str], AfterValidator(_free), Field(default_factory=dict)]


class CommandSpec(Filled):
    """The command of one host."""

    run: Annotated[str, AfterValidator(_command)] = Field(
        description="The command, for `sh -c`. Hosts have their names."
    )
    environment: Environment = Field(description="Variables of this command.")
    after: NodeName | None = Field(
        None,
        description="A host: this command begins when that host's command listens, or has ended.",
    )
    listens: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="TCP port that shows the others that this command is ready."
    )
    retries: Annotated[
        int,
        Field(
            ge=0,
            le=MOST_RETRIES,
            description="How often a failed command is run again, 0.2 s later each time.",
        ),
    ] = 0
    status: Annotated[int, Field(ge=0, le=255, description="Exit status of a success.")] = 0
    prints: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None,
        description=(
            "Regular expression of Python that the last 64 KiB of the output must match. "
            "`^` and `$` are of lines."
        ),
    )
    roce: bool = Field(True, description="A success needs RoCE packets from this host.")


class ProgramSpec(WorkloadSpec):
    """Unmodified programs of verbs, one command a host. Only on the real clock."""

    default_transport: ClassVar[str | None] = "rc"

    kind: Literal["program"]
    commands: Annotated[
        dict[NodeName, CommandSpec],
        Field(min_length=1, description="A command for each host that takes part."),
    ]
    environment: Environment = Field(description="Variables of all commands.")

    @model_validator(mode="after")
    def _hosts_are_those_of_commands(self) -> ProgramSpec:
        for key in ("hosts", "placement", "rail", "rails"):
            if key in self.model_fields_set:
                raise KeyedError(key, f"'{key}' beside 'commands'", "leave it out")
        return self

    def uses(self, place: Place) -> Iterator[Use]:
        for name, command in self.commands.items():
            variables = {**self.environment, **command.environment}
            words = [f"{key}={shlex.quote(value)}" for key, value in variables.items()]
            yield Use((*place, "commands", name, "run"), "program", " ".join([*words, command.run]))

    def build(self, setting: Setting) -> Programs:
        """Commands by host. UserError for hosts that are not there, and for orders in a circle."""
        self._check_order(setting)
        hosts = {name: setting.index(name, "commands", name) for name in self.commands}
        return Programs({hosts[name]: self._command_of(name, hosts) for name in self.commands})

    def _command_of(self, name: str, hosts: Mapping[str, int]) -> Command:
        spec = self.commands[name]
        given = {
            "environment": {**self.environment, **spec.environment},
            "after": None if spec.after is None else hosts[spec.after],
        }
        return Command(**{**spec.model_dump(), **given})

    def _check_order(self, setting: Setting) -> None:
        for name in self.commands:
            seen = [name]
            while (before := self.commands[seen[-1]].after) is not None:
                place = (*setting.place, "commands", seen[-1], "after")
                if before not in self.commands:
                    what = f"no command of {before!r}, which {seen[-1]} waits for"
                    raise setting.source.error(place, what, hint="a host of 'commands'")
                if before in seen:
                    circle = " waits for ".join([*seen, before])
                    raise setting.source.error(place, f"{circle}: none of them can begin")
                seen.append(before)
