# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan's hash: equal for equal plans, whatever file or generator they came from."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from softroce_lab.topology.plan import Plan


def with_digest(plan: Plan) -> Plan:
    """Return `plan` with its digest: SHA-256 over a compact JSON text of all the rest."""
    digest = hashlib.sha256()
    head = (plan.name, plan.seed, plan.mtu, plan.load_balancing)
    tables = (
        (head,),
        (dataclasses.astuple(node) for node in plan.nodes),
        (dataclasses.astuple(link) for link in plan.links),
        ((r.node, r.destination, [port.ifindex for port in r.ports]) for r in plan.routes),
        (dataclasses.astuple(rule) for rule in plan.faults),
    )
    for table in tables:
        for row in table:
            digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        digest.update(b"\n")
    return dataclasses.replace(plan, digest=digest.hexdigest())
