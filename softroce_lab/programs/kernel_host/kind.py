# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel hosts as the kind of guests that the fabric knows (fabric/guests.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.fabric.guests import GuestKind, Say
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import Ledger
from softroce_lab.fabric.observe.ping import Outcome
from softroce_lab.plan.plan import Node, Plan, Port
from softroce_lab.programs.kernel_host import console, guest, ping, start
from softroce_lab.programs.kernel_host.exec import execute
from softroce_lab.programs.kernel_host.guest import Guest
from softroce_lab.programs.kernel_host.start import Means

_COUNTERS_S = 20.0  # an emulated guest takes its time
_HW_COUNTERS = "/sys/class/infiniband/{device}/ports/1/hw_counters"


class KernelHosts:
    """Linux guests in QEMU, with the kernel's own Soft-RoCE; each method as `GuestKind` has it."""

    def prepare(self, plan: Plan, say: Say) -> Means:
        """Their images, and the accelerator that they run on."""
        return start.prepare(plan, say)

    def described(self, node: Node, means: Means) -> str:
        """The kernel, and how it runs."""
        return start.described(node, means)

    def files(self, node: str) -> Sequence[str]:
        """The console's, and the configuration's."""
        return guest.files(node)

    def start(self, ledger: Ledger, plan: Plan, node: Node, namespace: int, means: Means) -> None:
        """Start its QEMU."""
        start.start(ledger, plan, node, namespace, means)

    def reach(
        self,
        node: str,
        machine: Callable[[], ProcessIdentity],
        namespace: Callable[[], int],
        directory: Path,
    ) -> Guest:
        """By virtio-serial."""
        return Guest(node, machine, namespace, directory)

    def await_ready(self, guests: Sequence[Guest], check: Callable[[], None]) -> None:
        """Until its agent runs commands."""
        start.await_ready(guests, check)

    def execute(self, guest: Guest, argv: Sequence[str]) -> int:
        """With a terminal, if this process has one."""
        return execute(guest, argv)

    def ping(self, guest: Guest, source: Port, target: Port, **options: Any) -> Outcome:
        """By the guest's ping(8)."""
        return ping.run(guest, source, target, **options)

    def counters(
        self, guest: Guest, node: Node, ports: Collection[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """As `rdma statistic` has them."""
        devices = [device for device, port in _devices(node).items() if str(port) in ports]
        return {device: _hardware_counters(guest, device) for device in devices}

    def document(self, node: Node) -> dict[str, Any]:
        """Its kernel, memory and CPUs, and which RDMA device is at which port."""
        assert node.guest is not None  # noqa: S101 - a kernel host has one
        devices = {device: port.name for device, port in _devices(node).items()}
        return {**dataclasses.asdict(node.guest), "rdma_devices": devices}

    def line(self, document: Mapping[str, Any]) -> str:
        """The same in words."""
        devices = (f"{device} at {port}" for device, port in document["rdma_devices"].items())
        facts = [
            f"Linux {document['kernel']}",
            ", ".join(devices),
            f"{units.format_bytes(document['memory_bytes'])}, {document['cpus']} CPU",
        ]
        if document["alive"] is not None:
            dead = f"dead: lab kernel-host boot {document['node']}"
            facts.append(f"runs, process {document['pid']}" if document["alive"] else dead)
        return f"{document['node']}: {'; '.join(facts)}"

    def cause_of_death(self, directory: Path, node: str) -> str:
        """Its kernel's panic."""
        found = console.read_panic(directory / guest.console_file(node))
        return f": its kernel panicked: {found}" if found else ""


def _devices(node: Node) -> dict[str, Port]:
    """The RDMA devices, and the port that each is at."""
    return {f"rxe{rail}": port for rail, port in enumerate(node.ports)}


def _hardware_counters(guest: Guest, device: str) -> dict[str, int]:
    place = _HW_COUNTERS.format(device=device)
    lines = guest.run(["grep", "-r", "", place], _COUNTERS_S).check().text.splitlines()
    pairs = (line.rpartition("/")[2].partition(":") for line in lines)
    counts = {name: int(value) for name, _, value in pairs if value.strip().isdecimal()}
    counts.pop("lifespan", None)  # how old values may be, in ms
    return dict(sorted(counts.items()))


KIND: GuestKind = KernelHosts()
