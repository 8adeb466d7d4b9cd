# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs of verbs: a command for each host, or a launcher.

docs/howto/programs-under-loss.md explains both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from softroce_lab.errors import UserError
from softroce_lab.experiment import printed
from softroce_lab.experiment.kinds import launchers
from softroce_lab.experiment.kinds.base import Setting, Use, WorkloadSpec
from softroce_lab.experiment.kinds.launchers import LAUNCHERS
from softroce_lab.experiment.transports import for_programs
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.topology.model import NodeName
from softroce_lab.workloads.programs import Command, Programs

MOST_RETRIES = 1000
MOST_RANKS = 64  # of a host
_OF_A_LAUNCHER = ("ranks_per_host", "run", "retries", "status", "prints", "figures", "roce")
_RESERVED = (
    "LD_LIBRARY_PATH", "SOFTROCE_COUNTERS", "SOFTROCE_LOSSES", "SOFTROCE_RECORDS",
    "SOFTROCE_TRANSPORT", "SOFTROCE_VERBS",
)  # fmt: skip
_SHIFT = "SOFTROCE_SHIFT"  # as programs/execute.py has it


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


def _figures(forms: list[str]) -> list[str]:
    """UserError for one that is neither a form nor a pattern with names, or a name twice."""
    names: list[str] = []
    for form in forms:
        if form in printed.FORMATS:
            continue
        found = re.compile(_pattern(form)).groupindex
        if not found:
            hint = f"such as 'median (?P<median_ms>[0-9.]+)', or {', '.join(printed.FORMATS)}"
            raise UserError(f"{form!r} has no named group", hint=hint)
        names += found
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"figure {name!r} stands twice")
    return forms


_PRINTS = (
    "Regular expression of Python that the last 64 KiB of the output must match. "
    "`^` and `$` are of lines."
)
_FIGURES = (
    "Figures to read from the output, which are `printed.NAME` in results and in `expect`: "
    "`perftest`, `osu`, `fio` (its JSON), or a regular expression whose named groups are "
    "numbers, such as `(?P<median_ms>[0-9.]+) ms`. The last match counts. A run without them "
    "fails. A name that ends in `_s`, `_ms`, `_us`, `_ns` is a time, in `_gbps`, `_mbps`, `_bps` "
    "a rate."
)
Run = Annotated[str, AfterValidator(_command)]
Prints = Annotated[str, AfterValidator(_pattern)]
Figures = Annotated[list[str], AfterValidator(_figures), Field(default_factory=list)]
Retries = Annotated[
    int,
    Field(
        ge=0,
        le=MOST_RETRIES,
        description="How often a failed command is run again, 0.2 s later each time.",
    ),
]
Status = Annotated[int, Field(ge=0, le=255, description="Exit status of a success.")]


class CommandSpec(Filled):
    """The command of one host."""

    run: Run = Field(
        description="The command, for `sh -c` in the folder of `lab run`. Hosts have their names."
    )
    environment: Environment = Field(description="Variables of this command.")
    after: NodeName | None = Field(
        None,
        description="A host: this command begins when that host's command listens, or has ended.",
    )
    listens: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="TCP port that shows the others that this command is ready."
    )
    retries: Retries = 0
    status: Status = 0
    prints: Prints | None = Field(None, description=_PRINTS)
    figures: Figures = Field(description=_FIGURES)
    roce: bool = Field(True, description="A success needs RoCE packets from this host.")


