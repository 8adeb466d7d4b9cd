# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes, rails and links of a plan by the names that a user types.

A link is written `leaf1<->spine1` (both directions), `leaf1->spine1` (one of them), or by a port at
one of its ends, `leaf1:spine1`. Where several links join two nodes, all of them are meant, unless a
port tells which: `s1:p2->s2`. Around an arrow names may be globs, as `lab fault` has them.
"""

from __future__ import annotations

import collections
import fnmatch
import re
from collections.abc import Iterable

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean, listed
from softroce_lab.plan.plan import Half, Node, Plan, Port

QUOTE = "quote a link, for the shell's sake: 'h1->leaf1'"  # a hint

_ARROW = re.compile(r"\s*(?P<left>[^\s<>]+)\s*(?P<arrow><->|->)\s*(?P<right>[^\s<>]+)\s*")
_GLOB = re.compile(r"[*?\[]")


def node(plan: Plan, name: str) -> Node:
    """The node called `name`. UserError with the nearest name."""
    try:
        return plan.node(name)
    except KeyError:
        known = [each.name for each in plan.nodes]
        hint = QUOTE if name.endswith("-") else did_you_mean(name, known)
        raise UserError(f"{plan.name} has no node {name}", hint=hint) from None


def uplink(plan: Plan, port: Port) -> int:
    return next(number for number, sender, _ in plan.halves if sender.ifindex == port.ifindex)


def is_link(text: str) -> bool:
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
        raise UserError(f"{text!r} is not a link", hint="such as 'leaf1<->spine1', 'leaf1->spine1'")
    left, right = _ends(plan, match["left"]), _ends(plan, match["right"])
    found = joining(plan, left, right, both=match["arrow"] == "<->")
    if not found:
        what = f"no link joins {match['left']} and {match['right']}"
        raise UserError(what, hint=neighbours(plan, next(iter(left)).node))
    return found


def joining(plan: Plan, left: set[Port], right: set[Port], *, both: bool) -> tuple[Half, ...]:
    """The directed links from a port of `left` to one of `right`, and, if `both`, back."""
    return tuple(
        half
        for half in plan.halves
        if (half[1] in left and half[2] in right) or (both and half[1] in right and half[2] in left)
    )


def ports_like(plan: Plan, glob: str) -> set[Port]:
    """The ports that `node` or `node:port` stands for, globs both; perhaps none."""
    node_glob, _, port_glob = glob.partition(":")
    nodes = [each for each in plan.nodes if fnmatch.fnmatchcase(each.name, node_glob)]
    ports = [port for each in nodes for port in each.ports]
    return {port for port in ports if fnmatch.fnmatchcase(port.name, port_glob or "*")}


def _ends(plan: Plan, text: str) -> set[Port]:
    """The ports that one side of an arrow means. UserError if none."""
    name, _, wanted = text.partition(":")
    if not _GLOB.search(text):
        return {port(plan, text)} if wanted else set(node(plan, name).ports)
    found = ports_like(plan, text)
    if not found:
        known = [each.name for each in plan.nodes]
        raise UserError(f"{plan.name} has nothing like {text}", hint=f"known: {listed(known)}")
    return found


def neighbours(plan: Plan, name: str) -> str:
    peers = sorted({far.node for _, near, far in plan.halves if near.node == name})
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
    if not owner.is_host:
        hosts = ", ".join(host.name for host in plan.hosts[:12])
        raise UserError(f"{owner.name} is a switch, which has no address", hint=f"hosts: {hosts}")
    if ":" in text:
        return port(plan, text)
    if not 1 <= number <= len(owner.ports):
        raise UserError(f"{owner.name} has no rail {number}", hint=f"it has {len(owner.ports)}")
    return owner.ports[number - 1]


def peers(plan: Plan) -> dict[int, tuple[int, Port]]:
    """ifindex of every port -> the directed link that begins there, and the port at its end."""
    return {near.ifindex: (number, far) for number, near, far in plan.halves}


def twins(plan: Plan) -> dict[int, list[int]]:
    """The indexes of the links that join the same two nodes, by each of them; others are absent."""
    together: dict[frozenset[str], list[int]] = collections.defaultdict(list)
    for link in plan.links:
        together[frozenset((link.a.node, link.b.node))].append(link.index)
    return {index: group for group in together.values() if len(group) > 1 for index in group}


def half_names(plan: Plan) -> dict[int, tuple[str, str]]:
    """Both ends of every directed link: their nodes, with ports where links are parallel."""
    parallel = twins(plan)
    return {
        number: (str(near), str(far)) if number // 2 in parallel else (near.node, far.node)
        for number, near, far in plan.halves
    }


def arrows(plan: Plan) -> dict[int, str]:
    """The name of every directed link: `leaf1->spine1`, or `s1:p2->s2:p2` beside parallel ones."""
    return {number: "->".join(ends) for number, ends in half_names(plan).items()}


def link_names(plan: Plan, directed: Iterable[int]) -> list[str]:
    """`a<->b` where both directions are among `directed`, else `a->b`; in the order of the plan."""
    wanted, names = set(directed), half_names(plan)
    found = []
    for number in sorted(wanted):
        both = number ^ 1 in wanted
        if not (both and number & 1):
            found.append(("<->" if both else "->").join(names[number]))
    return found
