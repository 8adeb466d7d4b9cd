# SPDX-License-Identifier: GPL-2.0-or-later
import dataclasses

import pytest

from softroce_lab import topology
from softroce_lab.fabric import planfile
from softroce_lab.topology.plan import LossRule


@pytest.mark.parametrize("name", ["leaf-spine", "two-hosts", "parallel-paths"])
def test_a_plan_comes_back_as_it_was(tmp_path, name):
    rule = LossRule("grey", 0, 3, "identity", 1e-9, 2**64 - 1, 2**64 - 2)
    plan = dataclasses.replace(topology.load(name), faults=(rule,))
    planfile.write(plan, tmp_path)
    assert planfile.read(tmp_path) == plan
