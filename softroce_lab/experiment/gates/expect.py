# SPDX-License-Identifier: GPL-2.0-or-later
"""`expect` of an experiment or a sweep: gates that figures must pass, for CI.

A gate is `FIGURE: CONDITION`, `TRANSPORT.FIGURE: CONDITION`, or a ratio of two of them. It holds if
every run of every seed holds it; a ratio is of two runs of one seed and, in a sweep, of one cell.
A run that passed without the figure is not judged, and is counted; a gate that judges no run fails.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.inputs.yaml_source import Source

Row = Mapping[str, Any]  # of `WorkloadRun.summary`, or of a sweep

TIMES = ("makespan", "operation_p50", "operation_p99", "fct_p50", "fct_p99", "fct_p999",
         "step_p50", "step_p99", "repair_p50", "repair_p99")  # fmt: skip
RATES = ("goodput", "algbw", "busbw")
PLAIN = ("messages", "delivered", "packets_sent", "retransmitted", "spurious_retransmissions",
         "control_packets", "repairs", "unrepaired", "injected_drops", "queue_drops", "marked",
         "trimmed", "emulator_drops", "contexts_missed", "slowdown_p50", "slowdown_p99",
         "step_waiting", "repair_p50_over_oracle", "repair_p99_over_oracle", "time_over_oracle",
         "excess_p99", "verified")  # fmt: skip
COLUMNS = (
    {name: f"{name}_ns" for name in TIMES}
    | {name: f"{name}_bps" for name in RATES}
    | {name: name for name in PLAIN}
)
"""Names of figures, and what a row calls them."""
VERIFIED = "verified"
TITLES = {
    "messages delivered": "delivered",
    "verified, every byte": VERIFIED,
    "makespan": "makespan",
    "p50 operation": "operation_p50",
    "goodput, all hosts": "goodput",
    "algbw": "algbw",
    "busbw": "busbw",
    "p50 step": "step_p50",
    "p99 step": "step_p99",
    "waiting, share of a step": "step_waiting",
    "p50 message completion": "fct_p50",
    "p99 message completion": "fct_p99",
    "p99.9 message completion": "fct_p999",
    "p50 slowdown": "slowdown_p50",
    "p99 slowdown": "slowdown_p99",
    "p50 repair": "repair_p50",
    "p99 repair": "repair_p99",
    "p50 repair, over the oracle's": "repair_p50_over_oracle",
    "p99 repair, over the oracle's": "repair_p99_over_oracle",
    "makespan, over the oracle's": "time_over_oracle",
    "data packets sent": "packets_sent",
    "control packets": "control_packets",
    "injected drops": "injected_drops",
    "of these, full queues": "queue_drops",
    "ECN marks": "marked",
    "trimmed": "trimmed",
    "emulator drops": "emulator_drops",
    "retransmitted": "retransmitted",
    "spurious": "spurious_retransmissions",
    "QP contexts missed": "contexts_missed",
}
"""Names of figures by the lines of the table that `lab run` prints."""

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(<=|>=|==|<|>)\s*(.+?)\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """A figure of a transport, or of each."""

    figure: str
    transport: str | None

    @classmethod
    def of(cls, text: str) -> Term:
        """`fct_p99`, or `csa_ud.fct_p99`. UserError."""
        transport, _, figure = text.strip().rpartition(".")
        if figure not in COLUMNS:
            raise UserError(f"there is no figure {figure!r}", hint=_meant(figure))
        return cls(figure, transport or None)

    def value(self, row: Row) -> Any:
        """Of a run; None if it has none."""
        return row.get(COLUMNS[self.figure])


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """What must hold."""

    text: str
    term: Term
    over: Term | None  # what it is divided by
    compare: str
    bound: Any

    @classmethod
    def of(cls, name: str, condition: object) -> Gate:
        """UserError for an unknown figure, or a condition that does not fit it."""
        above, slash, below = name.partition("/")
        term, over = Term.of(above), Term.of(below) if slash else None
        if over is not None and COLUMNS[term.figure].rpartition("_")[2:] != (
            COLUMNS[over.figure].rpartition("_")[2:]
        ) and {term.figure, over.figure} & {*TIMES, *RATES}:  # fmt: skip
            raise UserError(f"{name}: a ratio of figures with different units")
        judges_truth = term.figure == VERIFIED and over is None
        if isinstance(condition, bool) and judges_truth:
            return cls(f"{name}: {_truth(condition)}", term, over, "==", condition)
        if isinstance(condition, bool) or judges_truth:
            hint = f"{VERIFIED}: true" if judges_truth else 'such as "< 1 ms"'
            raise UserError(f"{name}: {_written(condition)} is no condition", hint=hint)
        match = _CONDITION.fullmatch(str(condition))
        if match is None:
            raise UserError(f"{name}: {condition!r} is no condition", hint='such as "< 1 ms"')
        bound = _bound(match[2], term.figure if over is None else "")
        return cls(f"{name} {match[1]} {match[2]}", term, over, match[1], bound)


def _meant(figure: str) -> str:
    """The name that is meant: of a line of the table, or one that is nearly so, or all."""
    longer = [name for name in COLUMNS if figure and name.startswith(figure)]
    near = difflib.get_close_matches(figure, COLUMNS, n=1)
    known = [TITLES[figure]] if figure in TITLES else near or longer[:1]
    return f"did you mean {known[0]!r}?" if known else f"one of {', '.join(COLUMNS)}"


def _truth(value: object) -> str:
    return str(value).lower()


def _written(condition: object) -> str:
    return _truth(condition) if isinstance(condition, bool) else repr(condition)


def _bound(text: str, figure: str) -> float:
    if figure in TIMES:
        return units.parse_time_ns(text)
    if figure in RATES:
        return units.parse_rate_bps(text)
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"{text!r} is no number") from None
    if not math.isfinite(number):
        raise UserError(f"{text!r} is no number that a figure can be compared with")
    return number


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A gate, and whether it held."""

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
    """Of a file. UserError."""
    return [Gate.of(name, condition) for name, condition in written.items()]


