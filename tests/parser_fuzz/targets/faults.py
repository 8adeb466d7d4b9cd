# SPDX-License-Identifier: GPL-2.0-or-later
"""A fault profile, armed on a topology as `lab fault apply` does."""

from __future__ import annotations

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import lines, profile, resolve
from softroce_lab.faults.text import documents
from tests.parser_fuzz.files import file_of, must_name

_PLAN = topology.load("leaf-spine")


def one(data: bytes) -> None:
    """Load and arm it, and say what is wrong or what it does."""
    path = file_of("profile.yaml", data)
    try:
        plan = resolve.arm(_PLAN, profile.load(path))
    except UserError as error:
        must_name(path, error)
        return
    documents(plan)
    lines.texts(plan.faults)
    lines.rules(plan.faults)
