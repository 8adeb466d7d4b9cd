# SPDX-License-Identifier: GPL-2.0-or-later
"""How series look in figures for papers, and how long names are broken into lines."""

from __future__ import annotations

import textwrap

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", ":", "-.")
MARKERS = "osv^Dx+"


def wrapped(text: str, width: int, most_lines: int) -> str:
    """The text in lines of at most so many characters; what is left over becomes ` ...`."""
    found = textwrap.wrap(text, width, max_lines=most_lines, placeholder=" ...")
    return "\n".join(found)
