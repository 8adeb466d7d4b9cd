# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a task on the virtual clock, and what it came to, for the judge of the task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from softroce_lab import units
from softroce_lab.errors import RunError
from softroce_lab.experiment import spec
from softroce_lab.experiment.transports.policy_call import PolicyError
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.learn.crew import Crew
from softroce_lab.learn.hosted import Record, Retransmission, Weighting, transport

Written: TypeAlias = Mapping[str, Any]
"""An experiment file, as data."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A submission's run of one task with one seed."""

    written: Written
    seed: int
    ended: WorkloadRun | None  # None: the policy failed before there was one
    error: PolicyError | None
    retransmissions: list[Retransmission]
    weightings: list[Weighting] = dataclasses.field(default_factory=list)
    calls: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of hooks, by name

    @property
    def run(self) -> WorkloadRun:
        """What the run came to. Only where `error` is None."""
        if self.ended is None:
            raise ValueError(f"there was no run: {self.error}")
        return self.ended

    @property
    def figures(self) -> dict[str, Any]:
        """As `lab run --json` has them."""
        return self.run.summary()

    @property
    def rtt_ns(self) -> int:
        """Base round-trip time of the fabric."""
        return int(self.run.facts["base_rtt_ns"])

    def failure(self) -> str | None:
        """Why the run failed, in words for its author; None: every message was delivered."""
        if self.error is not None:
            return str(self.error)
        if self.run.verdict == "passed":
            return None
        return _unrepaired(self.run, self.retransmissions) or self.run.reasons[0]

    def same_as(self, other: Trial) -> bool:
        """Whether both went alike, packet by packet."""
        if self.ended is None or other.ended is None:
            return str(self.error) == str(other.error)
        return (
            np.array_equal(self.run.messages, other.run.messages)
            and self.run.counters == other.run.counters
        )


def of_policy(written: Written, seed: int, crew: Crew) -> Trial:
    """A run of the submission of this crew."""
    record = Record()
    try:
        found = VirtualRun(experiment(written), transport(crew, record), seed, lambda _: None).go()
    except PolicyError as error:
        return Trial(written, seed, None, error, record.retransmissions)
    except RunError as error:
        wrong = PolicyError("policy.py", None, error.what)
        return Trial(written, seed, None, wrong, record.retransmissions)
    failed = next((each for each in found.problems if each.startswith("policy.py")), None)
    known = None if failed is None else _as_error(failed)
    return Trial(
        written, seed, found, known, record.retransmissions, record.weightings, record.calls
    )


def _as_error(text: str) -> PolicyError:
    place, _, why = text.partition(": ")
    line = place.rpartition(":")[2]
    return PolicyError("policy.py", int(line) if line.isdigit() else None, why)


def of_transport(
    written: Written, seed: int, name: str, congestion_control: str | None = None
) -> WorkloadRun:
    """A run of a built-in transport."""
    chosen = dataclasses.replace(Transport.named(name), congestion_control=congestion_control)
    return VirtualRun(experiment(written), chosen, seed, lambda _: None).go()


def experiment(written: Written) -> spec.Experiment:
    """The experiment of a file's data."""
    data = dict(written)
    data.setdefault("name", "task")
    data.setdefault("transports", ["ud_rto"])
    return spec.of(Source(None, data, {}, {}))


def _unrepaired(run: WorkloadRun, retransmissions: list[Retransmission]) -> str | None:
    """Of the first message that lacks a packet: which, and what was done about it."""
    if run.repairs is None:
        return None
    lost = run.repairs[run.repairs["arrived_ns"] < 0]
    if not len(lost):
        return None
    first = lost[0]
    key = (int(first["operation"]), int(first["step"]), int(first["message"]))
    index = int(first["index"])
    again = sum(1 for each in retransmissions if each.key == key and index in each.packets)
    what = f"sent again {again} times" if again else "never sent again"
    end = units.format_duration(run.end_ns)
    dropped = units.format_duration(int(first["dropped_ns"]))
    name = "/".join(map(str, key))
    return (
        f"packet {index} of message {name} was dropped at {dropped} and {what}; "
        f"it is still missing at {end}, when the run ended"
    )
