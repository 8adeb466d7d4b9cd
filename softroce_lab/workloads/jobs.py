# SPDX-License-Identifier: GPL-2.0-or-later
"""Several workloads on one fabric at the same time, each on hosts of its own."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import UINT8, Buffer, Message
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.work import Buffered


class Jobs(Buffered):
    """Workloads by their names. All begin with the run."""

    dtype = UINT8

    def __init__(self, jobs: Mapping[str, Buffered]) -> None:
        """ValueError for a host that takes part in two of them."""
        self.jobs = dict(jobs)
        self.ranks = tuple(host for each in self.jobs.values() for host in each.ranks)
        if len(set(self.ranks)) < len(self.ranks):
            raise ValueError("a host takes part in one job")

    @property
    def name(self) -> str:
        return "jobs"

    @property
    def message_count(self) -> int:
        return sum(each.message_count for each in self.jobs.values())

    @property
    def longest_message_bytes(self) -> int:
        return max(each.longest_message_bytes for each in self.jobs.values())

    @functools.cached_property
    def _job_of(self) -> Mapping[int, tuple[str, Buffered]]:
        return {host: job for job in self.jobs.items() for host in job[1].ranks}

    def buffer_bytes_of(self, host: int) -> int:
        return self._job_of[host][1].buffer_bytes_of(host) if host in self._job_of else 0

    def messages(self) -> Iterator[Message]:
        for each in self.jobs.values():
            yield from each.messages()

    def schedule(self) -> Schedule:
        whole = Schedule(())
        for each in self.jobs.values():
            part = each.schedule()
            whole.of.update(part.of)
            whole.messages += part.messages
        return whole

    def initial(self, host: int, seed: int) -> Buffer:
        if host not in self._job_of:
            return np.zeros(0, dtype=UINT8)
        name, job = self._job_of[host]
        return job.initial(host, stream_key(seed, "job", name))

    def expected(self, host: int, seed: int) -> Buffer:
        if host not in self._job_of:
            return np.zeros(0, dtype=UINT8)
        name, job = self._job_of[host]
        return job.expected(host, stream_key(seed, "job", name))
