# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's process notices whichever of its engines stops by itself."""

import types

import pytest

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.process import HostProcess


def process(*failures):
    """One whose engines, a rail each, stopped for these reasons; "" means that it runs."""
    made = object.__new__(HostProcess)
    made.settings = types.SimpleNamespace(node="h1")
    rnics = [types.SimpleNamespace(host=types.SimpleNamespace(failure=why)) for why in failures]
    made.rnic, *made.others = rnics
    return made


@pytest.mark.parametrize("rail", range(3))
def test_an_engine_that_stopped_ends_the_run(rail):
    process("", "", "").check()
    failures = ["", "", ""]
    failures[rail] = "the port is gone"
    with pytest.raises(RunError, match="the engine of h1 stopped: the port is gone"):
        process(*failures).check()
