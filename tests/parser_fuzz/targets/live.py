# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of `lab fault set` and `lab fault clear`: a link, then faults."""

from __future__ import annotations

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import lines, live, resolve

_PLAN = topology.load("leaf-spine")


def one(data: bytes) -> None:
    """Set them, and clear them again; both may be refused."""
    link, *words = data.decode("utf-8", "surrogateescape").split("\n")[0].split(" ") or [""]
    try:
        directed = resolve.links_of(_PLAN, link)
        plan = live.set_on(_PLAN, directed, live.parse_impairments(words))
    except UserError as error:
        str(error)
        return
    lines.texts(plan.faults)
    assert not live.clear_on(plan, directed).faults
    try:
        live.clear_on(plan, directed, live.parse_cleared(words))
    except UserError as error:
        str(error)
