# SPDX-License-Identifier: GPL-2.0-or-later
"""Several workloads at the same time, each on hosts of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from softroce_lab.experiment.kinds.base import Rails, Setting, Use, WorkloadSpec
from softroce_lab.experiment.transports.written import TransportSpec
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.work import Buffered, Workload

Single = TypeVar("Single", bound=WorkloadSpec)
_BY_JOB = dict.fromkeys(("hosts", "placement", "rail", "rails"), "in the workload of each job")


class JobSpec(Filled, Generic[Single]):
    """A workload with a name, on hosts of its own."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=40, description="Name of the job."
        ),
    ]
    workload: Single = Field(description="Its workload, on hosts of its own.")
    transport: TransportSpec | None = Field(None, description="Its transport. Default: the run's.")


class JobsSpec(WorkloadSpec, Generic[Single]):
    """Several workloads at the same time. A host takes part in one job at most."""

    elsewhere: ClassVar = _BY_JOB

    kind: Literal["jobs"]
    jobs: Annotated[list[JobSpec[Single]], Field(min_length=1, description="The jobs.")]

    @model_validator(mode="after")
    def _named_once(self) -> JobsSpec[Single]:
        names = [job.name for job in self.jobs]
        for name in names:
            if names.count(name) > 1:
                raise KeyedError("jobs", f"two jobs are called {name!r}")
        return self

    def rails_of(self, work: Workload, place: Place = ("workload",)) -> Rails:
        return self._of_jobs(work, place, WorkloadSpec.rails_of)

    def spread(self, work: Workload, place: Place = ("workload",)) -> Rails:
        return self._of_jobs(work, place, WorkloadSpec.spread)

    def _of_jobs(
        self, work: Workload, place: Place, of: Callable[[WorkloadSpec, Workload, Place], Rails]
    ) -> Rails:
        assert isinstance(work, Jobs)  # noqa: S101 - what `build` makes
        found: Rails = {}
        for number, job in enumerate(self.jobs):
            found |= of(job.workload, work.jobs[job.name], (*place, "jobs", number, "workload"))
        return found

    @property
    def own_transports(self) -> Mapping[str, tuple[Place, TransportSpec]]:
        return {
            job.name: (("workload", "jobs", number, "transport"), job.transport)
            for number, job in enumerate(self.jobs)
            if job.transport is not None
        }

    @property
    def has_transports(self) -> bool:
        return all(job.transport is not None for job in self.jobs)

    def uses(self, place: Place) -> Iterator[Use]:
        for number, job in enumerate(self.jobs):
            yield from job.workload.uses((*place, "jobs", number, "workload"))

    def build(self, setting: Setting) -> Jobs:
        found: dict[str, Buffered] = {}
        taken: dict[int, str] = {}
        for number, job in enumerate(self.jobs):
            place = (*setting.place, "jobs", number, "workload")
            seed = stream_key(setting.seed, "job", job.name)
            inner = dataclasses.replace(setting, place=place, seed=seed)
            work = job.workload.build(inner)
            if work.warm_up:
                what = f"job {job.name} has a warm-up, and the others would not wait for it"
                raise inner.error("warm_up", what, hint="leave it out")
            if not isinstance(work, Buffered):
                raise inner.error("kind", f"a {work.name} workload is no job")
            written = job.workload.ranks(inner) if job.workload.hosts else ()
            for host in {*work.ranks, *written}:  # a program may need fewer than are written
                if host in taken:
                    what = f"{setting.names[host]} takes part in {taken[host]}, too"
                    raise inner.error("hosts", what, hint="hosts of its own for each job")
                taken[host] = job.name
            found[job.name] = work
        return Jobs(found)
