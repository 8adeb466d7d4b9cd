# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs and plans as the documents that `--json` prints."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from softroce_lab import units
from softroce_lab.errors import LabError
from softroce_lab.fabric import runtime
from softroce_lab.fabric.ledger import planfile, process
from softroce_lab.fabric.ledger.ledger import History
from softroce_lab.fabric.observe import damage
from softroce_lab.fabric.runtime import Condition
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.kernel_host.guest import ROLE_PREFIX as GUEST_ROLE
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan, Port

SCHEMA_VERSION = 1


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan's nodes and links, by the names a user knows."""
    return {
        "name": plan.name,
        "digest": plan.digest,
        "mtu_bytes": plan.mtu,
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "namespace": node.namespace,
                "address": node.address,
                "guest": node.guest and dataclasses.asdict(node.guest),
                "ports": [port.name for port in node.ports],
                "addresses": {
                    port.name: [port.address, port.address6] for port in node.ports if port.address
                },
            }
            for node in plan.nodes
        ],
        "links": [[_end(link.a), _end(link.b)] for link in plan.links],
        "faults": fault_documents(plan),
    }


def _end(port: Port) -> str:
    return f"{port.node}:{port.name}"


def lab_document(condition: Condition) -> dict[str, Any]:
    """How a lab is, and what it consists of as far as that is known."""
    history = condition.history
    document: dict[str, Any] = {
        "name": condition.name,
        "state": condition.word,
        "busy": condition.busy,
        "remains": condition.remains,
        "begun_ns": history.header.get("begun_ns"),
        "owner_pid": history.owner.pid if history.header and history.owner else None,
        "xdp": history.state_facts.get("xdp"),
        "lacks": list(history.state_facts.get("lacks", ())),
        "processes": _processes(history),
        "damage": [],
        "problem": condition.unreadable.what if condition.unreadable else None,
        "plan": None,
    }
    if condition.unreadable is not None:
        return document
    plan = None
    with contextlib.suppress(FileNotFoundError, LabError):  # not written yet, or not whole
        plan = planfile.read(runtime.DIRECTORY / condition.name)
        document["plan"] = plan_document(plan)
    if condition.word == "up":
        names = {} if plan is None else locate.arrows(plan)
        found = damage.of_lab(condition.name, history, plan)
        document["damage"] = [each.document(names) for each in found]
    return document


def guests_document(history: History) -> list[dict[str, Any]]:
    """The kernel hosts, as processes."""
    return [
        {"node": each["role"].removeprefix(GUEST_ROLE), **{k: each[k] for k in ("pid", "alive")}}
        for each in _processes(history)
        if each["role"].startswith(GUEST_ROLE)
    ]


def kernel_hosts(plan: Plan, condition: Condition | None) -> list[dict[str, Any]]:
    """The kernel hosts of a plan: machines, RDMA devices, and processes if the lab is up."""
    running = {} if condition is None else _by_node(guests_document(condition.history))
    unknown = {"pid": None, "alive": None}
    return [
        {
            "node": node.name,
            **dataclasses.asdict(node.guest),
            "rdma_devices": {f"rxe{n}": port.name for n, port in enumerate(node.ports)},
            **running.get(node.name, unknown),
        }
        for node in plan.kernel_hosts
        if node.guest is not None
    ]


def _by_node(guests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["node"]: each for each in guests}


def kernel_host_line(host: dict[str, Any]) -> str:
    """One of them in words."""
    devices = ", ".join(f"{device} at {port}" for device, port in host["rdma_devices"].items())
    facts = [
        f"Linux {host['kernel']}",
        devices,
        f"{units.format_bytes(host['memory_bytes'])}, {host['cpus']} CPU",
    ]
    if host["alive"] is not None:
        dead = f"dead: lab kernel-host boot {host['node']}"
        facts.append(f"runs, process {host['pid']}" if host["alive"] else dead)
    return f"{host['node']}: {'; '.join(facts)}"


def _processes(history: History) -> list[dict[str, Any]]:
    known = [(entry, process.recorded(entry)) for entry in history.of_kind("process")]
    return [
        {"role": entry.facts["role"], "pid": identity.pid, "alive": identity.is_alive()}
        for entry, identity in known
        if identity is not None
    ]
