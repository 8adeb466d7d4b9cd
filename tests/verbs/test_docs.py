# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of docs/verbs.md: one runs here, of the other the names are right."""

import ast
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "verbs.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_program_without_a_lab_runs():
    exec(compile(PROGRAMS[1], "docs/verbs.md", "exec"), {})  # noqa: S102 - our own words


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_are_right(program):
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom):
            exec(ast.unparse(node), {})  # noqa: S102
