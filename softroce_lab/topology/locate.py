# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes, rails and links of a plan by the names that a user types.

A link is written `leaf1<->spine1` (both directions), `leaf1->spine1` (one of them), or by a port at
one of its ends, `leaf1:spine1`. Where several links join two nodes, all of them are meant.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.topology.plan import Node, Plan, Port
from softroce_lab.topology.validation import did_you_mean

Half: TypeAlias = tuple[int, Port, Port]  # directed link, its transmitting and its receiving port

_ARROW = re.compile(r"\s*(?P<left>[^\s<>:]+)\s*(?P<arrow><->|->)\s*(?P<right>[^\s<>:]+)\s*")


def node(plan: Plan, name: str) -> Node:
    """The node called `name`. UserError with the nearest name."""
    try:
        return plan.node(name)
    except KeyError:
        known = [each.name for each in plan.nodes]
        raise UserError(f"{plan.name} has no node {name}", hint=did_you_mean(name, known)) from None


def is_link(text: str) -> bool:
    """Whether `text` is written as a link, not as a node."""
    return "->" in text or ":" in text


def halves(plan: Plan, text: str) -> tuple[Half, ...]:
    """The directed links that `text` means, in the order of the plan. UserError if none."""
    if "->" in text:
        return _between(plan, text)
    end = port(plan, text)
    return next(link.halves for link in plan.links if end in (link.a, link.b))


def _between(plan: Plan, text: str) -> tuple[Half, ...]:
    match = _ARROW.fullmatch(text)
    if match is None:
        raise UserError(f"{text!r} is not a link", hint="such as leaf1<->spine1, or leaf1->spine1")
    left, right = node(plan, match["left"]).name, node(plan, match["right"]).name
    wanted = {(left, right)} | ({(right, left)} if match["arrow"] == "<->" else set())
    found = tuple(
        half
        for link in plan.links
        for half in link.halves
        if (half[1].node, half[2].node) in wanted
    )
    if not found:
        raise UserError(f"no link joins {left} and {right}", hint=_neighbours(plan, left))
    return found


def _neighbours(plan: Plan, name: str) -> str:
    peers = sorted(
        {half[2].node for link in plan.links for half in link.halves if half[1].node == name}
    )
    return f"{name} is linked to {', '.join(peers)}"


def port(plan: Plan, text: str) -> Port:
    """The port written `node:port`. UserError."""
    name, _, wanted = text.partition(":")
    owner = node(plan, name)
    for each in owner.ports:
        if each.name == wanted:
            return each
    known = [each.name for each in owner.ports]
    raise UserError(f"{name} has no port {wanted!r}", hint=did_you_mean(wanted, known))


def rail(plan: Plan, text: str, number: int = 1) -> Port:
    """A host's port: `h1` for its rail `number`, counted from 1, or `h1:eth2`. UserError."""
    owner = node(plan, text.partition(":")[0])
    if owner.kind != "host":
        hosts = ", ".join(host.name for host in plan.hosts[:12])
        raise UserError(f"{owner.name} is a switch, which has no address", hint=f"hosts: {hosts}")
    if ":" in text:
        return port(plan, text)
    if not 1 <= number <= len(owner.ports):
        raise UserError(f"{owner.name} has no rail {number}", hint=f"it has {len(owner.ports)}")
    return owner.ports[number - 1]


def peers(plan: Plan) -> dict[int, tuple[int, Port]]:
    """ifindex of every port -> the directed link that begins there, and the port at its end."""
    return {near.ifindex: (number, far) for link in plan.links for number, near, far in link.halves}
