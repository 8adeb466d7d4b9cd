# SPDX-License-Identifier: GPL-2.0-or-later
"""help.txt, from which the launcher answers before anything is installed."""

import re
import subprocess
import sys

from softroce_lab.cli import help_text
from softroce_lab.paths import PROJECT_ROOT

MODULE = "softroce_lab.cli.help_text"


def pages(text):
    """Title -> words of that page: versions of rich draw boxes and break lines in other ways."""
    parts = re.split(r"^%% (.+)\n", text, flags=re.MULTILINE)
    words = (re.findall(r"[^\s─│╭╮╰╯]+", page) for page in parts[2::2])
    return dict(zip(parts[1::2], words, strict=True))


def test_the_kept_help_is_what_the_command_line_prints():
    printed = subprocess.run(
        [sys.executable, "-c", f"from {MODULE} import render; print(render(), end='')"],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    now, kept = pages(printed.stdout), pages(help_text.PAGES.read_text(encoding="utf-8"))
    differing = [title for title in now.keys() | kept.keys() if now.get(title) != kept.get(title)]
    assert sorted(differing) == [], f"write help.txt anew: .venv/bin/python -m {MODULE}"
