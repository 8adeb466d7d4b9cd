# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of labs that this room's tests use."""

from tests.labs import _eventually, _killed_at, _run_lab, nothing_left  # noqa: F401
