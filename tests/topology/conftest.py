# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology

TRUNK = """
name: trunk
topology:
  defaults: {kind: switch}
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: , s2: }
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s2:p1"]
    - endpoints: ["s1:p2", "s2:p2"]
    - endpoints: ["s1:p3", "s2:p3"]
"""


@pytest.fixture
def trunk(tmp_path):
    """The plan of two hosts, and two switches with two links between them."""
    file = tmp_path / "trunk.yaml"
    file.write_text(TRUNK, "utf-8")
    return topology.load(str(file))
