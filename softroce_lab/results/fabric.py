# SPDX-License-Identifier: GPL-2.0-or-later
"""The fabric of a run directory: its plan again, from `experiment.json`."""

from __future__ import annotations

import functools
from pathlib import Path

from softroce_lab.errors import UserError
from softroce_lab.experiment import frozen, spec
from softroce_lab.experiment.spec import Experiment
from softroce_lab.plan.plan import Plan
from softroce_lab.results.recorded import Recorded


def kept(folder: Path, hint: str | None = None) -> Path:
    """The file of the experiment that a run directory holds. UserError if it is missing."""
    path = folder / frozen.FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: the experiment was not kept", hint=hint)
    return path


@functools.lru_cache(maxsize=4)
def experiment(folder: Path) -> Experiment:
    """The experiment of a run directory without its transports: nothing of it is executed.

    UserError if it is missing or does not fit.
    """
    return spec.recorded(kept(folder))


def plan(recorded: Recorded, seed: int | None = None) -> Plan:
    """The plan of a seed, by default the first. UserError."""
    found = experiment(recorded.path.resolve())
    return found.plan(found.seeds[0] if seed is None else seed)


def addresses(recorded: Recorded) -> dict[str, str]:
    """Host by the IPv4 address of each of its rails; {}: the experiment was not kept."""
    try:
        hosts = plan(recorded).hosts
    except UserError:
        return {}
    return {str(port.address): host.name for host in hosts for port in host.ports}
