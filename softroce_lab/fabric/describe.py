# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs and plans as the documents that `--json` prints."""

from __future__ import annotations

import contextlib
from typing import Any

from softroce_lab.errors import LabError
from softroce_lab.fabric import planfile, process, runtime
from softroce_lab.fabric.ledger import History
from softroce_lab.fabric.runtime import Condition
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.topology.plan import Plan, Port

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
        "damage": _damage(condition),
        "problem": condition.unreadable.what if condition.unreadable else None,
        "plan": None,
    }
    if condition.unreadable is not None:
        return document
    with contextlib.suppress(FileNotFoundError, LabError):  # not written yet, or not whole
        document["plan"] = plan_document(planfile.read(runtime.DIRECTORY / condition.name))
    return document


_LOSSES = {  # of a lab that goes on without the process of this role
    "wire": "the wire stage is dead: shaped links lose all frames, as wire_gone",
    "monitor": "the monitor is dead: drops and captures are not recorded",
    "routes": "the control plane is dead: routes do not follow links any more",
}


def _damage(condition: Condition) -> list[str]:
    """What a lab that is up has lost."""
    if condition.word != "up":
        return []
    dead = {each["role"] for each in _processes(condition.history) if not each["alive"]}
    return [text for role, text in _LOSSES.items() if role in dead]


def _processes(history: History) -> list[dict[str, Any]]:
    known = [(entry, process.recorded(entry)) for entry in history.of_kind("process")]
    return [
        {"role": entry.facts["role"], "pid": identity.pid, "alive": identity.is_alive()}
        for entry, identity in known
        if identity is not None
    ]
