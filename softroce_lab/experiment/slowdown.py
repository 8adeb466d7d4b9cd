# SPDX-License-Identifier: GPL-2.0-or-later
"""Slowdown of open-loop traffic: a flow's time until it is there, over its time alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.alone import Alone
from softroce_lab.experiment.workload_run import (
    SIZE_CLASSES,
    SLOWDOWN,
    Flows,
    WorkloadRun,
    ratio_quantile,
)
from softroce_lab.workloads.open_loop import OpenLoop


def added(workload: OpenLoop, run: WorkloadRun, alone: Alone) -> WorkloadRun:
    """The run, with its flows' times and its figures; a run without deliveries has the load alone.

    RunError if a flow cannot be measured alone.
    """
    load = {
        "offered_load": float(workload.offered_load),
        "measured_load": float(workload.measured_load),
    }
    if not len(run.done):
        return dataclasses.replace(run, figures=load)
    flows = workload.flows
    hosts = np.array(workload.ranks)
    alone_ns = alone.times_ns(hosts[flows["source"]], hosts[flows["destination"]], flows["bytes"])
    timed = dataclasses.replace(run, flows=Flows(flows["at_ns"], workload.warm, alone_ns))
    ratios = timed.slowdowns()
    sizes = flows["bytes"][timed.measured]
    figures = {
        **load,
        **{key: ratio_quantile(ratios, at) for key, at in SLOWDOWN.items()},
        "slowdown": list(_by_class(sizes, ratios)),
    }
    return dataclasses.replace(timed, figures=figures)


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
