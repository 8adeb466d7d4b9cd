# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a task on the virtual clock, and what the judge of the task reads of it."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
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
from softroce_lab.learn.isolation import POLICY, Workers
from softroce_lab.learn.remote import Record, transport
from softroce_lab.telemetry.repairs import REPAIR, Repairs
from softroce_lab.transports.options import Value

Written: TypeAlias = Mapping[str, Any]
"""An experiment file, as data."""
NO_OPTIONS: Mapping[str, Value] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A submission's run of one task with one seed."""

    written: Written
    seed: int
    ended: WorkloadRun | None  # None: the policy failed before there was a run
    error: PolicyError | None
    record: Record

    @property
    def run(self) -> WorkloadRun:
        """The run. ValueError if there was none: only where `error` is None."""
        if self.ended is None:
            raise ValueError(f"there was no run: {self.error}")
        return self.ended

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of `lab run --json`."""
        return self.run.summary()

    @property
    def rtt_ns(self) -> int:
        """The round-trip time of the empty fabric."""
        return int(self.run.facts["base_rtt_ns"])

    @property
    def lost(self) -> Repairs:
        """The packets whose first transmission was lost."""
        repairs = None if self.ended is None else self.ended.repairs
        return np.zeros(0, REPAIR) if repairs is None else repairs

    def failure(self) -> str | None:
        """Why the run failed, in words for its author; None: every message was delivered."""
        if self.error is not None:
            return str(self.error)
        if self.run.verdict == "passed":
            return None
        return self._first_missing() or self.run.reasons[0]

    def _first_missing(self) -> str | None:
        """The first packet that never arrived, and how often it was sent again."""
        never = self.lost[self.lost["arrived_ns"] < 0]
        if not len(never):
            return None
        first = never[0]
        key = (int(first["operation"]), int(first["step"]), int(first["message"]))
        packet = int(first["index"])
        decisions = self.record.retransmissions
        count = sum(1 for made in decisions if made.key == key and packet in made.packets)
        again = f"sent again {count} times" if count else "never sent again"
        dropped = units.format_duration(int(first["dropped_ns"]))
        return (
            f"packet {packet} of message {'/'.join(map(str, key))} was dropped at {dropped} and "
            f"{again}; it is still missing at {units.format_duration(self.run.end_ns)}, when the "
            "run ended"
        )

    def same_as(self, other: Trial) -> bool:
        """Whether both runs went alike, packet by packet."""
        if self.ended is None or other.ended is None:
            return str(self.error) == str(other.error)
        return (
            np.array_equal(self.run.messages, other.run.messages)
            and self.run.counters == other.run.counters
        )


def run_policy(written: Written, seed: int, workers: Workers) -> Trial:
    """A run of the submission of these workers."""
    record = Record()
    try:
        run = VirtualRun(experiment(written), transport(workers, record), seed, _ignore).go()
    except PolicyError as error:
        return Trial(written, seed, None, error, record)
    except RunError as error:
        return Trial(written, seed, None, PolicyError(POLICY, None, error.what), record)
    problem = next((text for text in run.problems if text.startswith(POLICY)), None)
    wrong = None if problem is None else _policy_error(problem)
    return Trial(written, seed, run, wrong, record)


def _ignore(_: object) -> None:
    pass


def _policy_error(text: str) -> PolicyError:
    """Of `policy.py:LINE: why`."""
    place, _, why = text.partition(": ")
    line = place.rpartition(":")[2]
    return PolicyError(POLICY, int(line) if line.isdigit() else None, why)


def run_transport(
    written: Written,
    seed: int,
    name: str,
    control: str | None = None,
    options: Mapping[str, Value] = NO_OPTIONS,
) -> WorkloadRun:
    """A run of a built-in transport; `control` names its congestion control."""
    chosen = dataclasses.replace(
        Transport.named(name), congestion_control=control, set_options=tuple(options.items())
    )
    return VirtualRun(experiment(written), chosen, seed, _ignore).go()


def measure(
    written: Written,
    name: str,
    control: str | None = None,
    options: Mapping[str, Value] = NO_OPTIONS,
) -> Mapping[str, Any]:
    """The figures of a built-in transport in an experiment, with the experiment's seed."""
    return _measured(json.dumps(written), name, control, json.dumps(dict(options)))


@functools.lru_cache(maxsize=512)
def _measured(text: str, name: str, control: str | None, options: str) -> Mapping[str, Any]:
    written = json.loads(text)
    seed = written["seeds"][0]
    return run_transport(written, seed, name, control, json.loads(options)).summary()


def experiment(written: Written) -> spec.Experiment:
    """The experiment of a file's data."""
    data = {"name": "task", "transports": ["ud_rto"], **written}
    return spec.of(Source(None, data, {}, {}))
