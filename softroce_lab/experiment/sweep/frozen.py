# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep as one file that needs no other: `sweep.json` of its directory.

It is a sweep file, in JSON: each combination is written out with all that it names, as
`experiment.json` of a run directory is, and is a value of the axis `cell`. So its runs have the
numbers that they have in the sweep.
"""

from __future__ import annotations

from typing import Any

from softroce_lab.experiment import frozen
from softroce_lab.experiment.frozen import Keep
from softroce_lab.experiment.sweep.spec import Sweep
from softroce_lab.telemetry.rundir import RunDirectory

FILE = "sweep.json"
CELL = "cell"
MOST_COMBINATIONS = 2_000
_OF_FILE = ("name", "seeds")  # of a sweep's file, not of its experiment


def write(directory: RunDirectory, sweep: Sweep) -> None:
    """Write it, with copies of inputs; nothing for a sweep that is too large. UserError, RunError.

    A file of an earlier call with another sweep is replaced.
    """
    if len(sweep.combinations) > MOST_COMBINATIONS:
        (directory.path / FILE).unlink(missing_ok=True)
        return
    data = document(sweep, frozen.keeper(directory))
    directory.file(FILE, frozen.text(data).encode())


def document(sweep: Sweep, keep: Keep) -> dict[str, Any]:
    """The data of the file."""
    every = [frozen.document(each.experiment, keep) for each in sweep.combinations]
    keys = list(dict.fromkeys(key for data in every for key in data if key not in _OF_FILE))
    varied = [key for key in keys if any(data.get(key) != every[0].get(key) for data in every)]
    cells = {
        each.title or "all": {key: data[key] for key in varied if key in data}
        for each, data in zip(sweep.combinations, every, strict=True)
    }
    # What some cells do not have, none can have from here: no value takes a key away again.
    base = {key: every[0][key] for key in keys if all(key in data for data in every)}
    seeds = sweep.seeds or sweep.combinations[0].experiment.seeds
    return {
        "name": sweep.name,
        "experiment": base,
        "over": {CELL: cells},
        "seeds": list(seeds),
    }
