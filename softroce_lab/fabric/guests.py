# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests: nodes that are machines of their own, behind the ports of their namespace.

`plan.GUESTS` names the module of each kind of guest. That module has a `KIND`, which is all that
the fabric sees of it. It is imported when a lab has such a node: most labs have none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from softroce_lab.errors import UserError
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import Entry, Ledger
from softroce_lab.fabric.observe.ping import Outcome, Reply
from softroce_lab.plan.plan import GUESTS, Node, Plan, Port

ROLE_PREFIX = "guest "  # in the ledger, before the node's name

Say = Callable[[str], None]


class Completed(Protocol):
    """A command that has ended in a guest."""

    @property
    def exit_code(self) -> int:
        """-N: killed by signal N; 127: there is no such program."""

    @property
    def stdout(self) -> bytes:
        """What it printed."""

    @property
    def stderr(self) -> bytes:
        """What it complained about."""


class Guest(Protocol):
    """A guest of a lab that is up; booted again, it is the same one."""

    @property
    def node(self) -> str:
        """Its name."""

    @property
    def console(self) -> Path:
        """The file with what it printed on its console."""

    @property
    def machine(self) -> ProcessIdentity:
        """The process that it is. UserError if none was started."""

    def check_alive(self) -> None:
        """RunError if it is dead."""

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """Run a command (no shell) to its end. RunError if it takes longer, or the guest dies."""


class GuestKind(Protocol):
    """What the fabric needs of a kind of guests. Their end is the ledger's: each is a process.

    Every `guest` here was returned by `reach` of the same kind.
    """

    def prepare(self, plan: Plan, say: Say) -> Any:
        """What all guests of `plan` that are of this kind boot from. LabError."""

    def described(self, node: Node, means: Any) -> str:
        """What a guest boots, in a few words."""

    def files(self, node: str) -> Sequence[str]:
        """Its files in the lab's directory, for the ledger."""

    def start(self, ledger: Ledger, plan: Plan, node: Node, namespace: int, means: Any) -> None:
        """Spawn its process by the role `role(node.name)` in `namespace`, whose ports exist.

        Its files are announced in the ledger. OSError.
        """

    def reach(
        self,
        node: str,
        machine: Callable[[], ProcessIdentity],
        namespace: Callable[[], int],
        directory: Path,
    ) -> Guest:
        """The guest. `namespace` gives a descriptor, which stays the caller's."""

    def await_ready(self, guests: Sequence[Any], check: Callable[[], None]) -> None:
        """Wait until all run commands; `check` is called meanwhile and may raise. RunError."""

    def execute(self, guest: Any, argv: Sequence[str]) -> int:
        """Run a command at this process's own standard streams; its exit status. RunError."""

    def ping(
        self,
        guest: Any,
        source: Port,
        target: Port,
        *,
        ipv6: bool,
        count: int,
        interval_ns: int,
        size_bytes: int,
        timeout_ns: int,
        say: Callable[[Reply], None],
    ) -> Outcome:
        """ICMP echoes from the guest, as `observe.ping.run` sends them. RunError."""

    def counters(
        self, guest: Any, node: Node, ports: Collection[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """The counters of its RDMA devices at these of its ports, by device. RunError."""

    def document(self, node: Node) -> dict[str, Any]:
        """What the guest is, for `--json`."""

    def line(self, document: Mapping[str, Any]) -> str:
        """The same in words, with `pid` and `alive` of its process (None: the lab is not up)."""

    def cause_of_death(self, directory: Path, node: str) -> str:
        """Why a dead guest died, to follow a statement that it is dead; "" if that is unknown."""


def kind(name: str) -> GuestKind:
    """The kind of guests called `name`."""
    found: GuestKind = importlib.import_module(GUESTS[name]).KIND
    return found


def prepare(plan: Plan, say: Say) -> dict[str, Any]:
    """What the guests of a plan boot from, by kind. LabError."""
    names = dict.fromkeys(node.kind for node in plan.guests)
    return {name: kind(name).prepare(plan, say) for name in names}


def role(node: str) -> str:
    """The role of a guest's process in the ledger."""
    return ROLE_PREFIX + node


def reach(
    plan: Plan,
    name: str,
    entries: Callable[[], Iterable[Entry]],
    namespace: Callable[[], int],
    directory: Path,
) -> Guest:
    """The guest `name` of the lab in `directory`, whose processes `entries` gives.

    UserError if it is none, or was not started.
    """
    node = next((each for each in plan.guests if each.name == name), None)
    if node is None:
        raise UserError(f"{name} is not a kernel host")
    found = kind(node.kind).reach(name, lambda: _machine(entries(), name), namespace, directory)
    _ = found.machine
    return found


def _machine(entries: Iterable[Entry], node: str) -> ProcessIdentity:
    for entry in entries:
        machine = process.recorded(entry)
        if entry.facts["role"] == role(node) and machine is not None:
            return machine
    raise UserError(f"{node} is not a kernel host that was started")
