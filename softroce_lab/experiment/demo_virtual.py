# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo on the virtual clock: the same file over the same fabric, faults and transports.

For machines and users that cannot bring a lab up. A run of `lab run`, of which the bytes are a
file's; every packet carries its part, and every byte that arrived is compared.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.demo_outcome import DemoOutcome
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.workload_record import first_losses
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs import yaml_source
from softroce_lab.plan.plan import Plan
from softroce_lab.workloads.flows import PointToPoint
from softroce_lab.workloads.work import Buffer, Workload

_DEADLINE = "3600s"  # of the virtual clock: transports give up long before


class Reporter(Protocol):
    """Hears how the demo gets on."""

    def say(self, text: str) -> None:
        """A step begins."""

    def transfer(self, transport: str, total_bytes: int) -> Callable[[int], None]:
        """A transfer begins; what is returned is told the bytes received so far."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is sent, and through what."""

    name: str
    plan: Plan  # of `topology` with `faults`
    topology: str
    faults: Sequence[str]
    transports: Sequence[str]
    source: str
    destination: str
    path: Path
    size_bytes: int
    message_bytes: int
    depth: int
    runs: Path
    capture: Wanted


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(DemoOutcome):
    """What the demo found."""

    directory: Path
    runs: list[WorkloadRun]

    clock = "virtual"

    @property
    def captures(self) -> list[dict[str, Any]]:
        """A file each run."""
        found = (run.facts["capture"] for run in self.runs if "capture" in run.facts)
        return [{**each, "file": str(self.directory / each["file"])} for each in found]

    @property
    def lost_any_first(self) -> bool:  # noqa: D102
        return any(self._lost())

    @property
    def same_fates(self) -> bool | None:  # noqa: D102
        lost = self._lost()
        return all(each == lost[0] for each in lost) if lost else None

    def _lost(self) -> list[set[tuple[int, int]]]:
        return [set(first_losses(self.directory, run)) for run in self.telling]

    @property
    def idle_rules(self) -> list[str]:  # noqa: D102
        return idle_rules.of_all([run.facts["idle_rules"] for run in self.runs])


def run(job: Job, reporter: Reporter) -> Outcome:
    """Simulate it. UserError, RunError."""
    experiment = _FileExperiment.of(job)
    progress = _Progress(reporter, job)
    outcome = experiment_run.run(experiment, progress, under=job.runs, capture=job.capture)
    return Outcome(outcome.directory, outcome.runs)


class _Progress:
    """An experiment's progress in messages, told in bytes."""

    def __init__(self, reporter: Reporter, job: Job) -> None:
        self._reporter, self._job = reporter, job
        self.say = reporter.say

    def run(self, name: str, messages: int) -> Progress:
        """A transport's turn has come."""
        job = self._job
        told = self._reporter.transfer(name, job.size_bytes)
        return lambda done: told(min(done * job.message_bytes, job.size_bytes))


@dataclasses.dataclass(frozen=True)
class _FileTransfer(PointToPoint):
    """The first rank sends `data` to the second."""

    data: npt.NDArray[np.uint8] = dataclasses.field(kw_only=True, compare=False)

    def initial(self, host: int, seed: int) -> Buffer:
        sends = host == self.ranks[0]
        return self.data if sends else np.zeros(self.buffer_bytes_of(host), dtype=np.uint8)

    def expected(self, host: int, seed: int) -> Buffer:
        return self.data if host in self.ranks else self.initial(host, seed)


@dataclasses.dataclass(frozen=True, eq=False)
class _FileExperiment(Experiment):
    """An experiment of which the workload's bytes are a file's."""

    job: Job = dataclasses.field(kw_only=True, repr=False)

    @classmethod
    def of(cls, job: Job) -> _FileExperiment:
        plain = spec.of(yaml_source.parse(json.dumps(_document(job))))
        fields = {each.name: getattr(plain, each.name) for each in dataclasses.fields(plain)}
        return cls(**fields, job=job)

    def workload(self, seed: int) -> Workload:
        job = self.job
        names = [host.name for host in self.plan(seed).plain_hosts]
        ranks = (names.index(job.source), names.index(job.destination))
        return _FileTransfer(ranks, job.size_bytes, job.message_bytes, data=_content(job))


def _content(job: Job) -> npt.NDArray[np.uint8]:
    if job.size_bytes == 0:
        return np.zeros(0, dtype=np.uint8)  # an empty file cannot be mapped
    return np.memmap(job.path, dtype=np.uint8, mode="r", shape=(job.size_bytes,))


def _document(job: Job) -> dict[str, Any]:
    """The experiment, as its file would have it."""
    ends = {"from": job.source, "to": job.destination}
    return {
        "name": job.name,
        "topology": job.topology,
        "faults": list(job.faults),
        "transports": list(job.transports),
        "workload": {
            "kind": PointToPoint.kind,
            **ends,
            "bytes": f"{max(1, job.size_bytes)}B",
            "message": f"{job.message_bytes}B",
        },
        "depth": job.depth,
        "seeds": [job.plan.seed],
        "clock": "virtual",
        "payload": "verify",
        "deadline": _DEADLINE,
    }
