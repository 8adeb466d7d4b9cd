# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of other rooms that this one's tests use."""

from tests.experiment.conftest import _root, nothing_left  # noqa: F401
