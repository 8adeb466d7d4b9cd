# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with two rails, and a connection of ShiftQPs between them."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import Rig


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.close()
