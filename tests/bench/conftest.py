# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of other rooms that this one's tests use."""

from tests.experiment.conftest import demo, nothing_left, small_file  # noqa: F401
from tests.fabric.conftest import (  # noqa: F401
    _eventually,
    _killed_at,
    _root,
    _run_lab,
    foreigner,
    lab_name,
    traces,
    two_hosts,
)
