# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab that is up has lost: links, ports and XDP programs of its plan, and its processes.

The ledger lists what was created, the plan what should exist. Root may remove a link by hand, and
processes die; queries to the kernel check every port.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.fabric import guests, runtime
from softroce_lab.fabric.bpf import bpffs, libbpf
from softroce_lab.fabric.bpf.xdp import ATTACH_FLAGS, Mode
from softroce_lab.fabric.ledger import process, removal
from softroce_lab.fabric.ledger.ledger import History
from softroce_lab.fabric.net import links, netns
from softroce_lab.inputs.validation import listed
from softroce_lab.plan.plan import Node, Plan, Port

_MOST_NAMED = 6  # of several things that are lost in one error


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Something that is missing, and what to do about it."""

    what: str
    hint: str
    directed_links: frozenset[int] = frozenset()  # those that carry nothing any more

    def __str__(self) -> str:
        return f"{self.what}: {self.hint}"

    def document(self, names: Mapping[int, str]) -> dict[str, Any]:
        """For `--json`; `names` has those of all directed links."""
        links = [names[number] for number in sorted(self.directed_links)]
        return {"what": self.what, "hint": self.hint, "links": links}


_LOSSES = {  # of a lab that continues without the process of this role
    "wire": "the wire stage is dead: shaped links lose all frames, as wire_gone",
    "monitor": "the monitor is dead: drops and captures are not recorded",
    "routes": "the control plane is dead: routes do not follow links any more",
}


def of_lab(name: str, history: History, plan: Plan | None) -> list[Damage]:
    """What the lab called `name`, which is up, has lost; without a plan: its processes alone."""
    ports = () if plan is None else _lost_ports(name, history, plan)
    return [*_dead_processes(name, history, plan), *ports]


def on_links(found: Iterable[Damage], links: Iterable[int]) -> RunError | None:
    """The error that these directed links are broken; None: they are whole."""
    wanted = frozenset(links)
    broken = [each for each in found if each.directed_links & wanted]
    if not broken:
        return None
    return RunError(listed([each.what for each in broken], _MOST_NAMED), hint=broken[0].hint)


# --- Processes ---------------------------------------------------------------------------------


def _dead_processes(name: str, history: History, plan: Plan | None) -> Iterator[Damage]:
    for entry in history.of_kind("process"):
        identity, role = process.recorded(entry), entry.facts["role"]
        if identity is None or identity.is_alive():
            continue
        if role in _LOSSES:
            yield Damage(_LOSSES[role], _again(name))
        elif role.startswith(guests.ROLE_PREFIX):
            node = role.removeprefix(guests.ROLE_PREFIX)
            why = "" if plan is None else _cause_of_death(name, plan.node(node))
            what = f"the kernel host {node} is dead{why}"
            yield Damage(what, f"lab kernel-host boot {node} --lab {name}")


def _again(name: str) -> str:
    return f"lab down {name}, and up again"


def _cause_of_death(lab: str, guest: Node) -> str:
    return guests.kind(guest.kind).cause_of_death(runtime.DIRECTORY / lab, guest.name)


# --- Ports -------------------------------------------------------------------------------------


def _lost_ports(name: str, history: History, plan: Plan) -> Iterator[Damage]:
    """Namespaces, links and ports. A pair whose ends are both gone is one link."""
    again = _again(name)
    numbers = {port.ifindex: frozenset((tx, tx ^ 1)) for tx, port, _ in plan.halves}
    programs = bpffs.pinned(runtime.DIRECTORY / name / runtime.BPFFS).programs
    mode, gone, lost = history.state_facts["xdp"], set[int](), set[int]()
    for entry in history.of_kind("netns"):
        node = plan.node(entry.facts["node"])
        fd = netns.opened(entry.facts["name"], removal.identity_of(entry))
        if fd is None:
            here = frozenset[int]().union(*(numbers[port.ifindex] for port in node.ports))
            lost |= here
            yield Damage(f"the namespace {entry.facts['name']} is gone", again, here)
            continue
        for port, state in _states(fd, node, mode, programs):
            here = numbers[port.ifindex]
            if state is _State.GONE:
                gone |= here
            elif state is _State.DOWN:
                up = f"lab exec --lab {name} {node.name} -- ip link set {port.name} up"
                yield Damage(f"the port {port} is down", up, here)
            else:
                yield Damage(f"the port {port} has lost its XDP program", again, here)
    for link in plan.links:
        pair = frozenset((2 * link.index, 2 * link.index + 1))
        if pair <= gone - lost:
            yield Damage(f"the link {link.a} - {link.b} is gone", again, pair)


class _State(enum.Enum):
    GONE = enum.auto()
    DOWN = enum.auto()
    NO_PROGRAM = enum.auto()


def _states(fd: int, node: Node, mode: Mode, programs: Set[int]) -> Iterator[tuple[Port, _State]]:
    """The node's ports that are not as they were made; `fd`, its namespace, is closed."""
    with (
        contextlib.closing(os.fdopen(fd)),
        netns.entered(fd),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control,
    ):
        states = [(port, _state(control, port, mode, programs)) for port in node.ports]
    return ((port, state) for port, state in states if state is not None)


def _state(control: socket.socket, port: Port, mode: Mode, programs: Set[int]) -> _State | None:
    """None: it is as it was made."""
    try:
        index = socket.if_nametoindex(port.name)
        flags = links.flags_of(control, port.name)
        program = libbpf.attached_xdp(port.ifindex, ATTACH_FLAGS[mode])
    except OSError:
        return _State.GONE
    if index != port.ifindex:
        return _State.GONE
    if not flags & links.IFF_UP:
        return _State.DOWN
    return None if program in programs else _State.NO_PROGRAM