class ProgramSpec(WorkloadSpec):
    """Unmodified programs of verbs: a command a host, or one with a launcher. Real clock only.

    The transports of the experiment carry the programs' RC queue pairs.
    """

    default_transport: ClassVar[str | None] = "rc"  # of libibverbs without any setting

    kind: Literal["program"]
    commands: dict[NodeName, CommandSpec] = Field(
        default_factory=dict,
        description="A command for each host that takes part. Without `launcher`.",
    )
    launcher: Annotated[str, AfterValidator(launchers.checked)] | None = Field(
        None,
        description=(
            f"What starts `run` on all hosts: {', '.join(f'`{each}`' for each in LAUNCHERS)}, "
            "with or without its folder. `mpirun` is Open MPI's, `mpiexec` MPICH's. They run at "
            "the first host, `torchrun` at each host."
        ),
    )
    ranks_per_host: Annotated[int, Field(ge=1, le=MOST_RANKS)] = Field(
        1, description="With `launcher`: processes of each host."
    )
    run: Run | None = Field(
        None,
        description="With `launcher`: what a rank runs, by `bash -c` in the folder of `lab run`.",
    )
    retries: Retries = 0
    status: Status = 0
    prints: Prints | None = Field(None, description=_PRINTS)
    figures: Figures = Field(description=_FIGURES)
    roce: bool = Field(True, description="A success needs RoCE packets from each host.")
    environment: Environment = Field(
        description="Variables of all commands. They override those of a launcher."
    )

    @model_validator(mode="after")
    def _one_way(self) -> ProgramSpec:
        refused = ("rail", "rails")
        if self.launcher is None:
            refused += (*_OF_A_LAUNCHER, "hosts", "placement")
            if not self.commands:
                hint = "commands: {h1: {run: ...}}, or launcher: mpirun"
                raise KeyedError("commands", "no commands and no launcher", hint)
        elif self.run is None:
            raise KeyedError("launcher", "'launcher' without 'run'", "run: ./my_program")
        else:
            refused += ("commands",)
        beside = "commands" if self.launcher is None else "launcher"
        for key in refused:
            if key in self.model_fields_set:
                raise KeyedError(key, f"'{key}' beside '{beside}'", "leave it out")
        return self

    def fitted(self, transport: Transport) -> Transport:
        found = for_programs.fitted(transport)
        environments = (self.environment, *(each.environment for each in self.commands.values()))
        if found.entry.striped and any(each.get(_SHIFT) == "1" for each in environments):
            what = f"{transport.name} with {_SHIFT} in 'environment': only RC has backups"
            raise UserError(what, hint="leave one of the two out")
        return found

    def uses(self, place: Place) -> Iterator[Use]:
        if self.launcher is not None and self.run is not None:
            text = _with_variables(self.environment, f"{self.launcher} {self.run}")
            yield Use((*place, "run"), "program", text)
        for name, command in self.commands.items():
            variables = {**self.environment, **command.environment}
            text = _with_variables(variables, command.run)
            yield Use((*place, "commands", name, "run"), "program", text)

    def build(self, setting: Setting) -> Programs:
        """Commands by host. UserError for hosts that are not there, and for orders in a circle."""
        if self.launcher is not None:
            return self._launched(self.launcher, setting)
        self._check_order(setting)
        hosts = {name: setting.index(name, "commands", name) for name in self.commands}
        commands = {hosts[name]: self._command_of(name, hosts) for name in self.commands}
        return Programs(commands)

    def _launched(self, launcher: str, setting: Setting) -> Programs:
        """The first command prints for all."""
        hosts = self.ranks(setting)
        names = [setting.names[host] for host in hosts]
        lines = launchers.commands(launcher, names, self.ranks_per_host, str(self.run))
        commands = {
            host: Command(
                hosts=hosts if len(lines) == 1 else (host,),
                run=line,
                environment={**launchers.environment(launcher), **self.environment},
                after=None,
                listens=None,
                retries=self.retries,
                status=self.status,
                prints=self.prints if host == hosts[0] else None,
                figures=tuple(self.figures) if host == hosts[0] else (),
                roce=self.roce,
            )
            for host, line in zip(hosts, lines, strict=False)
        }
        return Programs(commands)

    def _command_of(self, name: str, hosts: Mapping[str, int]) -> Command:
        spec = self.commands[name]
        given = {
            "environment": {**self.environment, **spec.environment},
            "after": None if spec.after is None else hosts[spec.after],
            "figures": tuple(spec.figures),
            "hosts": (hosts[name],),
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


def _with_variables(variables: Mapping[str, str], command: str) -> str:
    return " ".join([*(f"{key}={shlex.quote(value)}" for key, value in variables.items()), command])
