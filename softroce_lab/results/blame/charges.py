# SPDX-License-Identifier: GPL-2.0-or-later
"""Which losses cost a run its time, and how much each: found in few counterfactual runs.

The sum rule [D]. Losses are undone one after the other, and stay undone. A charge is what the end
of the run gains by one more of them: the difference of two runs. So the charges of all, and of the
rest together, add up to the time with all losses less the time without any.

Which ones are undone, and in which order, is found in rounds. Undoing a loss that no message of the
critical path met changes the end little, or not at all. So a round undoes together all losses that
messages of the critical path met, which leaves another critical path, on which the next round
goes on. A round's charge is cut in half, again and again, until it is that of single losses, or of
a group that cost nothing together: group testing. What the order is decides what is charged to
which of two losses that could stand for each other; the sum does not depend on it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError
from softroce_lab.results.blame import counterfactual
from softroce_lab.results.blame.counterfactual import Case, Outcome
from softroce_lab.results.blame.critical_path import NO_MESSAGE, Graph, critical_path, last_of
from softroce_lab.telemetry.drops import Drops

Rows = npt.NDArray[np.int64]
LEAST_RUNS = 4
USUAL_RUNS = 48


@dataclasses.dataclass(frozen=True, slots=True)
class Charge:
    """What undoing these losses gains, when those of the charges before are undone."""

    losses: tuple[int, ...]  # by number among the run's losses, from 0
    message: int  # that met the first of them: its row
    message_ns: int  # until it was complete; negative: it came later without the loss
    step_ns: int  # until its step was over
    end_ns: int  # until all was over that is looked at
    left_ns: int  # the time then


@dataclasses.dataclass(frozen=True, slots=True)
class Blame:
    """What losses cost a run."""

    losses: int  # of the run, by rules
    with_all_ns: int
    with_none_ns: int
    charges: Sequence[Charge]
    rest: int  # losses that were left
    rest_ns: int  # what they cost together
    runs: int  # that it took
    records: Drops  # of the losses
    whole: bool  # False: the runs ended before all charges were of single losses

    @property
    def cost_ns(self) -> int:
        """Of all losses together."""
        return self.with_all_ns - self.with_none_ns

    def document(self) -> dict[str, Any]:
        """Numbers of losses count from 1, as `--undo` takes them."""
        undone: list[int] = []
        charges = []
        for each in self.charges:
            undone += (number + 1 for number in each.losses)
            charges.append(
                dataclasses.asdict(each)
                | {"losses": [number + 1 for number in each.losses], "undone": list(undone)}
            )
        return {
            "losses": self.losses,
            "with_all_ns": self.with_all_ns,
            "with_none_ns": self.with_none_ns,
            "cost_ns": self.cost_ns,
            "charges": charges,
            "rest": self.rest,
            "rest_ns": self.rest_ns,
            "runs": self.runs,
            "whole": self.whole,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """What is asked: a run, and which of its messages have to be complete."""

    case: Case
    base: Outcome
    graph: Graph
    rows: Rows  # of the messages
    addresses: Sequence[int]  # of hosts, by index
    step_of: Rows  # of each message


class _Runs:
    """Counterfactual runs, each made once. At most so many."""

    def __init__(self, subject: Subject, executor: Executor, most: int) -> None:
        self._subject, self._executor, self._most = subject, executor, most
        self._pending: dict[frozenset[int], Future[Outcome]] = {}

    @property
    def made(self) -> int:
        """How many were begun."""
        return len(self._pending)

    @property
    def left(self) -> int:
        """How many more there may be."""
        return self._most - self.made

    def start(self, undone: Sequence[int]) -> None:
        """Begin the run without these losses."""
        key = frozenset(undone)
        if not key or key in self._pending:
            return
        fates = self._subject.base.without(key)
        job = self._executor.submit(counterfactual.carry_out, self._subject.case, fates)
        self._pending[key] = job

    def result(self, undone: Sequence[int]) -> Outcome:
        """What it came to. RunError."""
        if not undone:
            return self._subject.base
        self.start(undone)
        try:
            return self._pending[frozenset(undone)].result()
        except BrokenProcessPool as error:
            what = "a process that repeated the run has ended"
            raise RunError(what, hint="is there memory for two runs at a time?") from error


@dataclasses.dataclass(slots=True)
class _Search:
    subject: Subject
    runs: _Runs
    of_message: dict[int, int]  # loss -> row of the message on whose path it was found
    order: list[int]  # losses, as they are undone
    cuts: list[int]  # how many are undone, where the time is known; ascending
    exhausted: bool = False  # no loss is on the critical path any more

    def time_ns(self, undone: int) -> int:
        """With the first so many undone."""
        return self.runs.result(self.order[:undone]).end_ns(self.subject.rows)

    def extend(self) -> None:
        """Another round: append the losses of the critical path that is left now."""
        outcome = self.runs.result(self.order)
        found = _met(self.subject, outcome)
        fresh = {loss: row for loss, row in found.items() if loss not in self.of_message}
        if not fresh:
            self.exhausted = True
            return
        self.of_message |= fresh
        self.order += fresh
        self.cuts.append(len(self.order))

    def cut(self) -> None:
        """Cut the span with the largest charge in two."""
        if self.runs.left > 0 and (span := self.widest()) is not None:
            middle = sum(span) // 2
            self.runs.result(self.order[:middle])
            self.cuts.insert(self.cuts.index(span[1]), middle)

    def widest(self) -> tuple[int, int] | None:
        """The span whose charge is the largest of those that are not of one loss."""
        known = self.cuts if self.exhausted else self.cuts[:-1]  # the last round may be under way
        spans = [
            (abs(self.time_ns(begin) - self.time_ns(end)), begin, end)
            for begin, end in itertools.pairwise(known)
            if end - begin > 1
        ]
        cost_ns, begin, end = max(spans, default=(0, 0, 0), key=lambda span: (span[0], -span[1]))
        return (begin, end) if cost_ns else None


def blame(
    subject: Subject,
    executor: Executor,
    most_runs: int = USUAL_RUNS,
    progress: Callable[[int], None] = lambda _: None,
) -> Blame:
    """Find what losses cost. RunError if a run fails without some of them."""
    losses = counterfactual.losses(subject.base.records)
    runs = _Runs(subject, executor, most_runs)
    everything = list(range(len(losses)))
    search = _Search(subject, runs, {}, [], [0])
    runs.start(everything)
    search.extend()
    while runs.left > 0:
        before = runs.left, search.exhausted
        if not search.exhausted and runs.left > most_runs // 2:
            runs.start(search.order)  # while that runs, what is known is cut
        search.cut()
        runs.result(search.order)
        if not search.exhausted and runs.left > most_runs // 2:
            search.extend()
        progress(runs.made)
        if (runs.left, search.exhausted) == before:
            break
    with_none = runs.result(everything)
    return _charged(search, with_none, len(losses), runs)


def _met(subject: Subject, outcome: Outcome) -> dict[int, int]:
    """The losses that messages of the critical path met, in the order of time; their messages."""
    numbers = _numbers(subject.base, outcome)
    rows = counterfactual.losses(outcome.records)
    records = outcome.records[rows]
    times = records["time_ns"].astype(np.int64)
    ends = _pairs(records["src"].astype(np.uint64), records["dst"].astype(np.uint64))
    by_pair: dict[int, Rows] = {}
    path = critical_path(subject.graph, outcome.messages, last_of(outcome.messages, subject.rows))
    found: dict[int, int] = {}
    for piece in path:
        if piece.row == NO_MESSAGE:
            continue
        message = outcome.messages[piece.row]
        pair = _pair(subject, message)
        if pair not in by_pair:
            by_pair[pair] = np.flatnonzero(ends == pair)
        for each in by_pair[pair].tolist():
            if piece.begin_ns <= times[each] <= piece.end_ns:
                found.setdefault(int(numbers[rows[each]]), piece.row)
    return found


def _pairs(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One number for two addresses, whichever is the first."""
    found: npt.NDArray[np.uint64] = np.minimum(one, other) << np.uint64(32)
    return found | np.maximum(one, other)


