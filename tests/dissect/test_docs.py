# SPDX-License-Identifier: GPL-2.0-or-later
"""What docs/howto/capture.md says is so."""

import re

from softroce_lab import dissect
from softroce_lab.paths import PROJECT_ROOT
from tests.dissect import readers

DOC = (PROJECT_ROOT / "docs/howto/capture.md").read_text()


def test_its_program_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    exec(compile(program, "docs/howto/capture.md", "exec"), {})  # noqa: S102 - it is ours
    assert "RETH - RDMA Extended Transport Header" in capsys.readouterr().out


def test_its_layers_are_all_there_are():
    table = DOC[DOC.index("| layer |") : DOC.index("**Names**")]
    named = set(re.findall(r"`([A-Z]\w+)`", table)) - {"Raw"}
    exported = {name for name in dissect.__all__ if name[0].isupper()}
    assert named == exported - {"NOT_CAPTURED"}


def test_its_fields_are_wireshark_s():
    known = {*readers.BODY_NAMES, *readers.TSHARK_NAMES}
    bodies = {name.rpartition(".")[0] for name in readers.BODY_NAMES}
    for name in re.findall(r"softroce\.[a-z_]+(?:\.[a-z_]+)*", DOC):
        assert name in known | bodies, name
