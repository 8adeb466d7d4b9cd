# SPDX-License-Identifier: GPL-2.0-or-later
"""Verdicts as JUnit XML, for CI: a file is a test suite, a rule a test case.

The elements are those that Jenkins, GitLab and GitHub's reporters read: `failure` for a violation,
`skipped` for what could not be decided or did not occur. Test cases have no `time`, which is
optional: a checker goes over the packets once for all of its rules.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from softroce_lab.check.report import Checked
from softroce_lab.check.verdict import Outcome, Verdict
from softroce_lab.errors import UserError

# What XML 1.0 has no way to say.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_DECIDED = (Outcome.UNDECIDED, Outcome.SKIPPED)


def write(path: Path, files: Sequence[Checked], failures: Sequence[UserError] = ()) -> None:
    """Write the document. UserError if that is not possible."""
    root = ET.Element("testsuites", name="lab check")
    for each in files:
        _suite(root, each)
    for failure in failures:
        _unread(root, failure)
    ET.indent(root)
    root.tail = "\n"
    try:
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _suite(root: ET.Element, checked: Checked) -> None:
    verdicts = checked.verdicts
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(checked.name),
        tests=str(len(verdicts)),
        failures=str(sum(each.outcome is Outcome.VIOLATED for each in verdicts)),
        skipped=str(sum(each.outcome in _NOT_DECIDED for each in verdicts)),
        errors="0",
    )
    for verdict in verdicts:
        case = ET.SubElement(
            suite, "testcase", classname=f"check.{verdict.checker}", name=verdict.rule
        )
        _outcome(case, verdict)


def _unread(root: ET.Element, failure: UserError) -> None:
    """A file that cannot be read: an error, else it would look as if all were well."""
    name = _text(failure.file or "file")
    suite = ET.SubElement(
        root, "testsuite", name=name, tests="1", failures="0", skipped="0", errors="1"
    )
    case = ET.SubElement(suite, "testcase", classname="check", name="readable")
    ET.SubElement(case, "error", message=_text(str(failure)), type="unreadable")


def _outcome(case: ET.Element, verdict: Verdict) -> None:
    if verdict.outcome is Outcome.VIOLATED:
        said = f"{verdict.violations} of {verdict.checked} violate {verdict.clause}"
        failure = ET.SubElement(case, "failure", message=_text(said), type=verdict.rule)
        failure.text = _text("\n".join(_lines(verdict)))
    elif verdict.outcome in _NOT_DECIDED:
        said = verdict.note if verdict.outcome is Outcome.UNDECIDED else "no occasion"
        ET.SubElement(case, "skipped", message=_text(said))


def _lines(verdict: Verdict) -> list[str]:
    shown = [
        f"frames {', '.join(map(str, each.packets))}: {each.text}" if each.packets else each.text
        for each in verdict.exhibits
    ]
    return [*shown, verdict.note] if verdict.note else shown


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
