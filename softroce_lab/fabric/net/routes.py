# SPDX-License-Identifier: GPL-2.0-or-later
"""Which ports a switch may send to for a host: as planned, or as its program selects them now."""

from __future__ import annotations

import contextlib
import ipaddress
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from softroce_lab.fabric.bpf import layout as xdp_layout
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.plan.plan import Node, Plan, Port

Routes: TypeAlias = Callable[[Node, str], tuple[Port, ...]]  # at a switch, to an IPv4 address


def planned(plan: Plan) -> Routes:
    known = {(route.node, route.destination): route.ports for route in plan.routes}
    return lambda node, address: known.get((node.name, f"{address}/32"), ())


@contextlib.contextmanager
def current(plan: Plan, bpffs: Path) -> Iterator[Routes]:
    """Those in the maps of a lab that is up, which follow links that go down."""
    ports = {port.ifindex: port for node in plan.nodes for port in node.ports}
    with contextlib.ExitStack() as stack:
        exact, prefix = (
            stack.enter_context(contextlib.closing(bpf.Map.pinned(bpffs / name)))
            for name in ("exact_routes", "prefix_routes")
        )

        def look_up(node: Node, address: str) -> tuple[Port, ...]:
            network = ipaddress.IPv4Network(address)
            value = exact.get(xdp_layout.exact_key(node.index, network))
            value = value or prefix.get(xdp_layout.prefix_key(node.index, network))
            return _ports(value, ports) if value else ()

        yield look_up


def _ports(group: bytes, ports: Mapping[int, Port]) -> tuple[Port, ...]:
    count, *ifindexes = struct.unpack(f"={len(group) // 4}I", group)
    return tuple(ports[ifindex] for ifindex in ifindexes[:count])
