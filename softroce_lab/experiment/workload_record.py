# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes runs of workloads into a run directory: docs/reference/run-directory.md."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.experiment.workload_run import Flows, WorkloadRun
from softroce_lab.plan.effects import Fault
from softroce_lab.telemetry import transitions
from softroce_lab.telemetry.drops import (
    EFFECT_DOWN,
    EFFECTS,
    Drops,
    addresses,
    packet_kinds,
)
from softroce_lab.telemetry.repairs import CAUSES
from softroce_lab.telemetry.rundir import RunDirectory

EVENT_COLUMNS: dict[str, npt.DTypeLike] = {
    "time_ns": np.int64,
    "source": np.str_,  # "injector", or the host whose policy acted
    "event": np.str_,
    "link": np.str_,
    "rule": np.str_,
    "packet_kind": np.str_,
    "operation": np.uint16,
    "step": np.uint16,
    "message": np.uint32,
    "index": np.uint32,
    "attempt": np.uint16,
    "packets": np.uint32,
    "src": np.str_,
    "dst": np.str_,
    "sport": np.uint16,
    "psn": np.uint32,
    "qpn": np.uint32,
}
"""Of events.parquet, after `transport` and `seed`. What a run does not give is 0, or empty."""

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_PART = 1 << 14  # rows: more take more memory, and no less time


def write(directory: RunDirectory, runs: Sequence[WorkloadRun]) -> None:
    """Messages, repairs, links and counters of all runs; other functions here make more tables."""
    directory.links({run.name: [dict(link) for link in run.links] for run in runs})
    directory.stats(
        {
            run.name: run.stats or {host: {"counters": dict(n)} for host, n in run.counters.items()}
            for run in runs
        }
    )
    with_flows = any(run.flows is not None for run in runs)
    with_warm_up = any(run.after_warm_up is not None for run in runs)
    tables = [_messages(run, with_flows, with_warm_up) for run in runs]
    directory.table("messages", _joined(tables))
    with directory.growing_table("repairs") as add:
        for part in itertools.chain(*map(_repairs, runs)):
            add(part)
    if any(run.transitions for run in runs):
        tables = [
            _of(run, len(run.transitions)) | transitions.columns(run.transitions) for run in runs
        ]
        directory.table("shift", _joined(tables))
    if any(run.program_messages for run in runs):
        tables = [
            _of(run, len(run.program_messages["bytes"])) | dict(run.program_messages)
            for run in runs
        ]
        directory.table("program_messages", _joined(tables))