def _pair(subject: Subject, message: np.void) -> int:
    ends = [subject.addresses[int(message[end])] for end in ("source", "destination")]
    return min(ends) << 32 | max(ends)


def _numbers(base: Outcome, outcome: Outcome) -> Rows:
    """Of each record of a run the number of the loss that it is; -1: it is none."""
    rows = counterfactual.losses(base.records)
    number_of = {key: number for number, key in enumerate(base.keys[rows].tolist())}
    return np.array([number_of.get(key, -1) for key in outcome.keys.tolist()], np.int64)


def _charged(search: _Search, with_none: Outcome, count: int, runs: _Runs) -> Blame:
    subject, charges = search.subject, []
    times = [(cut, runs.result(search.order[:cut])) for cut in search.cuts]
    for (begin, before), (end, after) in itertools.pairwise(times):
        losses = tuple(search.order[begin:end])
        row = search.of_message[losses[0]]
        step = np.flatnonzero(subject.step_of == subject.step_of[row])
        charges.append(
            Charge(
                losses,
                row,
                _gain(before, after, np.array([row])),
                _gain(before, after, step),
                _gain(before, after, subject.rows),
                after.end_ns(subject.rows),
            )
        )
    rows = counterfactual.losses(subject.base.records)
    last_ns = times[-1][1].end_ns(subject.rows)
    return Blame(
        losses=count,
        with_all_ns=subject.base.end_ns(subject.rows),
        with_none_ns=with_none.end_ns(subject.rows),
        charges=charges,
        rest=count - len(search.order),
        rest_ns=last_ns - with_none.end_ns(subject.rows),
        runs=runs.made,
        records=subject.base.records[rows],
        whole=search.exhausted and search.widest() is None,
    )


def _gain(before: Outcome, after: Outcome, rows: Rows) -> int:
    return before.end_ns(rows) - after.end_ns(rows)
