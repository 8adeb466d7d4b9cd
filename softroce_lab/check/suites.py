# SPDX-License-Identifier: GPL-2.0-or-later
"""All checkers: the list, the selection, and their run over a capture."""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from softroce_lab.check import integrity, shift, unreliable
from softroce_lab.check.evidence import Evidence, Options, Run
from softroce_lab.check.operations import suite as operations
from softroce_lab.check.rc import suite as rc
from softroce_lab.check.striped import suite as striped
from softroce_lab.check.verdict import Rule, Suite, Verdict
from softroce_lab.errors import UserError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packets import Has

SUITES: tuple[Suite, ...] = (
    integrity.SUITE,
    rc.SUITE,
    unreliable.UC,
    unreliable.UD,
    shift.SUITE,
    striped.SUITE,
    operations.SUITE,
)


class Format(enum.StrEnum):
    """Whose traffic it is."""

    AUTO = "auto"  # the lab's rules if there are packets with its header
    LAB = "lab"
    ROCE = "roce"  # of any implementation: the rules of IBA only


def rules() -> list[Rule]:
    return sorted((rule for suite in SUITES for rule in suite.rules), key=lambda rule: rule.name)


def chosen(only: Sequence[str]) -> frozenset[str]:
    """Names of the selected rules: by name, checker, or pattern; all, if none is selected.

    UserError for a word that means no rule.
    """
    names = [rule.name for rule in rules()]
    found: set[str] = set()
    for word in only:
        matching = fnmatch.filter(names, word) or fnmatch.filter(names, f"{word}.*")
        if not matching:
            raise UserError(f"there is no rule {word!r}", hint="lab verify --list names them")
        found |= set(matching)
    return frozenset(found or names)


def captures_of(path: Path) -> list[Path]:
    """A capture itself, or those in a run directory. UserError if there is none in it."""
    if not path.is_dir():
        return [path]
    run = Run(path)
    found = run.captures()
    if not found and not run.missing_captures():
        raise UserError("no capture in it", file=str(path), hint="run it with --capture")
    return found


def missing_captures_of(path: Path) -> list[Path]:
    """Captures that a run directory names in its manifest and that are gone."""
    return Run(path).missing_captures() if path.is_dir() else []


def evidence_of(path: Path, options: Options) -> Evidence:
    """A capture, and the run directory that it is of, if it lies in one. UserError."""
    run = None
    if (path.parent / "manifest.json").is_file():
        beside = Run(path.parent, path.name)
        run = beside if path in beside.captures() else None
    return Evidence(capture_file.read(path), run, options)


def check(evidence: Evidence, wanted: frozenset[str], of: Format) -> list[Verdict]:
    """Verdicts of the selected rules that apply to such a capture, by checker."""
    verdicts = list(_verdicts(evidence, wanted, of))
    checkers = list(dict.fromkeys(each.checker for each in verdicts))
    return sorted(verdicts, key=lambda verdict: checkers.index(verdict.checker))


def _verdicts(evidence: Evidence, wanted: frozenset[str], of: Format) -> Iterator[Verdict]:
    is_lab = of is Format.LAB or (of is Format.AUTO and _has_lab_packets(evidence))
    for suite in SUITES:
        if suite.of == "lab" and not is_lab:
            continue
        if any(rule.name in wanted for rule in suite.rules):
            yield from (each for each in suite.check(evidence) if each.rule in wanted)


def _has_lab_packets(evidence: Evidence) -> bool:
    return bool(np.any(evidence.packets["has"] & Has.LAB))
