# SPDX-License-Identifier: GPL-2.0-or-later
"""Blame for a run of a run directory, on as many processes as the machine has room for."""

from __future__ import annotations

import os
from collections.abc import Callable

from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.sweep import spec
from softroce_lab.experiment.sweep.pool import InPlace, Processes
from softroce_lab.results.blame import charges, counterfactual
from softroce_lab.results.blame.charges import Blame
from softroce_lab.results.blame.investigation import Investigation

_WORTH_PROCESSES_S = 6.0  # two of them take more than a second to begin


def searched(
    of: Investigation, most_runs: int, progress: Callable[[int], None] = lambda _: None
) -> Blame:
    """What losses cost it, by `most_runs` runs at most. RunError."""
    if of.repeated_s * most_runs < _WORTH_PROCESSES_S:
        return charges.blame(of.subject, InPlace(), most_runs, progress)
    experiment, _ = counterfactual.opened(of.subject.case)
    at_a_time = min(2, os.cpu_count() or 1, max(1, memory.fitting(spec.alone(experiment))))
    pool = Processes(at_a_time)  # more than two have nothing to do: a round needs the one before
    try:
        found = charges.blame(of.subject, pool.executor, most_runs, progress)
        pool.executor.shutdown()
        return found
    finally:
        pool.stop()
