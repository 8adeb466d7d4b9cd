# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic that is too short for its largest flows: the load leaves no room for them.

A host's flows are drawn until their bytes are those of the load (`workloads/open_loop.py`). Where
these are few beside the largest size, large flows are rarer than in the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from softroce_lab import units
from softroce_lab.experiment.spec import Experiment
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.work import Workload

LEAST_TIMES = 2
"""How many times the largest size a host is to send, at least."""


def notes(experiment: Experiment) -> list[str]:
    """A line for each such workload, with the place of its duration."""
    found = []
    for place, work in _workloads(experiment.workload(experiment.seeds[0])):
        if (why := _too_short(work)) is not None:
            where = (*place, "duration")
            found.append(str(experiment.source.error(where, why)))
    return found


def _workloads(work: Workload) -> Iterator[tuple[Place, OpenLoop]]:
    """Those of this kind, and where the file has them."""
    if isinstance(work, OpenLoop):
        yield ("workload",), work
    if isinstance(work, Jobs):
        for number, job in enumerate(work.jobs.values()):
            for place, each in _workloads(job):
                yield ("workload", "jobs", number, *place), each


def _too_short(work: OpenLoop) -> str | None:
    share = 1 - work.incast.share if work.incast else 1
    bytes_a_ns = work.load * share * min(work.rates_bps) / (8 * 10**9)
    sent, largest = bytes_a_ns * work.duration_ns, work.sizes.largest
    if sent >= LEAST_TIMES * largest:
        return None
    enough = units.format_duration(math.ceil(LEAST_TIMES * largest / bytes_a_ns))
    return (
        f"in {units.format_duration(work.duration_ns)} a host sends about "
        f"{units.format_bytes(float(sent))}, the largest flow has {units.format_bytes(largest)}: "
        f"large flows are too rare ({enough} or more, or smaller sizes)"
    )
