# SPDX-License-Identifier: GPL-2.0-or-later
"""A topology's file, as `lab up` and `lab inspect graph` read it."""

from __future__ import annotations

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults.text import documents
from tests.parser_fuzz.files import file_of, must_name


def one(data: bytes) -> None:
    """Load it, and say what is wrong or what it holds."""
    path = file_of("topology.yaml", data)
    try:
        plan = topology.load(path)
    except UserError as error:
        must_name(path, error)
        return
    assert plan.nodes
    documents(plan)
