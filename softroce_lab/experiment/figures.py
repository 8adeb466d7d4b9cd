# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that only some kinds of workloads have, of one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from softroce_lab.experiment import slowdown
from softroce_lab.experiment.alone import Alone
from softroce_lab.experiment.workload_run import (
    FCT,
    OF_WORKLOADS,
    STEPS,
    Flows,
    WorkloadRun,
    few_samples,
    quantile,
)
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.training import Traffic, Training
from softroce_lab.workloads.work import Workload

Asked: TypeAlias = Callable[[], Alone]
"""Prepares the times of flows alone: only open-loop traffic has them."""

_OF_JOBS = (
    "verdict", "messages", "delivered", "measured", "bytes", "makespan_ns", "goodput_bps",
    "operation_p50_ns", "operation_p99_ns", *FCT, *OF_WORKLOADS,
)  # fmt: skip


def added(
    workload: Workload,
    run: WorkloadRun,
    alone: Asked,
    jobs: Mapping[str, tuple[str, Asked]] = MappingProxyType({}),
) -> WorkloadRun:
    """The run, with the figures that this workload has: `workload_run.OF_WORKLOADS`.

    `jobs`: the label of each job's transport, and the times of its flows alone.
    RunError if a flow cannot be measured alone.
    """
    if isinstance(workload, Jobs):
        return _with_jobs(workload, run, jobs)
    if isinstance(workload, OpenLoop):
        return slowdown.added(workload, run, alone())
    return dataclasses.replace(run, figures=_figures(workload, run))


def _with_jobs(
    workload: Jobs, run: WorkloadRun, jobs: Mapping[str, tuple[str, Asked]]
) -> WorkloadRun:
    """The figures of each job's messages: all that a run has of messages.

    Open-loop flows count in the whole as in their job: from the arrival, without the warm-up.
    """
    found, flows, is_open = {}, Flows.of_posts(run.messages), False
    for name, job in workload.jobs.items():
        label, alone = jobs[name]
        mine = np.isin(run.messages["source"], job.ranks)
        part = dataclasses.replace(run, messages=run.messages[mine], problems=())
        part = added(job, part, alone)
        if part.flows is not None:
            flows.put(mine, part.flows)
            is_open = True
        summary = part.summary()
        own = {key: summary[key] for key in _OF_JOBS}
        found[name] = {"transport": label, **own, "few_samples": few_samples(summary)}
    if not is_open:
        return dataclasses.replace(run, jobs=found)
    timed = dataclasses.replace(run, jobs=found, flows=flows)
    return dataclasses.replace(timed, figures=slowdown.figures(timed))


def _figures(workload: Workload, run: WorkloadRun) -> dict[str, Any]:
    once = workload.once if isinstance(workload, Operations) else workload
    if isinstance(once, Collective | Exchange):
        return _of_collective(once, run)
    if isinstance(workload, Training):
        return _of_training(workload, run)
    return {}


def _of_collective(once: Collective | Exchange, run: WorkloadRun) -> dict[str, Any]:
    """As nccl-tests define them (doc/PERFORMANCE.md), for the median operation."""
    time_ns = quantile(run.operation_times_ns(), 500)
    if not time_ns or run.verdict == "failed":
        return {}
    algbw_bps = 8 * 10**9 * once.vector_bytes // time_ns
    return {"algbw_bps": algbw_bps, "busbw_bps": int(algbw_bps * once.bus_factor)}


def _of_training(training: Training, run: WorkloadRun) -> dict[str, Any]:
    """Steps: each from the end of the one before to its own, which is when its barrier is over."""
    if run.verdict == "failed":
        return {}
    barriers = run.messages[run.messages["step"] == Traffic.BARRIER]
    ends_ns = [
        int(barriers[barriers["operation"] == step]["received_ns"].max())
        for step in range(training.steps)
    ]
    times_ns = np.diff(ends_ns, prepend=0)
    busiest_ns = sum(map(training.busiest_ns, range(training.steps)))
    return {
        "steps": len(times_ns),
        **{key: quantile(times_ns, per_mille) for key, per_mille in STEPS.items()},
        "step_waiting": 1 - busiest_ns / ends_ns[-1],
    }
