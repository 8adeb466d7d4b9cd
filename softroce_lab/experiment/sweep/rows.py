# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of a sweep: a journal that survives any end, and one Parquet table made of it.

rows.jsonl      one line a run, in the order in which they ended; what is resumed
runs.parquet    one row a run, in the order of the sweep
manifest.json   what was swept, by which code, how far it is
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeGuard

from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment.bounds import EXCESS, UNDEFINED
from softroce_lab.experiment.figure_table import CLASS, CLASSES, FIGURES, Row, all_figures
from softroce_lab.experiment.sweep.values import Quantity, quantity
from softroce_lab.inputs.yaml_source import Decimal
from softroce_lab.telemetry.rundir import RunDirectory, check_name, give_to_user

ERROR = "error"
"""The verdict of a run that there is no result of; the reasons say why."""

NUMBER = "run"
"""The first column: a run's number in the sweep."""

_RUN = {
    "transport": "string",
    "protocol": "string",
    "congestion_control": "string",
    "seed": "uint64",
    "clock": "string",
    "verdict": "string",
    "reasons": "list<string>",
    "notes": "list<string>",
}
_COST = {
    "wall_s": "float64",
    "cpu_s": "float64",
    "version": "string",
    "commit": "string",
    "run_dir": "string",
    "key": "string",
}
_VERDICTS = ("passed", "failed", ERROR)
_NEVER_NULL = ("transport", "seed", "verdict", "reasons", "key")  # even without a result
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no column holds


def columns() -> dict[str, str]:
    """The columns behind those of the axes, and their types as Arrow calls them."""
    return {**_RUN, **{key: figure.unit.column for key, figure in FIGURES.items()}, **_COST}


def in_unit(axis: str, kind: str) -> str:
    """The column of an axis whose values are quantities of this kind (values.py)."""
    return f"{axis} [{kind or 'share'}]"


def cell(row: Row, name: str) -> Any:
    """What a row has in this column."""
    value = row.get(name)
    if name == EXCESS and value == UNDEFINED:
        return None
    if name == "held_back" and isinstance(value, list):
        return [each.get("by") if isinstance(each, dict) else each for each in value]
    return value.get("verdict") if name == "fidelity" and isinstance(value, dict) else value


def is_row(data: object) -> TypeGuard[Row]:
    """Whether these are all the figures of a run, and each is of its column's type."""
    if not isinstance(data, dict) or any(data.get(name) is None for name in _NEVER_NULL):
        return False
    kinds = columns()
    for name, kind in kinds.items():
        value = cell(data, name)
        if value is not None and not fits(kind, value):
            return False
    verdict = data["verdict"]
    later = {key for key, figure in FIGURES.items() if figure.bound}
    whole = verdict == ERROR or data.keys() >= kinds.keys() - {"run_dir", *later}
    return whole and verdict in _VERDICTS and (verdict == "passed" or bool(data["reasons"]))


def fits(kind: str, value: Any) -> bool:
    """Whether a column of this type holds a value."""
    return _FITS[kind](value)


def fits_int64(value: int) -> bool:
    """Whether a column of whole numbers holds it."""
    return -(1 << 63) <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _SURROGATE.search(value) is None


def _are_classes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_class, value))


