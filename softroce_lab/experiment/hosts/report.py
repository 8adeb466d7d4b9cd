# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host tells of a run: how far it is, its figures, what its transport decided, and how late.

A process of the real clock sends progress and figures as JSON. Its records go to a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.experiment.hosts.messenger import RailQueuePairs
from softroce_lab.experiment.messages import Ends
from softroce_lab.structs import Struct
from softroce_lab.telemetry.recoveries import Recoveries

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

DECISION = np.dtype(Struct("Decision").dtype)
Decisions: TypeAlias = npt.NDArray[np.void]  # of dtype DECISION


@dataclasses.dataclass(frozen=True, slots=True)
class HostProgress:
    """How far a host's task is, and what others may expect of the host."""

    done_bytes: int = 0  # of messages that were sent or received
    messages: int = 0  # that were received
    failed: bool = False  # whether a message failed
    quiet: bool = False  # whether it sends nothing more unless something arrives
    waits_for_time: bool = False  # whether it has something to do at a later time


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    figures: dict[str, Any]  # of its engine, port and threads, for the manifest
    counters: dict[str, int]  # of its engines together
    stats: dict[str, dict[str, Any]]  # of each engine by a suffix of the host's name: "", ":eth2"
    wrong: list[str] | None  # what is wrong with the bytes; None: they were not examined
    sha256: str | None  # of a file
    policy: dict[str, Any]  # its own figures
    policy_error: str | None  # why a user's policy failed
    transitions: list[dict[str, Any]]  # of queue pairs with a backup; peers by their GID
    queue_pairs: list[RailQueuePairs]
    recoveries_not_recorded: int
    grown_bytes: int  # memory while it worked, beyond the buffers of the workload

    @classmethod
    def of(cls, document: dict[str, Any]) -> HostReport:
        """From JSON, which has no tuples and no keys but text."""
        pairs = [
            RailQueuePairs(
                rail, {int(peer): (qp, psn) for peer, (qp, psn) in of_peer.items()}, *part
            )
            for rail, of_peer, *part in document["queue_pairs"]
        ]
        return cls(**document | {"queue_pairs": pairs})


class HostRecords(NamedTuple):
    ends: Ends  # of the messages that the host sent and received
    decisions: Decisions  # of its transport
    recoveries: Recoveries  # what was done about losses


# --- Decisions -----------------------------------------------------------------------------------


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


def percentiles(late_ns: npt.NDArray[Any]) -> dict[str, int]:
    """Of delays, by name; zeros if there are none."""
    late_ns = late_ns if len(late_ns) else np.zeros(1)
    return {f"p{q}": int(np.percentile(late_ns, q)) for q in (50, 99, 100)}
