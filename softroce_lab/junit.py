# SPDX-License-Identifier: GPL-2.0-or-later
"""JUnit XML, for CI: the elements that Jenkins, GitLab and GitHub's reporters read.

Test cases have no `time`, which is optional.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from softroce_lab.errors import UserError

Kind: TypeAlias = Literal["failure", "skipped", "error"]

# Characters that XML 1.0 cannot express (2.2, Characters).
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A test case. `kind` None: it passed."""

    classname: str
    name: str
    kind: Kind | None = None
    message: str = ""
    type: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Suite:
    """A test suite."""

    name: str
    cases: Sequence[Case]


def write(path: Path, name: str, suites: Sequence[Suite]) -> None:
    """Write the document. UserError if that is not possible."""
    root = ET.Element("testsuites", name=name)
    for suite in suites:
        _add_suite(root, suite)
    ET.indent(root)
    root.tail = "\n"
    try:
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _add_suite(root: ET.Element, suite: Suite) -> None:
    kinds = [case.kind for case in suite.cases]
    element = ET.SubElement(
        root,
        "testsuite",
        name=_text(suite.name),
        tests=str(len(kinds)),
        failures=str(kinds.count("failure")),
        skipped=str(kinds.count("skipped")),
        errors=str(kinds.count("error")),
    )
    for case in suite.cases:
        _add_case(element, case)


def _add_case(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", classname=case.classname, name=case.name)
    if case.kind is None:
        return
    outcome = ET.SubElement(element, case.kind, message=_text(case.message))
    if case.type:
        outcome.set("type", case.type)
    if case.text:
        outcome.text = _text(case.text)


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
