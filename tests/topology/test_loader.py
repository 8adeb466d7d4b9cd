# SPDX-License-Identifier: GPL-2.0-or-later
"""Loading by path and by name."""

from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError


def test_a_mistake_is_pointed_at_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: x\ntopology:\n  generator: {kind: leaf-spine}\n")
    with pytest.raises(UserError) as caught:
        topology.load(file)
    assert str(caught.value) == f"{file}:3:14: key 'leaves' is missing"
