# SPDX-License-Identifier: GPL-2.0-or-later
"""Which losses cost the runs their time: `lab results explain --cost` as a section."""

from __future__ import annotations

from collections.abc import Sequence

from softroce_lab.results.blame import words
from softroce_lab.results.blame.charges import Blame
from softroce_lab.results.blame.investigation import Investigation
from softroce_lab.results.page import html

NAME = "blame"


def section(found: Sequence[tuple[Investigation, Blame]]) -> str:
    """Of each run the sentences, and its largest charges as a table."""
    parts = []
    for of, each in found:
        parts.append(html.items(words.sentences(each, of)))
        if each.losses:
            caption = f"Losses of {of.known.name} by what they cost"
            parts.append(html.table(caption, words.HEAD, words.rows(each, of)))
    note = (
        "A charge is what the end of the run gains when the losses of the charges before it are "
        "undone already; all others keep their fates. So all charges add up."
    )
    return html.section(NAME, "Which losses cost the time", html.paragraph(note), *parts)
