# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host's process reports: its progress, and in the end figures as JSON, arrays in a file."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from softroce_lab.experiment.hosts.journal import Decisions
from softroce_lab.experiment.hosts.messenger import RailQueuePairs
from softroce_lab.experiment.messages import Ends
from softroce_lab.telemetry.recoveries import Recoveries


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
    """What JSON carries."""

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
    """What the file carries."""

    ends: Ends  # of the messages that the host sent and received
    decisions: Decisions  # of its transport
    recoveries: Recoveries  # what was done about losses
