# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare`: runs or sweeps side by side, with intervals and verdicts.

A figure of one transport, cell and seed in both directories is a pair; its difference is the
logarithm of the ratio. The interval of the median ratio is that of `statistics.median_interval`.
Better or worse is claimed by a sign test on the pairs, corrected for all claims of the comparison
together (`sign_tests`), so that in at most 5 % of comparisons any claim is wrong. It assumes that
seeds are independent, and nothing else. Runs that failed have no figures. Whether runs pass is a
claim of its own: the pairs that differ are the seeds that passed in one directory alone (McNemar's
exact test).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.experiment import figure_table
from softroce_lab.experiment.figure_table import claimed
from softroce_lab.experiment.gates.expect import is_faithful
from softroce_lab.experiment.hosts.program_words import UNSEEN
from softroce_lab.inputs import choices
from softroce_lab.inputs.validation import listed
from softroce_lab.results import sign_tests, sweeps
from softroce_lab.results.recorded import Recorded, programs_of
from softroce_lab.statistics import ALPHA, Interval, median_interval

Verdict: TypeAlias = Literal["better", "worse", "no difference shown"]

Key: TypeAlias = tuple[str, str]  # cell and transport


@dataclasses.dataclass(frozen=True, slots=True)
class RunFigures:
    """Of a run that passed."""

    values: Mapping[
        str, float
    ]  # by the keys of `FIGURES`; for each class of sizes `slowdown_p99` and its name
    faithful: bool = True


Seeds: TypeAlias = Mapping[int, RunFigures | None]
"""None: the run failed."""
Values: TypeAlias = Mapping[Key, Seeds]


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A figure in both."""

    cell: str
    transport: str
    figure: str
    first: float  # medians of the paired seeds
    second: float
    ratio: Interval  # of the pairs, second over first; infinite where only the first is 0
    pairs: int
    differences: Mapping[int, float]  # by seed, above 0 where the second is larger
    unfaithful: Sequence[int]  # seeds of which a run was not faithful
    p: float = 1.0  # of the sign test, corrected for all lines
    verdict: Verdict = "no difference shown"

    def document(self) -> dict[str, Any]:
        """For JSON, which has no infinity: None for a bound of the ratio that has no end."""
        found = dataclasses.asdict(self)
        del found["differences"]
        ratio = found["ratio"]
        found["ratio"] = {key: each if math.isfinite(each) else None for key, each in ratio.items()}
        return found

    def shown(self, value: float) -> str:
        """A value of the figure, for people."""
        return figure_table.figure_of(self.figure).unit.exact(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Passed:
    """How the runs of one cell and transport ended, of the seeds that both directories have."""

    cell: str
    transport: str
    first_only: Sequence[int]  # seeds that passed there alone
    second_only: Sequence[int]
    neither: Sequence[int]
    missing: Sequence[int]  # seeds that one directory lacks
    in_both: int = 0  # seeds that passed in both
    p: float = 1.0  # of the sign test, corrected for all claims
    verdict: Verdict = "no difference shown"

    @property
    def differences(self) -> dict[int, float]:
        """By seed, above 0 where only the second passed."""
        return dict.fromkeys(self.first_only, -1.0) | dict.fromkeys(self.second_only, 1.0)

    def judged(self, p: float) -> Passed:
        """With its verdict; no test is needed if one passed every seed and the other none."""
        more = len(self.second_only) - len(self.first_only)
        split_cleanly = not (self.in_both or self.neither or (self.first_only and self.second_only))
        if more == 0 or (p > ALPHA and not split_cleanly):
            return dataclasses.replace(self, p=p)
        return dataclasses.replace(self, p=p, verdict="better" if more > 0 else "worse")

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two directories."""

    lines: Sequence[Line]
    passed: Sequence[Passed]  # by cell and transport

    @property
    def worse(self) -> bool:
        """Whether anything is: a figure, or more runs that failed."""
        verdicts = [each.verdict for each in self.lines] + [each.verdict for each in self.passed]
        return "worse" in verdicts


