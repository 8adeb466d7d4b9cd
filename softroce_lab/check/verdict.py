# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of a checker: for every rule a verdict, with the packets that prove it."""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from softroce_lab.check.evidence import Evidence

MOST_EXHIBITS = 10


class Outcome(enum.StrEnum):
    """Of a rule, in one capture."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    # the rule applies, but the capture cannot decide it (`note` has the reason)
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"  # the capture has nothing that the rule is about


Check = TypeVar("Check", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must hold, by a name that stays, and the function that checks it."""

    name: str  # "rc.nak-once-per-gap": what is before the point is the checker
    states: str  # one line, for people
    clause: str  # of the specification, or the section of this project's documents, that demands it
    check: Callable[..., None]  # as its suite calls it; may be that of several rules
    is_proven: bool = False  # the packets that are there prove violations, whatever was missed
    of_one_life: bool = False  # counts over the life of a queue pair
    by_time: bool = False  # compares the times of packets

    @property
    def checker(self) -> str:
        return self.name.partition(".")[0]

    @property
    def short(self) -> str:
        return self.name.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """Packets that prove a violation, by their frame numbers, as Wireshark counts."""

    packets: tuple[int, ...]
    text: str  # what they prove, one line


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule holds in a capture."""

    checker: str
    rule: str
    outcome: Outcome
    checked: int  # occasions that were decided, violations among them
    failures: int
    exhibits: tuple[Exhibit, ...]  # of the first violations
    note: str  # what the capture does not show, and the assumption made
    clause: str


class Rules(list[Rule]):
    """The rules of a module, in the order of their checks, each declared at its check."""

    def rule(self, name: str, states: str, clause: str, **proof: bool) -> Callable[[Check], Check]:
        """Decorates the check of a rule; `proof`: flags of `Rule`.

        The check of several rules has as many decorators.
        """

        def declare(check: Check) -> Check:
            # The last decorator is applied first.
            at = next((n for n, rule in enumerate(self) if rule.check is check), len(self))
            self.insert(at, Rule(name, states, clause, check, **proof))
            return check

        return declare


Checker: TypeAlias = Callable[["Evidence"], Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Suite:
    """A checker with its rules; `of`: the captures that it applies to (`--format`)."""

    rules: Sequence[Rule]
    check: Checker
    of: str = "roce"  # or "lab": the lab's own transports

    @classmethod
    def of_evidence(cls, rules: Sequence[Rule]) -> Suite:
        """Of rules whose checks are called with the evidence and the rules' tallies."""
        return cls(rules, functools.partial(verdicts, rules))


class Tally:
    """Counts the occasions of one rule, and keeps the first exhibits."""

    __slots__ = ("_proven", "checked", "exhibits", "failures", "inconclusive", "notes", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.checked = 0
        self.failures = 0
        self.exhibits: list[Exhibit] = []
        self.inconclusive: collections.Counter[str] = collections.Counter()
        self.notes: dict[str, None] = {}  # a set that keeps its order
        self._proven: Tally | None = None

    @property
    def proven(self) -> Tally:
        """For violations of the rule that are proven, whatever the capture missed."""
        if self._proven is None:
            self._proven = Tally(self.rule)
        return self._proven

    def passed(self, occasions: int = 1) -> None:
        """So many occasions on which the rule was kept."""
        self.checked += occasions

    def failed(self, packets: Sequence[int], text: str, occasions: int = 1) -> None:
        """An occasion on which it was not: frame numbers, and what they prove."""
        self.checked += occasions
        self.failures += occasions
        if len(self.exhibits) < MOST_EXHIBITS:
            self.exhibits.append(Exhibit(tuple(int(each) for each in packets), text))

    def doubts(self, reason: str, occasions: int = 1) -> None:
        """Occasions that the capture does not decide, and why."""
        if occasions:
            self.inconclusive[reason] += occasions

    def notes_that(self, text: str) -> None:
        """A remark on the verdict, reported once."""
        self.notes[text] = None

    def add(self, other: Tally, doubt: str | None = None) -> None:
        """Another tally of the rule; with a doubt, its violations are inconclusive for that
        reason.
        """
        self.checked += other.checked - (other.failures if doubt else 0)
        self.inconclusive.update(other.inconclusive)
        self.notes.update(other.notes)
        if doubt and other.failures:
            self.doubts(doubt, other.failures)
            return
        self.failures += other.failures
        self.exhibits += other.exhibits[: MOST_EXHIBITS - len(self.exhibits)]

    @property
    def outcome(self) -> Outcome:
        """By what was counted: one violation outweighs all else, and doubts weigh least."""
        if self.failures:
            return Outcome.FAIL
        if self.checked:
            return Outcome.PASS
        return Outcome.INCONCLUSIVE if self.inconclusive else Outcome.NOT_APPLICABLE

    def verdict(self) -> Verdict:
        doubts = (f"{count} inconclusive: {reason}" for reason, count in self.inconclusive.items())
        return Verdict(
            checker=self.rule.checker,
            rule=self.rule.name,
            outcome=self.outcome,
            checked=self.checked,
            failures=self.failures,
            exhibits=tuple(self.exhibits),
            note="; ".join((*self.notes, *doubts)),
            clause=self.rule.clause,
        )


def verdicts(rules: Sequence[Rule], subject: object) -> list[Verdict]:
    """Of rules whose checks are called with `subject` and a tally for each rule they decide."""
    tallies = [Tally(rule) for rule in rules]
    for check in dict.fromkeys(rule.check for rule in rules):
        check(subject, *(tally for tally in tallies if tally.rule.check is check))
    return [tally.verdict() for tally in tallies]


def tallies(rules: Iterable[Rule]) -> dict[str, Tally]:
    """An empty tally for each rule, by what is behind the point of its name."""
    return {rule.short: Tally(rule) for rule in rules}
