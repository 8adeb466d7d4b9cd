# SPDX-License-Identifier: GPL-2.0-or-later
"""Every page with a program in Python states how to run it."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT

PROGRAM = re.compile(r"^```python\n(?:from|import) ", re.MULTILINE)
PAGES = [
    page
    for page in sorted((PROJECT_ROOT / "docs").glob("*.md"))
    if PROGRAM.search(page.read_text())
]


def test_there_are_programs():
    assert len(PAGES) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_program_has_its_interpreter_beside_it(page):
    text = page.read_text()
    before = text[: PROGRAM.search(text).start()].splitlines()[-30:]
    assert ".venv/bin/python" in "\n".join(before)
