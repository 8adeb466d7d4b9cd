# SPDX-License-Identifier: GPL-2.0-or-later
"""Verdicts for people (a table, and what proves each violation), as JSON and as JUnit XML."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import junit
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.striped.suite import figures
from softroce_lab.check.verdict import Exhibit, Outcome, Verdict
from softroce_lab.errors import UserError
from softroce_lab.junit import Case, Suite
from softroce_lab.units import format_count

_MOST_EXHIBITS = 3  # of a rule, in text; JSON has all that were kept
_MOST_OTHERS = 4  # frames that an exhibit names besides the one that it shows


@dataclasses.dataclass(frozen=True)
class Checked:
    name: str
    evidence: Evidence
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> bool:
        return any(each.outcome is Outcome.FAIL for each in self.verdicts)


def lines(checked: Checked, show: int) -> Iterator[str]:
    """The report of a file; `show` packets are shown with all of their fields."""
    packets = len(checked.evidence.packets)
    interfaces = len(checked.evidence.capture.interfaces)
    sizes = f"{format_count(packets, 'packet')}, {format_count(interfaces, 'interface')}"
    yield f"{checked.name}: {sizes}"
    decided = [each for each in checked.verdicts if each.outcome is not Outcome.NOT_APPLICABLE]
    wide = max((len(each.rule) for each in decided), default=0)
    for verdict in decided:
        yield f"  {_outcome(verdict.outcome)}  {verdict.rule:{wide}}  {_amount(verdict)}".rstrip()
        if verdict.note:
            yield f"                {verdict.note}"
        for exhibit in verdict.exhibits[:_MOST_EXHIBITS]:
            yield from _exhibit(checked.evidence, exhibit)
        if verdict.failures > _MOST_EXHIBITS < len(verdict.exhibits):
            yield "                ... (--json has more of them)"
    yield f"  {_sum(checked.verdicts)}"
    yield from _shown(checked, show)


def _outcome(outcome: Outcome) -> str:
    word = outcome.value.upper() if outcome is Outcome.FAIL else outcome.value
    return f"{word:12}"


def _amount(verdict: Verdict) -> str:
    if verdict.failures:
        return f"{verdict.failures:,} of {verdict.checked:,}"
    return f"{verdict.checked:,}" if verdict.checked else ""


def _sum(verdicts: Sequence[Verdict]) -> str:
    counts = collections.Counter(each.outcome for each in verdicts)
    counted = (
        (Outcome.PASS, "pass"),
        (Outcome.FAIL, "fail"),
        (Outcome.INCONCLUSIVE, "inconclusive"),
        (Outcome.NOT_APPLICABLE, "not applicable"),
    )
    of = ", ".join(f"{counts[outcome]} {word}" for outcome, word in counted if counts[outcome])
    return f"{format_count(len(verdicts), 'rule')}: {of}"


def _exhibit(evidence: Evidence, exhibit: Exhibit) -> Iterator[str]:
    yield f"                {exhibit.text}"
    if exhibit.packets:
        last = exhibit.packets[-1]  # the one that shows it
        others = ", ".join(f"{each}" for each in exhibit.packets[:-1][:_MOST_OTHERS])
        of = f" (and {others})" if others else ""
        yield f"             frame {last}{of}: {summary(evidence, last)}"


def summary(evidence: Evidence, number: int) -> str:
    from softroce_lab.dissect import exhibit  # late: it imports scapy

    return exhibit.summary(evidence.capture.frame(number), _link_type(evidence, number))


def _link_type(evidence: Evidence, number: int) -> int:
    rows = evidence.packets
    row = rows[int(rows["number"].searchsorted(number))]
    return evidence.capture.interfaces[int(row["interface"])].link_type


def _shown(checked: Checked, most: int) -> Iterator[str]:
    from softroce_lab.dissect import exhibit

    numbers: dict[int, None] = {}
    for verdict in checked.verdicts:
        for each in verdict.exhibits:
            numbers.update(dict.fromkeys(each.packets))
    for number in list(numbers)[:most]:
        frame = checked.evidence.capture.frame(number)
        yield f"\nframe {number}"
        yield exhibit.show(frame, _link_type(checked.evidence, number))


def document(checked: Checked) -> Mapping[str, Any]:
    capture = checked.evidence.capture
    return {
        "file": checked.name,
        "packets": len(capture.packets),
        "interfaces": [dataclasses.asdict(each) for each in capture.interfaces],
        "notes": [dataclasses.asdict(each) for each in capture.notes],
        "verdicts": [dataclasses.asdict(each) for each in checked.verdicts],
        "recovery": figures(checked.evidence),
    }


def write_junit(path: Path, files: Sequence[Checked], failures: Sequence[UserError] = ()) -> None:
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
