# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab that `lab perf` and `lab pingpong` measure in: one that is up, or one of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
from collections.abc import Callable, Iterator

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import lacks
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe import view
from softroce_lab.fabric.rights import needing_root
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan.plan import Node, Plan

OWN_TOPOLOGY = "two-hosts"
DEVICE = "rxe0"
"""A kernel host's."""
GID_INDEX = 1
"""Where a kernel host's IPv4 address stands among its GIDs."""
_LOOK_S = 30.0  # into a guest that may be emulated and busy
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """The lab called `name`; or one of its own from the topology `file`, gone afterwards.

    Of neither: the lab that is up; if none is, one of its own of two hosts.
    """

    name: str | None
    file: str | None
    own_name: str  # of a lab of its own
    mode: fabric.Mode = "auto"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Two hosts of a lab that is up."""

    lab: Lab
    client: Node
    server: Node


@contextlib.contextmanager
def chosen(
    where: Where,
    client: str | None,
    server: str | None,
    say: Say,
    suits: Callable[[Node, Node], None] = lambda *_: None,
) -> Iterator[Place]:
    """A lab to measure in, and its hosts, which `suits` may refuse.

    UserError, also where several labs are up and none is named; LabBusyError.
    """
    name, file = where.name, where.file
    if name is not None and file is not None:
        raise UserError(f"the lab {name}, or a lab of {file}?", hint="--lab or -f")
    lacks.need(lacks.AF_XDP)
    standing = name if name is not None or file is not None else _only()
    if standing is not None:
        with needing_root():
            lab = Lab.open(standing)
        with lab:
            hosts = two_hosts(lab.plan, client, server)
            suits(*hosts)
            say(f"in the lab {standing}")
            yield Place(lab, *hosts)
        return
    plan = topology.load(file or OWN_TOPOLOGY, name=where.own_name)
    hosts = two_hosts(plan, client, server)
    suits(*hosts)
    with fabric.owned(plan, mode=where.mode, say=say) as lab:
        yield Place(lab, *hosts)


def check_kernel_gid(lab: Lab, node: Node, index: int) -> None:
    """UserError if this GID of a kernel host is not its IPv4 address, as a soft peer needs it."""
    file = f"/sys/class/infiniband/{DEVICE}/ports/1/gids/{index}"
    printed = lab.guest(node.name).run(["cat", file], _LOOK_S)
    gid = ipaddress.IPv6Address(printed.text.strip() if printed.exit_code == 0 else "::")
    if gid.ipv4_mapped is None:
        what = f"GID {index} of {node.name} is {gid if int(gid) else 'empty'}"
        hint = f"a soft host is reached by IPv4, GID {GID_INDEX}"
        raise UserError(what, hint=hint)


def check_gids(client: Node, server: Node, *, gid_index: int, ipv6: bool = False) -> None:
    """UserError if these hosts have no such addresses."""
    if "kernel" in (client.kind, server.kind):
        if ipv6:
            raise UserError("--ipv6 is for soft hosts", hint="-x chooses a kernel host's GID")
    elif gid_index != GID_INDEX:
        raise UserError(
            f"GID index {gid_index} means nothing between soft hosts",
            hint="they talk by their IPv4 addresses, or, with `lab perf --ipv6`, by IPv6",
        )


def _only() -> str | None:
    found = view.only(f"; or -f {OWN_TOPOLOGY}, for a lab of its own")
    return None if found is None else found.name


def two_hosts(plan: Plan, first: str | None, second: str | None) -> tuple[Node, Node]:
    """The client and the server: as named, else the first hosts that are left. UserError."""
    names = [host.name for host in plan.hosts]
    for name in (first, second):
        if name is not None and name not in names:
            hint = did_you_mean(name, names) or f"hosts: {', '.join(names)}"
            raise UserError(f"{plan.name} has no host {name!r}", hint=hint)
    if first is not None and first == second:
        raise UserError(f"{first} would measure itself", hint="choose two hosts")
    left = [name for name in names if name not in (first, second)]
    if len(left) < (first is None) + (second is None):
        raise UserError(f"the lab {plan.name} has too few hosts", hint="two are needed")
    client = first if first is not None else left.pop(0)
    server = second if second is not None else left.pop(0)
    return plan.node(client), plan.node(server)
