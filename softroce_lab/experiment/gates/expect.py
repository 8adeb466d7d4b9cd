# SPDX-License-Identifier: GPL-2.0-or-later
"""`expect` of an experiment or a sweep: gates that figures must pass, for CI.

A gate is `FIGURE: CONDITION`, `TRANSPORT.FIGURE: CONDITION`, or a ratio of two of them. It holds if
every run of every seed holds it; a ratio is of two runs of one seed and, in a sweep, of one cell.
`median` in front of it compares the median of the seeds, of each transport and cell.
A run that passed without the figure is not judged, and is counted; a gate that judges no run fails.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment import figure_table
from softroce_lab.experiment.figure_table import RATIO, TRUTH, Figure, Row
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.inputs.yaml_source import Source

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
MEDIAN = "median "
_PRINTED = re.compile(
    rf"((?P<transport>.+)\.)?(?P<figure>{re.escape(figure_table.PRINTED)}[^.]*)", re.DOTALL
)
_CONDITION = re.compile(r"\s*(<=|>=|==|<|>)\s*(.+?)\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """A figure of a transport, or of each."""

    figure: Figure
    transport: str | None

    @classmethod
    def of(cls, text: str) -> Term:
        """`fct_p99`, `printed.median_ms`, or either behind `csa_ud.`. UserError."""
        text = text.strip()
        if printed := _PRINTED.fullmatch(text):
            return cls(figure_table.printed(printed["figure"]), printed["transport"])
        transport, _, figure = text.rpartition(".")
        known = figure_table.gates()
        if figure not in known:
            raise UserError(f"there is no figure {figure!r}", hint=_meant(figure, known))
        return cls(known[figure], transport or None)


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    text: str
    term: Term
    over: Term | None  # what it is divided by
    compare: str
    bound: Any
    of_median: bool = False  # of the seeds; otherwise each seed must hold it

    @classmethod
    def of(cls, name: str, condition: object) -> Gate:
        """UserError for an unknown figure, or a condition that does not fit it."""
        of_median = name.startswith(MEDIAN)
        term, *below = terms(name)
        over = below[0] if below else None
        if over is not None and term.figure.unit.suffix != over.figure.unit.suffix:
            raise UserError(f"{name}: a ratio of figures with different units")
        judges_truth = term.figure.unit == TRUTH and over is None
        if judges_truth and of_median:
            raise UserError(f"{name}: {term.figure.gate} has no median")
        if isinstance(condition, bool) and judges_truth:
            return cls(f"{name}: {_truth(condition)}", term, over, "==", condition)
        if isinstance(condition, bool) or judges_truth:
            hint = f"{term.figure.gate}: true" if judges_truth else 'such as "< 1 ms"'
            raise UserError(f"{name}: {_written(condition)} is no condition", hint=hint)
        match = _CONDITION.fullmatch(str(condition))
        if match is None:
            raise UserError(f"{name}: {condition!r} is no condition", hint='such as "< 1 ms"')
        bound = (RATIO if over is not None else term.figure.unit).parse(match[2])
        return cls(f"{name} {match[1]} {match[2]}", term, over, match[1], bound, of_median)


def terms(name: str) -> list[Term]:
    """The figure of a gate, and the one that it is divided by if it is a ratio. UserError."""
    return [Term.of(part) for part in name.removeprefix(MEDIAN).split("/", 1)]


def _meant(figure: str, known: Mapping[str, Figure]) -> str:
    """The name that is meant: of a line of the table, or one that is nearly so, or all."""
    titled = [name for name, each in known.items() if each.title == figure]
    near = difflib.get_close_matches(figure, known, n=1)
    longer = [name for name in known if figure and name.startswith(figure)]
    meant = titled or near or longer
    return f"did you mean {meant[0]!r}?" if meant else f"one of {', '.join(known)}"


def _truth(value: object) -> str:
    return str(value).lower()


def _written(condition: object) -> str:
    return _truth(condition) if isinstance(condition, bool) else repr(condition)


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    text: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"expect {self.text}: {'passed' if self.passed else 'FAILED'}, {self.detail}"


def is_faithful(row: Row) -> bool:
    """Whether its times are the transport's: of a run on the virtual clock always."""
    fidelity = row.get("fidelity")
    verdict = fidelity.get("verdict") if isinstance(fidelity, Mapping) else fidelity
    return verdict in (None, "faithful")


def gates(written: Mapping[str, object]) -> list[Gate]:
    return [Gate.of(name, condition) for name, condition in written.items()]


def judged(written: Sequence[Gate], rows: Sequence[Row], axes: Sequence[str] = ()) -> list[Judged]:
    return [_judge(gate, rows, axes) for gate in written]


