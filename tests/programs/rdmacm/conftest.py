# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from tests.programs.rdmacm.cm_rig import Wire


@pytest.fixture
def wire():
    return Wire()
