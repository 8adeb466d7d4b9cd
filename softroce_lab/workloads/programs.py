# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of verbs instead of messages: a command for each host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from softroce_lab.workloads.message import Message
from softroce_lab.workloads.work import Workload


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What one host runs, and what counts as success."""

    hosts: tuple[int, ...]  # where its processes run: a launcher reaches several
    run: str  # for sh(1)
    environment: Mapping[str, str]
    after: int | None  # a host whose command listens, or has ended, before this one starts
    listens: int | None  # the TCP port by which others know that it is ready
    retries: int  # how often it is run again while it fails
    status: int  # that it is to end with
    prints: str | None  # a regular expression that its output must match
    figures: tuple[str, ...]  # forms of output, or regular expressions with named groups
    roce: bool  # whether each of its hosts must send RoCE packets


@dataclasses.dataclass(frozen=True)
class Programs(Workload):
    """Commands by host."""

    commands: Mapping[int, Command]

    @property
    def ranks(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(host for command in self.commands.values() for host in command.hosts)

    @property
    def name(self) -> str:
        return "program"

    def buffer_bytes_of(self, host: int) -> int:
        return 0

    @property
    def message_count(self) -> int:
        return 0

    @property
    def longest_message_bytes(self) -> int:
        return 0

    def messages(self) -> Iterator[Message]:
        return iter(())
