# SPDX-License-Identifier: GPL-2.0-or-later
"""The steps of a run by name: which messages each has, and how long it took.

A step is one of one operation of one job. Its name is STEP, OPERATION:STEP if there are several
operations, and either behind JOB: if there are jobs. A training's step is an operation of its
messages' keys: the step of those keys is a class of traffic there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import UserError
from softroce_lab.results import fabric
from softroce_lab.results.recorded import Columns, Recorded, Run
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.training import Traffic, Training

_SUCCESS = 0
_MOST_NAMED = 12
_NO_JOB = ""

Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One of them."""

    name: str
    job: str  # "" if the run has no jobs
    parts: tuple[str, ...]  # the whole name: job, operation, step; of a training job and step
    of_training: bool

    def is_called(self, parts: Sequence[str]) -> bool:
        """Whether these are its last part and, in their order, some of those before it."""
        before = iter(self.parts[:-1])
        return parts[-1] == self.parts[-1] and all(each in before for each in parts[:-1])


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """Of one run: by jobs, as the experiment lists them, then in the order of their numbers."""

    every: Sequence[Step]
    of_row: Rows  # of each message its step, an index into `every`

    @classmethod
    def of(cls, recorded: Recorded, run: Run, messages: Columns) -> Steps:
        """UserError if the run had jobs, and its experiment was not kept."""
        jobs, job_of_row = _jobs(recorded, run, messages)
        operations, numbers = (messages[name].astype(np.int64) for name in ("operation", "step"))
        trains = np.array([of_training for _, of_training in jobs], bool)[job_of_row]
        keys = np.stack((job_of_row, operations, np.where(trains, 0, numbers)), axis=1)
        unique, of_row = np.unique(keys, axis=0, return_inverse=True)
        operations_of = np.bincount(np.unique(unique[:, :2], axis=0)[:, 0], minlength=len(jobs))
        every = [
            _step(jobs[int(job)], operation, number, several=bool(operations_of[job] > 1))
            for job, operation, number in unique.tolist()
        ]
        return cls(every, of_row.reshape(-1))

    def rows(self, step: int) -> Rows:
        """The messages of a step, by its index."""
        return np.flatnonzero(self.of_row == step)

    def find(self, text: str) -> int:
        """The step of this name, by index; parts that no other needs may be left out. UserError."""
        parts = [part.strip() for part in text.split(":")]
        found = [
            index for index, each in enumerate(self.every)
            if ":".join(parts) in (each.name, ":".join(each.parts))
        ] or [index for index, each in enumerate(self.every) if each.is_called(parts)]  # fmt: skip
        if not found:
            raise UserError(f"there is no step {text}", hint=f"steps are {self._listed()}")
        if len(found) > 1:
            names = _few([self.every[index].name for index in found])
            raise UserError(f"{len(found)} steps are called {text}", hint=f"one of {names}")
        return found[0]

    def _listed(self) -> str:
        """The first and the last of each job."""
        names: dict[str, list[str]] = {}
        for each in self.every:
            names.setdefault(each.job, []).append(each.name)
        ends = [of[0] if len(of) == 1 else f"{of[0]} to {of[-1]}" for of in names.values()]
        return ", ".join(ends[:_MOST_NAMED])

    def times_ns(self, messages: Columns) -> dict[int, int]:
        """Of each step all of whose messages were delivered how long it took, by its index.

        From its first post to its last completion. A training computes before it sends: its step
        lasts from the end of the one before to the arrival of its barrier's last message, as in
        `step_p50_ns`.
        """
        count = len(self.every)
        whole = np.ones(count, bool)
        posted, completed = messages["posted_ns"], messages["completed_ns"]
        np.logical_and.at(whole, self.of_row, (messages["status"] == _SUCCESS) & (posted >= 0))
        begun, over = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(begun, self.of_row, posted)
        np.maximum.at(over, self.of_row, completed)
        barrier = messages["step"] == Traffic.BARRIER
        ended = np.full(count, -1)
        np.maximum.at(ended, self.of_row[barrier], messages["received_ns"][barrier])
        found: dict[int, int] = {}
        for index, each in enumerate(self.every):
            first = not index or self.every[index - 1].job != each.job
            if not whole[index]:
                continue
            if not each.of_training:
                found[index] = int(over[index] - begun[index])
            elif first or whole[index - 1]:
                found[index] = int(ended[index] - (0 if first else ended[index - 1]))
        return found


def _step(of: tuple[str, bool], operation: int, number: int, *, several: bool) -> Step:
    """`of`: its job, and whether that is a training; `several`: the job has several operations."""
    job, of_training = of
    own = (str(operation),) if of_training else (str(operation), str(number))
    named = own if several or of_training else own[-1:]
    before = (job,) if job else ()
    return Step(":".join((*before, *named)), job, (*before, *own), of_training)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    left = len(names) - _MOST_NAMED
    return f"{shown} or {left:,} more" if left > 0 else shown


def _jobs(
    recorded: Recorded, run: Run, messages: Columns
) -> tuple[Sequence[tuple[str, bool]], Rows]:
    """The jobs, and whether each is a training; of each message its job, by index.

    Without jobs the run is the only one. UserError.
    """
    count = len(messages["step"])
    kind = _kind(recorded)
    if kind != "jobs":
        return [(_NO_JOB, kind == Training.name)], np.zeros(count, np.int64)
    experiment = fabric.experiment(recorded.path.resolve())
    seed = int(run["seed"])
    work = experiment.workload(seed)
    if not isinstance(work, Jobs):
        what = "its experiment has no jobs, and its manifest has"
        raise UserError(what, file=str(recorded.path), hint="one of the two files was edited")
    hosts = [host.name for host in experiment.plan(seed).plain_hosts]
    number = {
        hosts[rank]: index for index, job in enumerate(work.jobs.values()) for rank in job.ranks
    }
    jobs = [(name, isinstance(job, Training)) for name, job in work.jobs.items()]
    return jobs, np.array([number[host] for host in messages["source"].tolist()], np.int64)


def _kind(recorded: Recorded) -> str:
    experiment = recorded.manifest.get("experiment") or {}
    return str((experiment.get("workload") or {}).get("kind", ""))
