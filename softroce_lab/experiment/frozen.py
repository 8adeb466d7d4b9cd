# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment as one file that needs no other: `experiment.json` of a run directory.

It is an experiment file, in JSON, which is YAML: `lab run` takes it. What the original named is
written out (topology, fault profiles), and what it read is copied beside it into `inputs/`
(policies, GOAL files). A `file` workload's payload stays where it is, by its absolute path.
What verbs that read or repeat the run may do with it: `trust.py`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.experiment.spec import Experiment, named_topology
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults import profile
from softroce_lab.inputs.yaml_source import Data, Decimal
from softroce_lab.telemetry.rundir import RunDirectory

FILE = "experiment.json"
INPUTS = "inputs"

Keep = Callable[[Path], str]
"""Copies a file, and returns its path relative to the run directory."""


def write(directory: RunDirectory, experiment: Experiment) -> None:
    data = document(experiment, keeper(directory))
    directory.file(FILE, text(data).encode())


def keeper(directory: RunDirectory) -> Keep:
    """What copies files into a directory; equal ones once. UserError, RunError."""

    def keep(path: Path) -> str:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        name = f"{INPUTS}/{path.name}"
        number = 1
        while (directory.path / name).exists():
            if (directory.path / name).read_bytes() == content:
                return name
            number += 1
            name = f"{INPUTS}/{number}-{path.name}"
        directory.file(name, content)
        return name

    return keep


def document(experiment: Experiment, keep: Keep) -> dict[str, Any]:
    data: dict[str, Any] = copy.deepcopy(experiment.source.data)
    faults = [each for one in data.get("faults") or () for each in _written_faults(one)]
    if isinstance(experiment.raw.topology, str):
        named = named_topology(experiment.raw.topology, experiment.source).data
        data["topology"] = named["topology"]
        for key in ("lb", "mtu"):
            if data.get(key) is None and key in named:
                data[key] = named[key]
        faults = [*copy.deepcopy(_listed(named.get("faults"))), *faults]
    if faults:
        data["faults"] = faults
    data["clock"], data["seeds"] = experiment.clock, list(experiment.seeds)
    data["payload"] = experiment.payload
    if not experiment.raw.workload.has_transports:
        data["transports"] = [_transport(each, keep) for each in experiment.transports]
    _workload(data["workload"], experiment, keep)
    return data


def _listed(faults: Data) -> list[Any]:
    return faults if isinstance(faults, list) else []


def _written_faults(fault: Data) -> list[Any]:
    """A rule as it is; of a profile's name, its rules."""
    return _listed(profile.load(fault).source.data["faults"]) if isinstance(fault, str) else [fault]


def _transport(transport: Transport, keep: Keep) -> dict[str, Any]:
    name: dict[str, Any] = {"name": transport.name}
    if transport.file is not None:
        name = {"policy": f"./{keep(Path(transport.file))}:{transport.name}"}
    chosen = {"congestion_control": transport.congestion_control, "framing": transport.framing}
    if transport.options:
        chosen["options"] = transport.options  # type: ignore[assignment]
    given = {key: value for key, value in chosen.items() if value is not None}
    return name | {"label": transport.label} | given | dict(transport.set_knobs)


def _workload(data: dict[str, Any], experiment: Experiment, keep: Keep) -> None:
    folder = Path(experiment.source.file or "").parent.absolute()
    for job in data.get("jobs", ()):
        _workload(job["workload"], experiment, keep)
        transport = experiment.job_transports.get(job["name"])
        if transport is not None and transport.file is not None:
            job["transport"] = _transport(transport, keep)
    if data["kind"] == "goal" and "file" in data:
        data["file"] = keep(folder / data["file"])
    elif data["kind"] == "file":
        data["path"] = str(folder / data["path"])
        data.pop("save", None)  # a second run does not write over the first one's


_MARKED = re.compile(r'"\\u0000([-+.0-9eE]+)"')


def text(data: dict[str, Any]) -> str:
    """JSON; numbers with a point as they were written: 6.10 is a kernel's version."""
    marked = json.dumps(_decimals_marked(data), indent=1)
    return _MARKED.sub(r"\1", marked) + "\n"


def _decimals_marked(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"\0{value}"
    if isinstance(value, dict):
        return {key: _decimals_marked(each) for key, each in value.items()}
    return [_decimals_marked(each) for each in value] if isinstance(value, list) else value
