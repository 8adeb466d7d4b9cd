# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests: nodes that are machines of their own, behind the ports of their namespace.

`plan.GUESTS` names the module of each kind of guest. That module has a `KIND`, which is all that
the fabric sees of it. It is imported when a lab has such a node: most labs have none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import Entry
from softroce_lab.plan.plan import GUESTS, Plan

ROLE_PREFIX = "guest "  # in the ledger, before the node's name

Say = Callable[[str], None]


# A guest of a lab that is up; booted again, it is the same one.
#   node                    its name
#   console                 the path of the file with what it printed on its console
#   machine                 its process, a ProcessIdentity. UserError if none was started
#   check_alive()           RunError if it is dead
#   run(argv, timeout_s)    runs a command (no shell) to its end: exit_code (-N: killed by signal N;
#                           127: there is no such program), stdout, stderr. RunError if it takes
#                           longer, or the guest dies
Guest: TypeAlias = Any

# What the fabric needs of a kind of guests. `means` is what `prepare` returned, `guest` what
# `reach` did. The end of guests is the ledger's: each is a process.
#   prepare(plan, say) -> means                   what all guests of `plan` of this kind boot from.
#                                                 LabError
#   described(node, means)                        what a guest boots, in a few words
#   files(node_name)                              names of its files in the lab's directory, for the
#                                                 ledger
#   start(ledger, plan, node, namespace, means)   spawns its process by `role(node.name)` in the
#                                                 namespace, whose ports exist. OSError
#   reach(node_name, machine, namespace, directory) -> guest
#                                                 `machine` and `namespace` are functions: of its
#                                                 process, and of a descriptor that is the caller's
#   await_ready(guests, check)                    waits until all run commands; `check` is called
#                                                 meanwhile and may raise. RunError
#   execute(guest, argv)                          runs a command at this process's own standard
#                                                 streams; its exit status. RunError
#   ping(guest, source, target, *, ipv6, count, interval_ns, size_bytes, timeout_ns, say)
#                                                 echoes as `observe.ping.run` sends them. RunError
#   counters(guest, node, ports)                  by device, of its RDMA devices at these of its
#                                                 ports. RunError
#   document(node)                                what the guest is, for `--json`
#   line(document)                                the same in words, with `pid` and `alive` of its
#                                                 process (None: the lab is not up)
#   cause_of_death(directory, node_name)          why it died, to follow a statement that it is
#                                                 dead; "" if that is unknown
GuestKind: TypeAlias = Any


def kind(name: str) -> GuestKind:
    return importlib.import_module(GUESTS[name]).KIND


def prepare(plan: Plan, say: Say) -> dict[str, Any]:
    """What the guests of a plan boot from, by kind. LabError."""
    names = dict.fromkeys(node.kind for node in plan.guests)
    return {name: kind(name).prepare(plan, say) for name in names}


def role(node: str) -> str:
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
