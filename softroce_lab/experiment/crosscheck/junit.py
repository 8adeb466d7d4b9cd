# SPDX-License-Identifier: GPL-2.0-or-later
"""A crosscheck as JUnit XML: a transport is a test suite, a quantity a test case.

`failure` is a difference, `skipped` what too few seeds could decide.
"""

from __future__ import annotations

from pathlib import Path

from softroce_lab import junit
from softroce_lab.experiment.crosscheck.comparison import About, Comparison, Outcome
from softroce_lab.junit import Case, Suite


def write(path: Path, outcome: Outcome) -> None:
    """Write the document. UserError if that is not possible."""
    suites = []
    for about in outcome.about:
        mine = [each for each in outcome.comparisons if each.transport == about.transport]
        suites.append(Suite(about.transport, [_case(about, each) for each in mine]))
    junit.write(path, "lab run --clock both", suites)


def _case(about: About, comparison: Comparison) -> Case:
    classname, name = f"crosscheck.{about.transport}", comparison.quantity.name
    found = comparison.agreement
    text = f"off by {found.median:+.2f} [{found.low:+.2f}, {found.high:+.2f}] margins"
    if found.verdict == "differs":
        return Case(classname, name, "failure", text, name, "\n".join(about.causes))
    if found.verdict == "undecided":
        return Case(classname, name, "skipped", text)
    return Case(classname, name)
