# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs and plans as the documents that `--json` prints."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from softroce_lab.errors import LabError
from softroce_lab.fabric import guests, runtime
from softroce_lab.fabric.ledger import planfile, process
from softroce_lab.fabric.ledger.ledger import History
from softroce_lab.fabric.observe import damage
from softroce_lab.fabric.runtime import Condition
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan, Port

SCHEMA_VERSION = 1


def plan_document(plan: Plan) -> dict[str, Any]:
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
    prefix = guests.ROLE_PREFIX
    return [
        {"node": each["role"].removeprefix(prefix), "pid": each["pid"], "alive": each["alive"]}
        for each in _processes(history)
        if each["role"].startswith(prefix)
    ]


def kernel_hosts(plan: Plan, condition: Condition | None) -> list[dict[str, Any]]:
    """The guests of a plan: machines, RDMA devices, and processes if the lab is up."""
    known = [] if condition is None else guests_document(condition.history)
    running = {each["node"]: each for each in known}
    unknown = {"pid": None, "alive": None}
    return [
        {
            "node": node.name,
            **guests.kind(node.kind).document(node),
            **running.get(node.name, unknown),
        }
        for node in plan.guests
    ]


def kernel_host_line(kind: str, host: dict[str, Any]) -> str:
    return guests.kind(kind).line(host)


def _processes(history: History) -> list[dict[str, Any]]:
    known = [(entry, process.recorded(entry)) for entry in history.of_kind("process")]
    return [
        {"role": entry.facts["role"], "pid": identity.pid, "alive": identity.is_alive()}
        for entry, identity in known
        if identity is not None
    ]
