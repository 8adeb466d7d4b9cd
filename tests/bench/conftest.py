# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of labs that this room's tests use."""

from tests.labs import (  # noqa: F401
    _eventually,
    _killed_at,
    _run_lab,
    demo,
    foreigner,
    lab_name,
    needs_root,
    nothing_left,
    small_file,
    traces,
    two_hosts,
)