def values(recorded: Recorded, only: Sequence[str] = ()) -> Values:
    """The figures of the runs, of `only` those with these `KEY=VALUE`. UserError without any."""
    axes = sweeps.axes(recorded) if recorded.is_sweep else []
    rows = sweeps.rows(recorded) if recorded.is_sweep else recorded.runs
    rows = choices.only(rows, only, _facet)
    found: dict[Key, dict[int, RunFigures | None]] = {}
    for row in rows:
        key = sweeps.cell_of(row, axes), row["transport"]
        figures = {name: row[name] for name in claimed([row]) if row.get(name) is not None}
        for of_size in row.get("slowdown") or ():
            if of_size["n"]:
                figures[f"slowdown_p99{of_size['size_class']}"] = of_size["p99"]
        of_key = found.setdefault(key, {})
        passed = row["verdict"] == "passed"
        of_key[row["seed"]] = RunFigures(figures, is_faithful(row)) if passed else None
    return found


def _facet(row: Mapping[str, Any], key: str) -> str:
    return str(row.get(key, ""))


def compared(first: Recorded, second: Recorded) -> Comparison:
    """All figures that both have, and which runs passed.

    UserError if they have no run in common, or in neither one passed. Directories with one
    transport each are compared whatever it is called.
    """
    one, other = values(first), values(second)
    pairs = [(key, key) for key in one if key in other]
    if not pairs:
        pairs = list(_of_one_transport(one, other))
    if not any({*one[ours]} & {*other[theirs]} for ours, theirs in pairs):
        hint = "the same transport and seed in both, or one transport in each"
        raise UserError(f"{first.path} and {second.path} have no run in common", hint=hint)
    found = _of_pairs(one, other, pairs)
    if not found.lines and not any((*e.first_only, *e.second_only) for e in found.passed):
        programs = any(map(programs_of, first.runs)) if not first.is_sweep else False
        hint = f"{UNSEEN}: lab results show has what they printed" if programs else ""
        what = f"{first.path} and {second.path} have no figure in common that can be compared"
        if any(each.neither for each in found.passed):
            what, hint = (
                f"no run passed in {first.path} and {second.path}",
                "lab results show has why",
            )
        raise UserError(what, hint=hint or None)
    return found


def with_baseline(recorded: Recorded, baseline: str) -> Mapping[str, Comparison]:
    """Of one directory each other transport compared with this one, by its label.

    UserError if the directory lacks the baseline, or has no other transport.
    """
    all_values = values(recorded)
    labels = list(dict.fromkeys(transport for _, transport in all_values))
    others = [each for each in labels if each != baseline]
    if baseline not in labels:
        what = f"{recorded.path} has no transport {baseline!r}"
        raise UserError(what, hint=f"it has {', '.join(labels)}" if labels else None)
    if not others:
        hint = "name a second directory to compare with"
        raise UserError(f"{recorded.path} has no other transport than {baseline}", hint=hint)
    cells = [cell for cell, transport in all_values if transport == baseline]
    return {
        each: _of_pairs(
            all_values,
            all_values,
            [((cell, baseline), (cell, each)) for cell in cells if (cell, each) in all_values],
        )
        for each in others
    }


def _of_pairs(one: Values, other: Values, pairs: Sequence[tuple[Key, Key]]) -> Comparison:
    """Each key of the first with its key of the second."""
    passed: list[Passed] = []
    found: list[Line] = []
    for ours, theirs in pairs:
        cell, name = ours[0], ", ".join(dict.fromkeys((ours[1], theirs[1])))
        passed.append(_passed(cell, name, one[ours], other[theirs]))
        found += _lines(cell, name, one[ours], other[theirs])
    claims = [line.differences for line in found] + [each.differences for each in passed]
    adjusted = sign_tests.adjusted(claims)
    lines = [
        dataclasses.replace(line, p=p, verdict=_verdict(line, p))
        for line, p in zip(found, adjusted[: len(found)], strict=True)
    ]
    ends = zip(passed, adjusted[len(found) :], strict=True)
    return Comparison(lines, [each.judged(p) for each, p in ends])


def _of_one_transport(one: Values, other: Values) -> Iterator[tuple[Key, Key]]:
    if len({key[1] for key in one}) == len({key[1] for key in other}) == 1:
        theirs = {key[0]: key for key in other}
        yield from ((key, theirs[key[0]]) for key in one if key[0] in theirs)


