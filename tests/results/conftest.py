# SPDX-License-Identifier: GPL-2.0-or-later
"""Run directories that several tests read."""

import pytest

from tests.results.made import ring


@pytest.fixture(scope="session")
def ring_run(tmp_path_factory):
    """A ring all-reduce with losses over csa_ud, irn and rc; read-only."""
    return ring(tmp_path_factory.mktemp("ring"))
