# SPDX-License-Identifier: GPL-2.0-or-later
"""Verdicts as JUnit XML: a file is a test suite, a rule a test case.

`failure` is a violation, `skipped` what could not be decided or did not occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softroce_lab import junit
from softroce_lab.check.report import Checked
from softroce_lab.check.verdict import Outcome, Verdict
from softroce_lab.errors import UserError
from softroce_lab.junit import Case, Suite


def write(path: Path, files: Sequence[Checked], failures: Sequence[UserError] = ()) -> None:
    """Write the document. UserError if that is not possible."""
    suites = [Suite(each.name, [_case(verdict) for verdict in each.verdicts]) for each in files]
    junit.write(path, "lab verify", [*suites, *map(_unread, failures)])


def _unread(failure: UserError) -> Suite:
    """A file that cannot be read: an error, or the report would look like a pass."""
    case = Case("check", "readable", "error", str(failure), "unreadable")
    return Suite(failure.file or "file", [case])


def _case(verdict: Verdict) -> Case:
    case = Case(f"check.{verdict.checker}", verdict.rule)
    if verdict.outcome is Outcome.FAIL:
        text = f"{verdict.failures} of {verdict.checked} violate {verdict.clause}"
        lines = "\n".join(_lines(verdict))
        return Case(case.classname, case.name, "failure", text, verdict.rule, lines)
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return Case(case.classname, case.name, "skipped", verdict.note)
    if verdict.outcome is Outcome.NOT_APPLICABLE:
        return Case(case.classname, case.name, "skipped", "no occasion")
    return case


def _lines(verdict: Verdict) -> list[str]:
    shown = [
        f"frames {', '.join(map(str, each.packets))}: {each.text}" if each.packets else each.text
        for each in verdict.exhibits
    ]
    return [*shown, verdict.note] if verdict.note else shown
