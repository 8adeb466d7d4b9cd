# SPDX-License-Identifier: GPL-2.0-or-later
"""The yardstick: programs that only redirect, on the ports of a lab, along one path of it.

They take the place of the lab's own programs until those are attached again
(`XdpFabric.attach_programs`), in the mode that the lab came up in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from softroce_lab.errors import UserError
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.bpf.compiler import Module
from softroce_lab.fabric.bpf.layout import u32
from softroce_lab.fabric.bpf.xdp import Enter, Mode, attach_pinned
from softroce_lab.plan.plan import Plan, Port

SOURCE = "plain_redirect.c"
PROGRAM_OF_KIND = {"switch": "plain_switch", "host": "plain_host"}
EGRESS = "plain_egress"
XSKS = "plain_xsks"  # where the hosts' AF_XDP sockets go, keyed by ifindex


def load(plan: Plan, bpffs: Path) -> None:
    """Compile the programs and pin them and their maps in the lab's bpffs. Once per lab."""
    ports = 1 + max(port.ifindex for node in plan.nodes for port in node.ports)
    with Module(SOURCE, tuple(PROGRAM_OF_KIND.values()), {"LAB_PORTS": ports}) as module:
        module.pin(bpffs, (EGRESS, XSKS))


def attach(
    plan: Plan, enter: Enter, bpffs: Path, ends: tuple[str, str], mode: Mode
) -> tuple[Port, ...]:
    """Let them run on every port, and join two hosts by one path, the same in both directions.

    Returns the ports that a frame from the first host to the second arrives at. `load` comes first.
    """
    hops = tuple(_walk(plan, *ends))
    egress = bpf.Map.pinned(bpffs / EGRESS)
    try:
        for arrival, departure in hops:
            with enter(arrival.node):
                egress.put(u32(arrival.ifindex), u32(departure.ifindex))
                egress.put(u32(departure.ifindex), u32(arrival.ifindex))
    finally:
        egress.close()
    for node in plan.nodes:
        with enter(node.name):
            attach_pinned(bpffs / PROGRAM_OF_KIND[node.kind], node.ports, mode)
    return tuple(arrival for arrival, _ in hops)


def _walk(plan: Plan, source: str, destination: str) -> Iterator[tuple[Port, Port]]:
    """(arrival, departure) at every switch on the first of the shortest paths."""
    peers = {near.ifindex: far for _, near, far in plan.halves}
    prefix = f"{plan.node(destination).address}/32"
    routes = {route.node: route.ports[0] for route in plan.routes if route.destination == prefix}
    arrival = peers[plan.node(source).ports[0].ifindex]
    while arrival.node != destination:
        if arrival.node not in routes:
            raise UserError(f"no path of switches from {source} to {destination}")
        departure = routes[arrival.node]
        yield arrival, departure
        arrival = peers[departure.ifindex]