def _judge(gate: Gate, rows: Sequence[Row], axes: Sequence[str]) -> Judged:
    named = _medians if gate.of_median else _each
    samples = [*named(_samples(gate, rows, axes))]
    if not samples:
        return Judged(gate.text, passed=False, detail="no run is of such a transport")
    compare = _COMPARED[gate.compare]
    judged = [(name, value) for name, value in samples if not isinstance(value, Lacking)]
    lacking = [(name, value) for name, value in samples if isinstance(value, Lacking)]
    if not judged:
        name, why = lacking[0]
        return Judged(gate.text, passed=False, detail=f"judges no run: {name} {why}")
    rest = f"; {len(lacking)} not judged: {lacking[0][0]} {lacking[0][1]}" if lacking else ""
    rest += _unfaithful(gate, rows)
    bad = [(name, value) for name, value in judged
           if value is None or not compare(value, gate.bound)]  # fmt: skip
    if bad:
        name, value = bad[0]
        count = f"{len(bad)} of {len(judged)} do not hold it; the first: {name} "
        return Judged(gate.text, passed=False, detail=f"{count}{_shown(value, gate)}{rest}")
    return Judged(gate.text, passed=True, detail=f"{len(judged)} held it{rest}")


def _unfaithful(gate: Gate, rows: Sequence[Row]) -> str:
    """How many of the runs that a gate is about were not faithful, if any."""
    named = {term.transport for term in (gate.term, gate.over) if term is not None}
    about = [row for row in rows if None in named or row["transport"] in named]
    unfaithful = sum(not is_faithful(row) for row in about)
    return f"; {unfaithful} of {len(about)} runs were not faithful" if unfaithful else ""


class Lacking(str):
    """Why a run that passed has no value of a gate: it is not judged."""

    __slots__ = ()


class _Sample(NamedTuple):
    transport: str
    seed: int
    cell: str
    value: Any  # None of a run that failed, `Lacking` of others

    @property
    def name(self) -> str:
        return f"{self.transport}/{self.seed}{self.cell}"


def _each(samples: Iterable[_Sample]) -> Iterator[tuple[str, Any]]:
    return ((run.name, run.value) for run in samples)


def _medians(samples: Iterable[_Sample]) -> Iterator[tuple[str, Any]]:
    """Of the seeds of each transport and cell that have a value; None if one of them failed."""
    found: dict[str, list[Any]] = {}
    for each in samples:
        found.setdefault(f"{each.transport}{each.cell}", []).append(each.value)
    for name, values in found.items():
        known = [value for value in values if not isinstance(value, Lacking)]
        if not known:
            yield name, values[0]
            continue
        median = None if None in known else _median(known)
        yield f"{name}, median of {units.format_count(len(known), 'seed')}", median


def _median(values: Sequence[Any]) -> Any:
    return type(values[0])(statistics.median(values))


def _samples(gate: Gate, rows: Sequence[Row], axes: Sequence[str]) -> Iterator[_Sample]:
    below: dict[tuple[Any, ...], Any] = {}
    over = gate.over
    if over is not None:
        for row in rows:
            if over.transport in (None, row["transport"]):
                below[_place(row, axes, over.transport is None)] = _value(over, row)
    for row in rows:
        if gate.term.transport not in (None, row["transport"]):
            continue
        value = _value(gate.term, row)
        if over is not None:
            if gate.term.transport is None and row["transport"] == over.transport:
                continue
            value = _divided(value, below.get(_place(row, axes, over.transport is None)))
        cell = "".join(f", {axis}={row[axis]}" for axis in axes)
        yield _Sample(row["transport"], row["seed"], cell, value)


def _value(term: Term, row: Row) -> Any:
    found = row.get(term.figure.key) if row.get("verdict") != "error" else None
    if isinstance(found, str):
        return Lacking(f"has {term.figure.gate} {found}")
    if found is None and row.get("verdict") == "passed" and term.figure.unit != TRUTH:
        return Lacking(f"has no {term.figure.gate}")
    return found


def _divided(value: Any, divisor: Any) -> Any:
    for each in (value, divisor):
        if each is None or isinstance(each, Lacking):
            return each
    if divisor:
        return value / divisor
    return math.inf if value else Lacking("is 0 / 0")


def _place(row: Row, axes: Sequence[str], with_transport: bool) -> tuple[Any, ...]:
    own = (row["transport"],) if with_transport else ()
    return (row["seed"], *own, *(str(row.get(axis)) for axis in axes))


def _shown(value: Any, gate: Gate) -> str:
    if value is None:
        is_truth = any(e is not None and e.figure.unit == TRUTH for e in (gate.term, gate.over))
        unseen = "did not compare its bytes: payload: verify"
        return unseen if is_truth else "did not pass, and has no such figure"
    if gate.over is not None:
        return f"{value:.3f}"
    return _truth(value) if isinstance(value, bool) else gate.term.figure.unit.exact(value)


def checked(written: dict[str, Any]) -> dict[str, Any]:
    """The same, for a model of a file. UserError for a gate that makes no sense."""
    gates(written)
    return written


def check_transports(source: Source, labels: Sequence[str]) -> None:
    """UserError, at its place, for a gate of a file about a transport that no run of it has."""
    written = source.data.get("expect")
    for name in written if isinstance(written, dict) else ():
        for term in terms(name):
            transport = term.transport
            if transport is not None and transport not in labels:
                what = f"{name}: no run is over {transport!r}"
                hint = did_you_mean(transport, dict.fromkeys(labels))
                raise source.error(("expect", name), what, hint=hint, at_key=True)