def _is_class(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != CLASS.keys():
        return False
    return all(
        value[name] is None if kind == "float64" and not value["n"] else fits(kind, value[name])
        for name, kind in CLASS.items()
    )


_FITS: dict[str, Callable[[Any], bool]] = {  # exact types: True is no number
    "string": _is_text,
    "list<string>": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "bool": lambda value: type(value) is bool,
    "int64": lambda value: type(value) is int and fits_int64(value),
    "uint64": lambda value: type(value) is int and 0 <= value < 1 << 64,
    "float64": lambda value: type(value) is float,
    CLASSES: _are_classes,
}


# --- The journal and the table ---------------------------------------------------------------

JOURNAL = "rows.jsonl"
TABLE = "runs"

WHERE = "-o DIR"
"""The option that names another folder, for hints."""


class Rows:
    """The rows in a sweep's directory, of which there is one writer at a time."""

    def __init__(self, file: Path, journal: IO[bytes], rows: dict[str, Row], damaged: int) -> None:
        self.file = file
        self.damaged = damaged  # lines of the file that are no rows, and passed over
        self._journal = journal
        self._rows = rows  # by key

    def get(self, key: str) -> Row | None:
        """The newest row of this key."""
        return self._rows.get(key)

    def beside(self, keys: Container[str]) -> int:
        """How many rows there are of other keys than these."""
        return sum(key not in keys for key in self._rows)

    def add(self, key: str, row: Row) -> None:
        """One more run is over; it is in the file when this returns."""
        self._rows[key] = {**row, "key": key}
        self._journal.write(_line(self._rows[key]))
        self._journal.flush()


@contextlib.contextmanager
def opened(path: Path, *, without: Container[str] = ()) -> Iterator[Rows]:
    """The rows in this directory, which is made if it is not there, but those of some keys.

    UserError if it cannot be made, or another sweep is writing there; RunError if it cannot be
    written.
    """
    check_name(path)
    file = path / JOURNAL
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            give_to_user(path)
        except OSError as error:
            what = f"no folder can be made at {path}: {error.strerror}"
            raise UserError(what, hint=f"{WHERE} puts it elsewhere") from None
        journal = stack.enter_context(_locked(file))
        found, damaged = _read(journal)
        rows = {key: row for key, row in found.items() if key not in without}
        if len(rows) < len(found):
            # The old file stays locked: who opened it before it was replaced cannot write, either.
            journal = stack.enter_context(_replaced(file, rows.values()))
        yield Rows(file, journal, rows, damaged)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[IO[bytes]]:
    """The file, to be read and appended to by nobody else; it is made if it is not there."""
    with _writing(file):
        journal = open(file, "ab+")  # noqa: PTH123, SIM115 - closed below
    with journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"wait for it, or let this one write elsewhere: {WHERE}"
            raise UserError(f"another sweep is writing to {file.parent}", hint=hint) from None
        give_to_user(journal.fileno())
        yield journal


@contextlib.contextmanager
def _replaced(file: Path, rows: Iterable[Row]) -> Iterator[IO[bytes]]:
    """The file with these rows alone, locked; killed on the way, the one that was there stays."""
    fresh = file.with_suffix(".tmp")
    with _writing(fresh):
        fresh.unlink(missing_ok=True)
    with _locked(fresh) as journal:
        with _writing(file):
            journal.writelines(map(_line, rows))
            journal.flush()
            fresh.replace(file)
        yield journal


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = f"{WHERE} puts it elsewhere"
        raise RunError(f"cannot write {file}: {error.strerror}", hint=hint) from None


def _line(row: Row) -> bytes:
    return f"{json.dumps(row)}\n".encode()


def _read(journal: IO[bytes]) -> tuple[dict[str, Row], int]:
    """The rows, and how many lines are none; what was half written at the end is taken away."""
    journal.seek(0)
    whole, newline, torn = journal.read().rpartition(b"\n")
    if torn:
        journal.truncate(len(whole + newline))
    found = [_row(line) for line in whole.splitlines()]
    rows = {row["key"]: row for row in found if row is not None}
    return rows, found.count(None)


def _row(line: bytes) -> Row | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if is_row(data) else None


def write_table(directory: RunDirectory, axes: Sequence[str], rows: Sequence[Row]) -> None:
    """`runs.parquet`, of rows that have a column of each axis besides."""
    import pyarrow as pa  # late: it takes a third of a second

    made: dict[str, Any] = {NUMBER: pa.array([row[NUMBER] for row in rows], pa.int64())}
    for axis in axes:
        made |= _axis(axis, [row[axis] for row in rows], pa)
    classes = pa.struct([(name, getattr(pa, kind)()) for name, kind in CLASS.items()])
    types = {
        "list<string>": pa.list_(pa.string()),
        CLASSES: pa.list_(classes),
        "bool": pa.bool_(),
    }
    printed = {key: each.unit.column for key, each in all_figures(rows).items()}
    for name, kind in (columns() | printed).items():
        if name not in made:
            values = [cell(row, name) for row in rows]
            made[name] = pa.array(values, types.get(kind) or getattr(pa, kind)())
    directory.table(TABLE, made)


def _quantities(texts: Sequence[str]) -> list[Quantity | None]:
    """By themselves, or all behind the same word: `random 0.1%`."""
    words = {text.partition(" ")[0] for text in texts}
    if len(words) == 1 and not any(map(quantity, texts)):
        texts = [text.partition(" ")[2] for text in texts]
    return [quantity(text) for text in texts]


def _axis(name: str, values: Sequence[Any], pa: Any) -> dict[str, Any]:
    """The values as they are written, and as numbers if they are quantities of one kind."""
    kinds = {type(each) for each in values}
    if kinds == {bool}:
        return {name: pa.array(values, pa.bool_())}
    if kinds == {int} and all(map(fits_int64, values)):
        return {name: pa.array(values, pa.int64())}
    if kinds and kinds <= {int, Decimal, float}:
        return {name: pa.array(list(map(float, values)), pa.float64())}
    texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
    columns = {name: pa.array(texts, pa.string())}
    found = _quantities(texts)
    amounts = [each.value for each in found if each is not None and each.unit]
    units = {each.kind for each in found if each is not None}
    if len(amounts) == len(texts) and len(units) == 1:
        (unit,) = units
        if not unit:
            columns[in_unit(name, unit)] = pa.array(list(map(float, amounts)), pa.float64())
        elif all(fits_int64(int(each)) for each in amounts):
            columns[in_unit(name, unit)] = pa.array(list(map(int, amounts)), pa.int64())
    return columns
