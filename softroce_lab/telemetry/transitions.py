# SPDX-License-Identifier: GPL-2.0-or-later
"""Transitions of queue pairs with a backup (docs/explanation/shift.md), as rows of shift.parquet.

A row is a mapping with the names of `COLUMNS`. Times are nanoseconds since the run began.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Row: TypeAlias = Mapping[str, Any]

COLUMNS: dict[str, npt.DTypeLike] = {
    "time_ns": np.int64,
    "host": np.str_,
    "peer": np.str_,  # the host at the other end; "": not connected yet
    "qp": np.uint32,  # of the default NIC, at the host and at its peer
    "peer_qp": np.uint32,
    "epoch": np.uint32,  # even: on the default NIC
    "side": np.str_,  # sender or receiver
    "before": np.str_,  # states; the same: only the figures are new
    "after": np.str_,
    "why": np.str_,
    "consumed": np.uint32,  # requests that the peer had executed
    "resubmitted": np.uint32,  # requests that were posted again
    "receives": np.uint32,  # receives that were posted again
}
"""Of shift.parquet, after `transport` and `seed`."""


def columns(rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
    """The rows as a table, in the order of time."""
    ordered = sorted(rows, key=lambda row: int(row["time_ns"]))
    return {
        name: np.array([row[name] for row in ordered], object if dtype is np.str_ else dtype)
        for name, dtype in COLUMNS.items()
    }


def is_step(row: Row) -> bool:
    """Whether a sender's state changes: what a list for people shows."""
    return bool(row["side"] == "sender" and row["before"] != row["after"])


def figures(rows: Iterable[Row]) -> dict[str, int]:
    """How often senders failed over, went back and gave up, and what was repeated."""
    found: collections.Counter[str] = collections.Counter()
    for row in rows:
        if is_step(row):
            found[_NAMES.get((row["before"], row["after"]), "")] += 1
            found["failed"] += row["after"] == "Failed"
        for name in ("consumed", "resubmitted"):
            found[name] += row[name]
    return {name: found[name] for name in FIGURES}


_NAMES = {("Default", "Fallback"): "failovers", ("WaitDrained", "Default"): "failbacks"}
FIGURES = ("failovers", "failbacks", "failed", "consumed", "resubmitted")


def line(row: Row) -> str:
    """`h1-h2 sender Default -> Fallback: retries exceeded (epoch 1)`; figures that are not 0."""
    step = row["before"] if row["before"] == row["after"] else f"{row['before']} -> {row['after']}"
    moved = [f"{row[name]} {name}" for name in ("consumed", "resubmitted", "receives") if row[name]]
    about = ", ".join([f"epoch {row['epoch']}", *moved])
    return f"{row['host']}-{row['peer']} {row['side']} {step}: {row['why']} ({about})"
