# SPDX-License-Identifier: GPL-2.0-or-later
"""Loading by path and by name."""

import re
from pathlib import Path

import pytest

from softroce_lab import paths, topology
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse
from softroce_lab.topology.model import TopologyFile
from softroce_lab.topology.resolve import resolve


def test_a_mistake_is_pointed_at_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: x\ntopology:\n  generator: {kind: leaf-spine}\n")
    with pytest.raises(UserError) as caught:
        topology.load(file)
    assert str(caught.value) == f"{file}:3:14: key 'leaves' is missing"


def test_the_examples_of_the_reference_work() -> None:
    reference = (paths.PROJECT_ROOT / "docs" / "topology.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", reference, re.DOTALL)
    plans = [resolve(validate(TopologyFile, parse(example))) for example in examples]
    assert [(plan.name, len(plan.faults)) for plan in plans] == [
        ("demo", 8),
        ("two-hosts", 2),
        ("far-apart", 28),
    ]
