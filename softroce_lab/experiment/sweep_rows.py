# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of a sweep: a journal that survives any end, and one Parquet table made of it.

    rows.jsonl      one line a run, in the order in which they ended; what is resumed
    runs.parquet    one row a run, in the order of the sweep
    manifest.json   what was swept, by which code, how far it is

docs/sweeps.md describes the table.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment.sweep_values import quantity
from softroce_lab.telemetry.rundir import RunDirectory, give_to_user
from softroce_lab.topology.yaml_source import Decimal

Row: TypeAlias = Mapping[str, Any]

JOURNAL = "rows.jsonl"
TABLE = "runs"

# The columns behind those of the axes, and their types as Arrow calls them.
FIGURES = {
    "transport": "string",
    "congestion_control": "string",
    "seed": "uint64",
    "clock": "string",
    "verdict": "string",
    "reasons": "list<string>",
    "verified": "bool",
    **dict.fromkeys(
        ("messages", "delivered", "bytes", "makespan_ns", "goodput_bps", "operation_p50_ns",
         "operation_p99_ns", "fct_p50_ns", "fct_p99_ns", "fct_p999_ns", "packets_sent", "resent",
         "spurious_resent", "control_packets", "injected_drops", "queue_drops", "marked",
         "trimmed", "emulator_drops", "end_ns"),
        "int64",
    ),
    "fidelity": "string",
    "wall_s": "float64",
    "cpu_s": "float64",
    "version": "string",
    "commit": "string",
    "run_dir": "string",
    "key": "string",
}  # fmt: skip


class Rows:
    """The rows in a sweep's directory, of which there is one writer at a time."""

    def __init__(self, path: Path, journal: IO[str], rows: dict[str, Row]) -> None:
        self.path = path
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
        self._journal.write(json.dumps(self._rows[key]) + "\n")
        self._journal.flush()


@contextlib.contextmanager
def opened(path: Path, *, fresh: bool = False) -> Iterator[Rows]:
    """The rows in this directory, which is made if it is not there; `fresh`: none.

    RunError if it cannot be written, UserError if another sweep is writing there.
    """
    file = path / JOURNAL
    try:
        path.mkdir(parents=True, exist_ok=True)
        give_to_user(path)
        journal = open(file, "a+", encoding="utf-8")  # noqa: PTH123, SIM115 - closed below
    except OSError as error:
        hint = "-o DIR puts it elsewhere"
        raise RunError(f"cannot write {file}: {error.strerror}", hint=hint) from None
    with journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "wait for it, or let this one write elsewhere: -o DIR"
            raise UserError(f"another sweep is writing to {path}", hint=hint) from None
        give_to_user(journal.fileno())
        if fresh:
            journal.truncate(0)
        yield Rows(path, journal, _read(journal, file))


def _read(journal: IO[str], file: Path) -> dict[str, Row]:
    """All whole lines; what was half written when somebody died is taken away."""
    journal.seek(0)
    text = journal.read()
    whole, newline, torn = text.rpartition("\n")
    if torn:
        journal.truncate(len((whole + newline).encode()))
    rows: dict[str, Row] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            what = "is no row of a sweep"
            hint = "--fresh begins anew; or take the line out"
            raise UserError(what, hint=hint, file=str(file), line=number) from None
    journal.seek(0, os.SEEK_END)
    return rows


def write_table(directory: RunDirectory, axes: Sequence[str], rows: Sequence[Row]) -> None:
    """`runs.parquet`, of rows that have a column of each axis besides."""
    import pyarrow as pa  # late: it takes a third of a second

    columns: dict[str, Any] = {"run": pa.array([row["run"] for row in rows], pa.int64())}
    for axis in axes:
        columns |= _axis(axis, [row[axis] for row in rows], pa)
    types = {"list<string>": pa.list_(pa.string()), "bool": pa.bool_()}
    for name, kind in FIGURES.items():
        if name not in columns:
            values = [_cell(name, row.get(name)) for row in rows]
            columns[name] = pa.array(values, types.get(kind) or getattr(pa, kind)())
    directory.table(TABLE, columns)


def _cell(name: str, value: Any) -> Any:
    return value["verdict"] if name == "fidelity" and value else value


def _axis(name: str, values: Sequence[Any], pa: Any) -> dict[str, Any]:
    """The values as they are written, and as numbers if they are quantities of one kind."""
    kinds = {type(each) for each in values}
    if kinds == {bool}:
        return {name: pa.array(values, pa.bool_())}
    if kinds == {int}:
        return {name: pa.array(values, pa.int64())}
    if kinds and kinds <= {int, Decimal, float}:
        return {name: pa.array(list(map(float, values)), pa.float64())}
    texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
    columns = {name: pa.array(texts, pa.string())}
    found = [quantity(text) for text in texts]
    amounts = [each.value for each in found if each is not None and each.unit]
    units = {each.kind for each in found if each is not None}
    if len(amounts) == len(texts) and len(units) == 1:
        (unit,) = units
        columns |= (
            {f"{name} [{unit}]": pa.array([int(each) for each in amounts], pa.int64())}
            if unit
            else {f"{name} [share]": pa.array([float(each) for each in amounts], pa.float64())}
        )
    return columns
