# SPDX-License-Identifier: GPL-2.0-or-later
"""A crosscheck as JUnit XML: a transport is a test suite, a quantity a test case.

`failure` is a difference, `skipped` what too few seeds could decide.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from softroce_lab.crosscheck.comparison import About, Comparison, Outcome
from softroce_lab.errors import UserError


def write(path: Path, outcome: Outcome) -> None:
    """Write the document. UserError if that is not possible."""
    root = ET.Element("testsuites", name="lab crosscheck")
    for about in outcome.about:
        mine = [each for each in outcome.comparisons if each.transport == about.transport]
        _suite(root, about, mine)
    ET.indent(root)
    try:
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _suite(root: ET.Element, about: About, comparisons: list[Comparison]) -> None:
    verdicts = [each.agreement.verdict for each in comparisons]
    suite = ET.SubElement(
        root,
        "testsuite",
        name=about.transport,
        tests=str(len(verdicts)),
        failures=str(verdicts.count("differs")),
        skipped=str(verdicts.count("undecided")),
        errors="0",
    )
    for each in comparisons:
        name = each.quantity.name
        case = ET.SubElement(
            suite, "testcase", classname=f"crosscheck.{about.transport}", name=name
        )
        found = each.agreement
        said = f"off by {found.median:+.2f} [{found.low:+.2f}, {found.high:+.2f}] margins"
        if found.verdict == "differs":
            failure = ET.SubElement(case, "failure", message=said, type=name)
            failure.text = "\n".join(about.causes)
        elif found.verdict == "undecided":
            ET.SubElement(case, "skipped", message=said)
