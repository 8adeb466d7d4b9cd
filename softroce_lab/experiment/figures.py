# SPDX-License-Identifier: GPL-2.0-or-later
"""What figures need of a workload, added to one run: loads, bandwidths, steps, times of flows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from softroce_lab.experiment.alone import Alone
from softroce_lab.experiment.figure_table import COLLECTIVES, FIGURES, few_samples, quantile
from softroce_lab.experiment.messages import NEVER_NS
from softroce_lab.experiment.workload_run import Flows, WorkloadRun
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.training import Traffic, Training
from softroce_lab.workloads.work import Workload

Asked: TypeAlias = Callable[[], Alone]
"""Prepares the times of flows alone: only open-loop traffic has them."""


def added(
    workload: Workload,
    run: WorkloadRun,
    alone: Asked,
    jobs: Mapping[str, tuple[str, Asked]] = MappingProxyType({}),
) -> WorkloadRun:
    """The run, with what the figures of this workload are computed from.

    `jobs`: the label of each job's transport, and the times of its flows alone.
    RunError if a flow cannot be measured alone.
    """
    if isinstance(workload, Jobs):
        return _with_jobs(workload, run, jobs)
    if isinstance(workload, OpenLoop):
        return _with_flows(workload, run, alone)
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
        own = {key: summary[key] for key, figure in FIGURES.items() if figure.of_messages}
        found[name] = {"transport": label, "verdict": part.verdict, **own,
                       "few_samples": few_samples(summary)}  # fmt: skip
    return dataclasses.replace(run, jobs=found, flows=flows if is_open else None)


def _with_flows(workload: OpenLoop, run: WorkloadRun, alone: Asked) -> WorkloadRun:
    """With each flow's time alone on the empty fabric; without deliveries no flow has one."""
    load = {
        "offered_load": float(workload.offered_load),
        "measured_load": float(workload.measured_load),
    }
    flows = workload.flows
    alone_ns = np.full(len(flows), NEVER_NS)
    if len(run.done):
        hosts = np.array(workload.ranks)
        ends = hosts[flows["source"]], hosts[flows["destination"]]
        alone_ns = alone().times_ns(*ends, flows["bytes"])
    timed = Flows(flows["at_ns"], workload.warm, alone_ns)
    return dataclasses.replace(run, flows=timed, figures=load)


def _figures(workload: Workload, run: WorkloadRun) -> dict[str, Any]:
    once = workload.once if isinstance(workload, Operations) else workload
    if run.verdict == "failed":
        return {}
    if isinstance(once, COLLECTIVES.types):
        return _of_collective(once, run)
    return _of_training(workload, run) if isinstance(workload, Training) else {}


def _of_collective(once: Any, run: WorkloadRun) -> dict[str, Any]:
    """As nccl-tests define them (doc/PERFORMANCE.md), for the median operation."""
    time_ns = quantile(run.operation_times_ns(), 500)
    if not time_ns:
        return {}
    algbw_bps = 8 * 10**9 * once.vector_bytes // time_ns
    return {"algbw_bps": algbw_bps, "busbw_bps": int(algbw_bps * once.bus_factor)}


def _of_training(training: Training, run: WorkloadRun) -> dict[str, Any]:
    """Steps: each from the end of the one before to its own, which is when its barrier is over."""
    barriers = run.messages[run.messages["step"] == Traffic.BARRIER]
    ends_ns = [
        int(barriers[barriers["operation"] == step]["received_ns"].max())
        for step in range(training.steps)
    ]
    busiest_ns = sum(map(training.busiest_ns, range(training.steps)))
    return {
        "steps": training.steps,
        "step_times_ns": np.diff(ends_ns, prepend=0),
        "step_waiting": 1 - busiest_ns / ends_ns[-1],
    }