def _joined(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _of(run: WorkloadRun, count: int) -> Columns:
    return {
        "transport": np.full(count, run.transport, dtype=object),
        "seed": np.full(count, run.seed, dtype=np.uint64),
    }


def _messages(run: WorkloadRun, with_flows: bool, with_warm_up: bool) -> Columns:
    """`with_flows`: the runs have open-loop traffic, though this one may have ended before it.

    `with_warm_up`: they have a warm-up, in the same way.
    """
    found = run.messages
    names = np.array(run.hosts, dtype=object)
    columns = _of(run, len(found)) | {name: found[name] for name in MESSAGE.names or ()}
    columns |= {end: names[found[end]] for end in ("source", "destination")}
    if with_flows:
        flows = run.flows or Flows.of_posts(found)
        columns |= {"arrival_ns": flows.arrival_ns, "alone_ns": flows.alone_ns}
    if with_warm_up:
        after = run.after_warm_up
        columns["after_warm_up"] = np.ones(len(found), bool) if after is None else after
    return columns


def recoveries(run: WorkloadRun) -> Iterator[Columns]:
    """The rows of recovery.parquet, a part of them at a time; nothing if it was not recorded."""
    for part in run.recoveries:
        yield _of(run, len(part["time_ns"])) | dict(part)


def samples(run: WorkloadRun) -> Iterator[Columns]:
    """The rows of samples.parquet, as `recoveries`."""
    if run.samples is not None:
        yield _of(run, len(run.samples["time_ns"])) | dict(run.samples)


def _repairs(run: WorkloadRun) -> Iterator[Columns]:
    """The rows of repairs.parquet, as `recoveries`."""
    if run.repairs is None:
        return
    for begin in range(0, max(len(run.repairs), 1), _PART):
        found = run.repairs[begin : begin + _PART]
        columns = _of(run, len(found))
        columns |= {name: found[name] for name in ("dropped_ns", "arrived_ns")}
        columns["cause"] = np.array(CAUSES, dtype=object)[found["cause"]]
        columns |= {"src": addresses(found["source"]), "dst": addresses(found["destination"])}
        names = ("operation", "step", "message", "index", "qpn", "psn")
        yield columns | {name: found[name] for name in names}


def one_below_the_other(tables: Sequence[Columns]) -> Columns:
    """Tables with some of the columns of events, and rows; of one, nothing is copied."""
    filled = [table for table in tables if len(table["time_ns"])] or tables[:1]
    if len(filled) == 1:
        return filled[0]
    names = [name for name in EVENT_COLUMNS if any(name in table for table in filled)]
    return {name: np.concatenate([_column(table, name) for table in filled]) for name in names}


def _column(table: Columns, name: str) -> npt.NDArray[Any]:
    """Words are references: most are the same."""
    dtype = EVENT_COLUMNS[name]
    if name not in table:
        table = {name: _absent(dtype, len(table["time_ns"]))}
    return table[name].astype(object if dtype is np.str_ else dtype, copy=False)


def _absent(dtype: npt.DTypeLike, rows: int) -> npt.NDArray[Any]:
    return np.zeros(rows, dtype="U1" if dtype is np.str_ else dtype)


def events(run: WorkloadRun) -> Iterator[Columns]:
    """The rows of events.parquet, a part of them at a time: there may be millions.

    In the order of time; events of one time keep the order of their reports.
    """
    times = run.events.get("time_ns", np.zeros(0, dtype=np.int64))
    order = np.argsort(times, kind="stable")
    for begin in range(0, max(len(order), 1), _PART):
        rows = order[begin : begin + _PART]
        columns = _of(run, len(rows))
        for name, dtype in EVENT_COLUMNS.items():
            given, is_text = run.events.get(name), dtype is np.str_
            if given is None:
                columns[name] = _absent(dtype, len(rows))
            else:
                columns[name] = given[rows] if is_text else given[rows].astype(dtype, copy=False)
        yield columns


def first_losses(directory: Path, run: WorkloadRun) -> collections.Counter[tuple[int, int]]:
    """(message, packet index) of the data packets that rules took when they were sent first."""
    import pyarrow as pa  # late: it takes a third of a second
    import pyarrow.parquet as pq

    seed = pa.scalar(run.seed, pa.uint64())
    asked = {
        "transport": run.transport, "seed": seed, "packet_kind": "data", "attempt": 0,
    }  # fmt: skip
    table = pq.read_table(
        directory / "events.parquet",
        columns=["message", "index"],
        filters=[
            ("event", "in", ("drop", "cut")),
            *((name, "=", value) for name, value in asked.items()),
        ],
    )
    return collections.Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


# By their numbers in a record.
_WORDS = np.array([EFFECTS.get(effect, "") for effect in range(max(EFFECTS) + 1)], dtype=object)
_AS_RECORDED = ("operation", "step", "message", "index", "attempt", "sport", "psn", "qpn")


def injected(found: Drops, links: Sequence[str], faults: Iterable[Fault]) -> Columns:
    """What faults did to packets, as columns of events. `links`: names by number of directed link.

    There may be millions: numbers stay where they are, in the records, and of a word every row has
    a reference.
    """
    names = {fault.rule_id: fault.rule for fault in faults}
    met, rows = np.unique(found["rule_id"], return_inverse=True)
    return {
        "time_ns": found["time_ns"].view(np.int64),
        "source": np.broadcast_to(np.array("injector", dtype=object), len(found)),
        "event": _WORDS[found["effect"] & ~np.uint32(EFFECT_DOWN)],
        "link": np.array(links, dtype=object)[found["directed_link"]],
        "rule": np.array([names.get(number, "") for number in met.tolist()], dtype=object)[rows],
        "packet_kind": packet_kinds(found["kind"]),
        **{name: found[name] for name in _AS_RECORDED},
        "packets": np.broadcast_to(np.uint32(1), len(found)),
        "src": addresses(found["src"]),
        "dst": addresses(found["dst"]),
    }
