# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan's hash: equal for equal plans, whatever file or generator they came from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from softroce_lab.plan.plan import Plan


def with_digest(plan: Plan) -> Plan:
    """Return `plan` with its digest: SHA-256 over a compact JSON text of the rest.

    Routes follow from nodes and links, and are not in it.
    """
    digest = hashlib.sha256()
    head = (plan.name, plan.seed, plan.mtu, plan.load_balancing)
    tables = (
        (head,),
        plan.nodes,
        plan.links,
        plan.faults,
    )
    for table in tables:
        digest.update("".join(f"{_encode(row)}\n" for row in table).encode() + b"\n")
    return dataclasses.replace(plan, digest=digest.hexdigest())


def _values(value: Any) -> list[object]:
    """A dataclass with slots as the list of its fields; `dataclasses.astuple` copies them deep."""
    return [getattr(value, name) for name in value.__slots__]


_encode = json.JSONEncoder(separators=(",", ":"), default=_values).encode
