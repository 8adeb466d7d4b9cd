# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a run directory that pages and plots draw: arrays, without a word about how."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import UserError
from softroce_lab.results.recorded import Columns, Recorded

_SUCCESS = 0
Times = npt.NDArray[np.int64]


def completion_times(recorded: Recorded) -> dict[str, Times]:
    """Of each transport's measured messages, all seeds together; nanoseconds.

    Of open-loop traffic from a flow's arrival. Those of a warm-up are left out.
    """
    found: dict[str, Times] = {}
    for name in dict.fromkeys(run["transport"] for run in recorded.runs):
        runs = [run for run in recorded.runs if run["transport"] == name]
        parts = [taken_ns(recorded.table("messages", run)) for run in runs]
        found[name] = np.concatenate(parts)
    return found


def taken_ns(messages: Columns) -> Times:
    """Of the measured messages of one run."""
    taken: Times = since_begun_ns(messages)[measured(messages)]
    return taken


def measured(messages: Columns) -> npt.NDArray[np.bool_]:
    """Which messages of a run have times: as `WorkloadRun.measured`, of which percentiles are.

    Those delivered, without those of a warm-up. UserError for a table of open-loop traffic that
    does not have that yet.
    """
    delivered: npt.NDArray[np.bool_] = messages["status"] == _SUCCESS
    if "after_warm_up" in messages:
        after: npt.NDArray[np.bool_] = messages["after_warm_up"]
        return delivered & after
    if "arrival_ns" in messages:
        what = "messages.parquet is of another schema: it has no after_warm_up"
        raise UserError(what, hint="lab results rerun makes it again")
    return delivered


def since_begun_ns(messages: Columns) -> Times:
    """Of every message, to its end from its post, or from a flow's arrival."""
    times: Times = messages["completed_ns"] - messages.get("arrival_ns", messages["posted_ns"])
    return times