def _passed(cell: str, transport: str, one: Seeds, other: Seeds) -> Passed:
    ends: dict[tuple[bool, bool], list[int]] = {}
    for seed in one:
        if seed in other:
            passed = one[seed] is not None, other[seed] is not None
            ends.setdefault(passed, []).append(seed)
    return Passed(
        cell,
        transport,
        first_only=ends.get((True, False), []),
        second_only=ends.get((False, True), []),
        neither=ends.get((False, False), []),
        missing=sorted({*one} ^ {*other}),
        in_both=len(ends.get((True, True), [])),
    )


def _lines(cell: str, transport: str, one: Seeds, other: Seeds) -> Iterator[Line]:
    pairs = {
        seed: (before, after)
        for seed, before in one.items()
        if before is not None and (after := other.get(seed)) is not None
    }
    rows = [each.values for pair in pairs.values() for each in pair]
    for figure in claimed(rows):
        found = {
            seed: (before.values[figure], after.values[figure])
            for seed, (before, after) in pairs.items()
            if figure in before.values and figure in after.values
        }
        if not found:
            continue
        logs = {seed: _log_ratio(*pair) for seed, pair in found.items()}
        first, second = (median_interval(each).median for each in zip(*found.values(), strict=True))
        unfaithful = [seed for seed in found if not all(each.faithful for each in pairs[seed])]
        yield Line(cell, transport, figure, first, second, _ratio([*logs.values()]), len(found),
                   logs, unfaithful)  # fmt: skip


def _log_ratio(before: float, after: float) -> float:
    """Infinite if one of them is 0; 0 if both are."""
    if before == after:
        return 0.0
    if not before or not after:
        return math.inf if after > before else -math.inf
    return math.log(after / before)


def _ratio(logs: Sequence[float]) -> Interval:
    found = median_interval(logs)
    median = 0.0 if math.isnan(found.median) else found.median  # of -inf and inf: a ratio of 1
    return Interval(*(math.exp(each) for each in (median, found.low, found.high)))


def _verdict(line: Line, p: float) -> Verdict:
    above = sum((each > 0) - (each < 0) for each in line.differences.values())
    if p > ALPHA or above == 0:
        return "no difference shown"
    wants_more = figure_table.figure_of(line.figure).better == "more"
    return "better" if (above > 0) == wants_more else "worse"


# --- Whether they can be compared ----------------------------------------------------------------

_MAY_DIFFER = ("name", "transports", "seeds", "expect", "deadline", "payload")
"""Keys of an experiment that may differ: they change no figure, or are what is compared."""


def notes(first: Recorded, second: Recorded) -> Iterator[str]:
    """A warning if the experiments differ, with the keys, or if these are two different sweeps."""
    names = [str(each.manifest.get("name")) for each in (first, second)]
    keys = [] if first.is_sweep else list(_differing(_described(first), _described(second)))
    if keys:
        who = " and ".join(dict.fromkeys(names))
        yield f"the experiments differ, {who}: in {listed(keys)}"
    elif names[0] != names[1] and first.is_sweep:
        yield f"these are different sweeps: {names[0]} and {names[1]}"


def _described(recorded: Recorded) -> dict[str, Any]:
    """The experiment, with the fabric that was made for it."""
    about = dict(recorded.manifest.get("experiment") or {})
    for key in _MAY_DIFFER:
        about.pop(key, None)
    faults = recorded.manifest.get("faults") or []
    of_links = [each for each in faults if each["rule"].startswith("link:")]
    about["topology"] = recorded.manifest.get("topology"), recorded.manifest.get("hosts"), of_links
    about["faults"] = [each for each in faults if each not in of_links]
    return about


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Keys with dots."""
    for key in dict.fromkeys((*one, *other)):
        ours, theirs = one.get(key), other.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            if ours.get("kind") == theirs.get("kind"):
                yield from _differing(ours, theirs, f"{above}{key}.")
            else:
                yield f"{above}{key}"
        elif ours != theirs:
            yield f"{above}{key}"
