# SPDX-License-Identifier: GPL-2.0-or-later
"""Slowdown of open-loop traffic: a flow's time until it is there, over its time alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.alone import Alone
from softroce_lab.experiment.messages import NEVER_NS
from softroce_lab.experiment.workload_run import (
    SIZE_CLASSES,
    SLOWDOWN,
    Flows,
    WorkloadRun,
    ratio_quantile,
)
from softroce_lab.workloads.open_loop import OpenLoop


def added(workload: OpenLoop, run: WorkloadRun, alone: Alone) -> WorkloadRun:
    """The run, with its flows' times and its figures; of one without deliveries no time alone.

    RunError if a flow cannot be measured alone.
    """
    load = {
        "offered_load": float(workload.offered_load),
        "measured_load": float(workload.measured_load),
    }
    flows = workload.flows
    alone_ns = np.full(len(flows), NEVER_NS)
    if len(run.done):
        hosts = np.array(workload.ranks)
        ends = hosts[flows["source"]], hosts[flows["destination"]]
        alone_ns = alone.times_ns(*ends, flows["bytes"])
    timed = dataclasses.replace(run, flows=Flows(flows["at_ns"], workload.warm, alone_ns))
    return dataclasses.replace(timed, figures=load | figures(timed))


def figures(run: WorkloadRun) -> dict[str, Any]:
    """Of all open-loop flows of a run, also of several jobs; {} if nothing was delivered."""
    if not len(run.done):
        return {}
    ratios, sizes = run.slowdowns(), run.messages["bytes"][run.compared]
    return {
        **{key: ratio_quantile(ratios, at) for key, at in SLOWDOWN.items()},
        "slowdown": _by_class(sizes, ratios),
    }


def _by_class(
    sizes: npt.NDArray[np.int64], ratios: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Of all classes, with or without flows."""
    number = np.searchsorted(list(SIZE_CLASSES.values()), sizes)
    found = []
    for at, name in enumerate(SIZE_CLASSES):
        own = ratios[number == at]
        p50, p99 = (ratio_quantile(own, per_mille) for per_mille in SLOWDOWN.values())
        found.append({"size_class": name, "n": len(own), "p50": p50, "p99": p99})
    return found