def judged(written: Sequence[Gate], rows: Sequence[Row], axes: Sequence[str] = ()) -> list[Judged]:
    """Every gate. `axes`: columns that tell the cells of a sweep."""
    return [_judge(gate, rows, axes) for gate in written]


def _judge(gate: Gate, rows: Sequence[Row], axes: Sequence[str]) -> Judged:
    samples = list(_samples(gate, rows, axes))
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


def _samples(gate: Gate, rows: Sequence[Row], axes: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Names of runs, and their values: None of a run that failed, `Lacking` of others."""
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
        yield f"{row['transport']}/{row['seed']}{cell}", value


def _value(term: Term, row: Row) -> Any:
    found = term.value(row) if row.get("verdict") != "error" else None
    if isinstance(found, str):
        return Lacking(f"has {term.figure} {found}")
    if found is None and row.get("verdict") == "passed" and term.figure != VERIFIED:
        return Lacking(f"has no {term.figure}")
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
        figures = {each.figure for each in (gate.term, gate.over) if each is not None}
        unseen = "did not compare its bytes: payload: verify"
        return unseen if VERIFIED in figures else "did not pass, and has no such figure"
    if gate.over is not None:
        return f"{value:.3f}"
    if isinstance(value, bool):
        return _truth(value)
    if gate.term.figure in TIMES:
        return units.format_duration(value)
    return units.format_rate(value) if gate.term.figure in RATES else f"{value:g}"


def checked(written: dict[str, Any]) -> dict[str, Any]:
    """The same, for a model of a file. UserError for a gate that makes no sense."""
    gates(written)
    return written


def check_transports(source: Source, labels: Sequence[str]) -> None:
    """UserError, at its place, for a gate of a file about a transport that no run of it has."""
    written = source.data.get("expect")
    for name in written if isinstance(written, dict) else ():
        for part in name.split("/"):
            transport = Term.of(part).transport
            if transport is not None and transport not in labels:
                what = f"{name}: no run is over {transport!r}"
                hint = did_you_mean(transport, dict.fromkeys(labels))
                raise source.error(("expect", name), what, hint=hint, at_key=True)
