# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes down while it runs: what its transport decided, and how late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.structs import Struct

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

DECISION = np.dtype(Struct("Decision").dtype)
Decisions: TypeAlias = npt.NDArray[np.void]  # of dtype DECISION


class Journal:
    """How late a user's policy decided."""

    def __init__(self) -> None:
        self._lateness: list[int] = []

    def decided(self, lateness_ns: int) -> None:
        """A policy took up an event this long after it happened."""
        self._lateness.append(lateness_ns)

    def lateness(self) -> dict[str, int]:
        """Percentiles of how late a user's policy decided."""
        return percentiles(np.array(self._lateness))


def percentiles(late_ns: npt.NDArray[Any]) -> dict[str, int]:
    """Of delays, by name; zeros if there are none."""
    late_ns = late_ns if len(late_ns) else np.zeros(1)
    return {f"p{q}": int(np.percentile(late_ns, q)) for q in (50, 99, 100)}


def taken(endpoints: Iterable[Endpoint]) -> Decisions:
    """What the transports of a host's endpoints decided, in the order of time."""
    parts = [np.frombuffer(endpoint.take_decisions(), DECISION) for endpoint in endpoints]
    rows = np.concatenate(parts)
    return rows[np.argsort(rows["time_ns"], kind="stable")]


def lines(decisions: Decisions, epoch_ns: int) -> Iterator[dict[str, Any]]:
    """Decisions as lines of the event log; `epoch_ns`: CLOCK_MONOTONIC at time 0."""
    for row in decisions:
        yield {
            "time_ns": epoch_ns + int(row["time_ns"]),
            "event": "policy",
            "act": _native.DECISIONS[row["kind"]],
            "message": int(row["message"]),
            "packets": int(row["packets"]),
        }


def acted(node: str, acts: Decisions) -> dict[str, npt.NDArray[Any]]:
    """What a host's transport decided: those columns of events.parquet that it has."""
    names = ("time_ns", "operation", "step", "message", "packets")
    return {
        "source": np.full(len(acts), node),
        "event": np.array(_native.DECISIONS)[acts["kind"]],
        **{name: acts[name] for name in names},
    }
