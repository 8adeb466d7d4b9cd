# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of `lab verify`, from the suites of checks."""

from __future__ import annotations

import re

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.check import suites

_PAGE = re.compile(r"docs/([\w/-]+)\.md(?:, ([^,;]+))?")


def page() -> str:
    """Every rule, by checker."""
    about = (
        "`lab verify` judges a capture by these rules. A rule passes, fails, or is inconclusive "
        "because the capture lacks packets. A rule does not apply if the capture has nothing that "
        "the rule is about. The clause names the specification or the document that demands it."
    )
    by_checker: dict[str, list[tuple[str, str, str]]] = {}
    for rule in suites.rules():
        row = (code(rule.name), prose(rule.states), _linked(rule.clause))
        by_checker.setdefault(rule.checker, []).append(row)
    head = ["rule", "what must hold", "clause"]
    sections = [
        markdown.section(checker, markdown.table(head, rows))
        for checker, rows in by_checker.items()
    ]
    return markdown.page("Rules of verify", about, *sections)


def _linked(clause: str) -> str:
    """A page of the site as a link, by the name of its section."""
    found = _PAGE.search(clause)
    if not found:
        return prose(clause)
    text = found[2] or found[1].rpartition("/")[2]
    link = f"[{prose(text)}](../{found[1]}.md)"
    before, behind = prose(clause[: found.start()]), prose(clause[found.end() :])
    return (f"{before} " if before else "") + link + behind
