# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of labs that this room's tests use."""

from tests.labs import needs_root  # noqa: F401
