# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes down while it runs: completions, and what its transport decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.experiment.hosts.messenger import Done
from softroce_lab.structs import Struct
from softroce_lab.telemetry.recoveries import Recoveries

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

COMPLETION = np.dtype(
    [
        ("peer", "u4"),
        ("operation", "u2"),
        ("step", "u2"),
        ("message", "u4"),
        ("received", "?"),
        ("status", "u1"),
        ("bytes", "u4"),
        ("packets", "u4"),
        ("retransmitted", "u4"),
        ("duplicates", "u4"),
        ("posted_ns", "i8"),
        ("first_ns", "i8"),
        ("completed_ns", "i8"),
    ]
)
DECISION = np.dtype(Struct("Decision").dtype)
Decisions: TypeAlias = npt.NDArray[np.void]  # of dtype DECISION


class Journal:
    """Grows with messages, never with packets."""

    def __init__(self) -> None:
        self._completions: list[tuple[Any, ...]] = []
        self._lateness: list[int] = []

    def complete(self, done: Done) -> None:
        """Write down that a post is over."""
        kind, peer, key, *figures = done
        self._completions.append((peer, *key, kind == "receive", *figures))

    def decided(self, lateness_ns: int) -> None:
        """A policy took up an event this long after it happened."""
        self._lateness.append(lateness_ns)

    def lateness(self) -> dict[str, int]:
        """Percentiles of how late a user's policy decided."""
        return percentiles(np.array(self._lateness))

    def save(self, file: IO[bytes], decisions: Decisions, found: Recoveries) -> None:
        """Write completions, decisions, and what was done about losses, as .npz."""
        completions = np.array(self._completions, dtype=COMPLETION)
        np.savez(file, completions=completions, events=decisions, recoveries=found)


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
    """What a host's transport decided, as columns of a table of events."""
    count = len(acts)
    empty = np.full(count, "")
    zero = np.zeros(count, dtype=np.uint32)
    return {
        "time_ns": acts["time_ns"],
        "source": np.full(count, node),
        "event": np.array(_native.DECISIONS)[acts["kind"]],
        "link": empty,
        "rule": empty,
        "packet_kind": empty,
        "operation": acts["operation"],
        "step": acts["step"],
        "message": acts["message"],
        "index": zero,
        "attempt": zero.astype(np.uint16),
        "packets": acts["packets"],
        "src": empty,
        "dst": empty,
        "sport": zero.astype(np.uint16),
        "psn": zero,
        "qpn": zero,
    }
