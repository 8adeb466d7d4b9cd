# SPDX-License-Identifier: GPL-2.0-or-later
"""The checker of operations, over one view of the capture."""

from __future__ import annotations

from softroce_lab.check.operations import requests, results
from softroce_lab.check.operations.connections import operations
from softroce_lab.check.verdict import Suite, verdicts

_RULES = (*requests.RULES, *results.RULES)
SUITE = Suite(_RULES, check=lambda evidence: verdicts(_RULES, operations(evidence)), of="lab")
