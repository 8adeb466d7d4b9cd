# SPDX-License-Identifier: GPL-2.0-or-later
"""An RNIC at a host of a lab that is up, for programs written for verbs.

    with lab.owned(topology.load("two-hosts")) as up, opened(up, "h1") as context:
        pd = PD(context)
        ...

Its engine runs in a thread of its own; nothing else of the calling process is in the host's
namespace.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softroce_lab import _native
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment.hosts.processes import gateway, host_settings, mac_number
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.net.owner import PortOwner
from softroce_lab.paths import need_live
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Node
from softroce_lab.verbs import GID, Context


def config(
    lab: Lab, node: Node, *, path_mtu: int, ip_version: int = 4, cpu: int = -1, rail: int = 0
) -> Any:
    """Settings of a native host: a port of the node, and its address of one IP version."""
    need_live()
    settings = host_settings(lab, node, rail, ip_version, cpu=cpu, epoch_ns=time.monotonic_ns())
    messages = _native.MessageConfig()
    messages.address, messages.path_mtu = settings.address, path_mtu
    messages.receive_ring_packets = settings.receive_frames
    return settings.native(messages)


@contextmanager
def opened(
    lab: Lab,
    name: str,
    *,
    path_mtu: int | None = None,
    ip_version: int = 4,
    cpu: int = -1,
    event_log: Path | None = None,
    rail: str | None = None,
) -> Iterator[Context]:
    """The device of a host, by its name; it closes with everything that was made of it.

    A host has a device on each rail: `rail` is the port's name, by default the first.

    GID 0 is its address of that IP version; GID 1 the other one, if that path MTU fits there too.
    `path_mtu` is in bytes, by default what the fabric's frames hold; what its queue pairs do goes
    to `event_log`. UserError if there is no such host or rail; RunError if somebody has its port
    already.
    """
    node = next((each for each in lab.plan.plain_hosts if each.name == name), None)
    if node is None:
        raise UserError(f"the lab {lab.plan.name} has no host {name} that a soft RNIC can live in")
    number = 0 if rail is None else _rail(node, rail)
    port = node.ports[number]
    mtu = path_mtu_bytes(lab.plan.mtu, ip_version) if path_mtu is None else path_mtu
    with lab.enter(name):
        owner = PortOwner(port.name)
    with owner:
        try:
            with lab.enter(name):
                settings = config(
                    lab, node, path_mtu=mtu, ip_version=ip_version, cpu=cpu, rail=number
                )
                host = _native.Host(settings)
        except (OSError, RuntimeError) as error:
            raise RunError(f"the port {name}:{port.name}: {error}") from error
        host.start()
        try:
            next_hop = mac_number(gateway(lab, node, number).mac)
            device = node.name if number == 0 else f"{node.name}:{port.name}"
            with Context(host, name=device, next_hop_mac=next_hop, event_log=event_log) as context:
                context.statistics = settings.statistics
                other, address = (6, port.address6) if ip_version == 4 else (4, port.address)
                if mtu <= path_mtu_bytes(lab.plan.mtu, other):
                    context.add_gid(GID.of_address(int(ipaddress.ip_address(str(address)))))
                yield context
        finally:
            host.close()


def _rail(node: Node, name: str) -> int:
    """The number of a rail. UserError with the host's ports."""
    names = [port.name for port in node.ports]
    if name not in names:
        raise UserError(
            f"the host {node.name} has no rail {name}", hint=f"its ports: {', '.join(names)}"
        )
    return names.index(name)
