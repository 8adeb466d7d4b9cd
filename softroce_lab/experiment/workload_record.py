# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes runs of workloads into a run directory: docs/run-directory.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.workload_run import MESSAGE, WorkloadRun
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
    "attempt": np.uint8,
    "packets": np.uint32,
    "src": np.str_,
    "dst": np.str_,
    "sport": np.uint16,
    "psn": np.uint32,
    "qpn": np.uint32,
}
"""Of events.parquet, after `transport` and `seed`. What a run does not give is 0, or empty."""

Columns = dict[str, npt.NDArray[Any]]


def write(directory: RunDirectory, runs: Sequence[WorkloadRun]) -> None:
    """Tables, links and counters of all runs."""
    directory.links({run.name: [dict(link) for link in run.links] for run in runs})
    directory.stats({run.name: run.stats or _counters(run) for run in runs})
    directory.table("messages", _joined([_messages(run) for run in runs]))
    directory.table("events", _joined([_events(run) for run in runs]))


def _counters(run: WorkloadRun) -> dict[str, Any]:
    return {host: {"counters": dict(counters)} for host, counters in run.counters.items()}


def _joined(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _of(run: WorkloadRun, count: int) -> Columns:
    """The columns that tell runs apart."""
    return {
        "transport": np.full(count, run.transport, dtype=object),
        "seed": np.full(count, run.seed, dtype=np.uint64),
    }


def _messages(run: WorkloadRun) -> Columns:
    found = run.messages
    names = np.array(run.hosts, dtype=object)
    columns = _of(run, len(found)) | {name: found[name] for name in MESSAGE.names or ()}
    return columns | {end: names[found[end]] for end in ("source", "destination")}


def _events(run: WorkloadRun) -> Columns:
    """In the order of time; what happened at one moment stays in the order it was told in."""
    times = run.events.get("time_ns", np.zeros(0, dtype=np.int64))
    order = np.argsort(times, kind="stable")
    columns = _of(run, len(times))
    for name, dtype in EVENT_COLUMNS.items():
        given = run.events.get(name)
        if given is None:
            given = np.zeros(len(times), dtype="U1" if dtype is np.str_ else dtype)
        columns[name] = np.asarray(given)[order]
    return columns
