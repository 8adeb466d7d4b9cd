# SPDX-License-Identifier: GPL-2.0-or-later
"""manifest.json as reports rely on it: what is there has the type that it should have.

It may have been edited by hand. What is absent stays absent, and what is not known here is kept
(docs/reference/run-directory.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, Required

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

# Of the standard library, pydantic takes TypedDicts since Python 3.12 only.
from typing_extensions import TypedDict

from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import CLASSES, SIZE_CLASSES, all_figures
from softroce_lab.experiment.held_back import WORDS
from softroce_lab.experiment.sweep.rows import fits

_Int = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Seed = Annotated[int, Field(ge=0, lt=1 << 64)]
_Address = Annotated[int, Field(ge=0, lt=1 << 32)]
_LONGEST_SHOWN = 40
_EXPECTED = {"int64": "a whole number, 0 or more,", "float64": "a number with a point"}


def _one_of(words: Mapping[str, object]) -> AfterValidator:
    def among(value: str) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return AfterValidator(among)


class _Label(TypedDict):
    label: str


class _Workload(TypedDict, total=False):
    kind: str
    bytes: _Count | None
    message: _Count | None


class _Experiment(TypedDict, total=False):
    workload: _Workload | None
    transports: list[_Label] | None


class _Cost(TypedDict, total=False):
    cpu_s: float


class _Environment(TypedDict, total=False):
    softroce_lab: str | None
    commit: str | None
    time: str | None
    file: str | None
    costs: dict[str, _Cost | None] | None


class _Rule(TypedDict):
    rule: str
    fault: str
    links: list[str]


class _SizeClass(TypedDict):
    size_class: Annotated[str, _one_of(SIZE_CLASSES)]
    n: _Count
    p50: float | None
    p99: float | None


class _Held(TypedDict):
    transport: str
    by: Annotated[str, _one_of(WORDS)]
    share: float


class _QueuePair(TypedDict):
    source: _Address
    destination: _Address
    qpn: _Count
    first_psn: _Count
    part: NotRequired[_Count]
    parts: NotRequired[Annotated[int, Field(ge=1, lt=1 << 16)]]


class _Fidelity(TypedDict, total=False):
    verdict: str
    reasons: list[str]


class _Capture(TypedDict, total=False):
    file: str


class _Process(TypedDict):
    program: str
    pid: _Count
    host: NotRequired[str]  # another one than the command's
    rank: NotRequired[_Count]
    queue_pairs: _Count
    packets_sent: _Count
    retransmitted: _Count


class _Program(TypedDict):
    run: str
    status: Annotated[int, Field(ge=-64, le=255)] | None
    took_s: float | None
    roce_packets: _Count
    output: str
    environment: NotRequired[dict[str, str]]
    killed: NotRequired[str | None]
    matched: NotRequired[str | None]
    processes: NotRequired[list[_Process]]


class _Job(TypedDict):
    transport: str


class _Run(TypedDict, total=False):
    transport: Required[str]
    seed: Required[_Seed]
    verdict: Required[str]
    run: str | None
    protocol: str | None
    framing: str | None
    clock: str
    reasons: list[str] | None
    verified: bool | None
    path_mtu: Annotated[int, Field(ge=1, lt=1 << 16)] | None
    slowdown: list[_SizeClass] | None
    held_back: list[_Held] | None
    queue_pairs: list[_QueuePair] | None
    fidelity: _Fidelity | None
    capture: _Capture | None
    programs: dict[str, _Program] | None
    jobs: dict[str, _Job]


class _Facts(TypedDict, total=False):
    """What runs and sweeps have in common."""

    # Of all that is in it, too: types below have no configuration of their own.
    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    name: str | None
    state: str
    verdict: str
    clock: str
    grade: str
    topology: str | None
    seeds: list[_Seed] | None
    hosts: list[str] | None
    notes: list[str] | None
    environment: _Environment | None


class _OfRuns(_Facts, total=False):
    error: str
    faults: list[_Rule] | None
    experiment: _Experiment | None
    runs: list[_Run] | None


class _OfSweep(_Facts, total=False):
    axes: dict[str, Any]
    error: str | _Int  # why it was broken off; else how many runs had no result
    runs: _Int
    done: _Int | None


_OF_RUNS, _OF_SWEEP = TypeAdapter(_OfRuns), TypeAdapter(_OfSweep)


def check(manifest: Mapping[str, Any], path: Path) -> None:
    """UserError with the key of the first value that has another type. `path`: its file."""
    of_sweep = "axes" in manifest
    adapter: TypeAdapter[Any] = _OF_SWEEP if of_sweep else _OF_RUNS
    try:
        adapter.validate_python(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _wrong(".".join(map(str, first["loc"])), first["msg"], first["input"], path) from None
    for number, run in enumerate(() if of_sweep else manifest.get("runs") or ()):
        _check_figures(f"runs.{number}", run, path)
        for job, figures in (run.get("jobs") or {}).items():
            _check_figures(f"runs.{number}.jobs.{job}", figures, path)


def _check_figures(key: str, figures: Mapping[str, Any], path: Path) -> None:
    unseen = bool(figures.get("programs")) and figures.get("messages") is None
    for name, figure in all_figures([figures]).items():
        if name not in figures or not figure.unit.is_number:
            continue
        value, kind = figures[name], figure.unit.column
        number = figure.samples.key if figure.samples else ""
        if (unseen and not figure.of_programs) or figures.get(number, 0) is None:
            right, expected = value is None, "null"
        elif value is None:
            right, expected = figure.may_lack, _EXPECTED[kind]
        else:
            right = fits(kind, value) and (value >= 0 or figure.signed)
            expected = _EXPECTED[kind]
        if not right:
            raise _wrong(f"{key}.{name}", expected, value, path)
    classes = figures.get("slowdown")
    if classes is not None and not fits(CLASSES, classes):
        raise _wrong(f"{key}.slowdown", "p50 and p99 of each class with flows", classes, path)


def _wrong(key: str, message: str, value: object, path: Path) -> UserError:
    """`message`: pydantic's, or what was expected."""
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
    expected = message.removeprefix("Value error, ").removeprefix("Input should be ")
    what = f"{expected} was expected, not {shown}"
    if message == "Field required":
        what = "is missing"
    return UserError(f"{key}: {what}", file=str(path),
                     hint="the file was edited: lab run makes a new one")  # fmt: skip
