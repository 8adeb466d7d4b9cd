# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of labs that this room's tests use."""

from tests.labs import (  # noqa: F401
    _eventually,
    _killed_at,
    _run_lab,
    foreigner,
    lab_name,
    needs_root,
    traces,
    two_hosts,
)
