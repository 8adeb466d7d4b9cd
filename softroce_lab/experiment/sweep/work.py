# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a sweep, wherever it is carried out: a task in, a row out, whatever happens."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, TypeAlias

from softroce_lab.errors import LabError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import virtual
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.sweep.schema import ERROR
from softroce_lab.experiment.sweep.spec import Recipe, Task, alone

Row: TypeAlias = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What is done with a task."""

    keep: str | None = None  # the folder that run directories are kept in

    def __call__(self, task: Task) -> Row:
        """Run it. A mistake, of the user's or of ours, is a row that shows it."""
        began_s, cpu_s = time.perf_counter(), _cpu_s()
        try:
            row = self._run(task)
        except LabError as error:
            row = unfinished(task, str(error))
        except Exception as error:  # a bug of ours: the other runs go on
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            row = unfinished(task, f"crashes: {type(error).__name__}: {error} ({where})")
        spent_s = row.pop("cpu_s", None) or _cpu_s() - cpu_s
        wall_s = time.perf_counter() - began_s
        return row | {"wall_s": round(wall_s, 6), "cpu_s": round(spent_s, 6)}

    def _run(self, task: Task) -> Row:
        experiment = _experiment(task.recipe)
        single = dataclasses.replace(experiment, transports=(task.transport,), seeds=(task.seed,))
        if experiment.clock == "virtual" and self.keep is None:
            found = virtual.run(experiment, task.transport, task.seed, lambda _: None)
            cost = {"cpu_s": found.cost.get("cpu_s")}  # of a process of its own
            return {**found.summary(), "notes": experiment_run.notes(single), **cost}
        with tempfile.TemporaryDirectory(prefix="softroce-lab-sweep-") as unwanted:
            under = Path(self.keep or unwanted)
            outcome = experiment_run.run(single, Silent(), under=under)
        kept = {"run_dir": str(outcome.directory)} if self.keep else {}
        more = {"notes": outcome.notes, "cpu_s": outcome.runs[0].cost.get("cpu_s"), **kept}
        return {**outcome.runs[0].summary(), **more}


def unfinished(task: Task, reason: str) -> Row:
    """The row of a run that there is no result of."""
    return {
        "transport": task.transport.label,
        "seed": task.seed,
        "verdict": ERROR,
        "reasons": [reason],
    }


@functools.lru_cache(maxsize=2)
def _experiment(recipe: Recipe) -> Experiment:
    """Of one combination come all transports and seeds, one after the other.

    UserError if there is no memory for one of its runs.
    """
    experiment = recipe.experiment()
    memory.check_fits(alone(experiment))
    return experiment


def _cpu_s() -> float:
    """Of this thread: a cluster may run several tasks in the threads of one process."""
    return time.thread_time()
