# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run --plan`: who sends how much to whom, before anything runs; and as a GOAL file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.spec import Experiment, Overrides
from softroce_lab.telemetry.rundir import give_to_user
from softroce_lab.workloads import graph
from softroce_lab.workloads.goal import writer
from softroce_lab.workloads.programs import Programs
from softroce_lab.workloads.work import Workload

_MOST_FLOWS = 40
_WIDTH = 120


def show(path: Path, overrides: Overrides, goal: Path | None, *, as_json: bool) -> None:
    """Print the traffic of an experiment's first seed, and write it as GOAL. UserError."""
    loaded = spec.load(path, overrides)
    seed = loaded.seeds[0]
    work = loaded.workload(seed)
    names = [host.name for host in loaded.plan(seed).plain_hosts]
    if isinstance(work, Programs):
        what = "programs decide themselves what they send"
        raise UserError(what, hint="lab run --dry-run checks the experiment")
    if goal is not None:
        _write(loaded, work, names, goal)
    about = _document(loaded, work, names)
    if as_json:
        print(json.dumps(about, indent=1))
    else:
        _print(about)


def _write(experiment: Experiment, work: Workload, names: list[str], path: Path) -> None:
    about = [
        f"{experiment.name}: {work.name}, seed {experiment.seeds[0]}, depth: {experiment.depth}"
    ]
    about += [f"rank {rank} is {names[host]}" for rank, host in enumerate(work.ranks)]
    try:
        with path.open("w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in writer.lines(work, about))
        give_to_user(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="--goal FILE") from error


def _document(experiment: Experiment, work: Workload, names: list[str]) -> dict[str, Any]:
    flows = graph.flows(work)
    ends = ("source", "destination")
    return {
        "name": experiment.name,
        "workload": work.name,
        "seed": experiment.seeds[0],
        "hosts": [names[host] for host in work.ranks],
        "messages": sum(flow.messages for flow in flows),
        "bytes": sum(flow.bytes for flow in flows),
        "rounds": max(flow.last_round for flow in flows),
        "flows": [
            dataclasses.asdict(flow) | {end: names[getattr(flow, end)] for end in ends}
            for flow in flows
        ],
    }


def _print(about: dict[str, Any]) -> None:
    print(f"{about['name']}: {about['workload']}, seed {about['seed']}")
    print(
        f"  {units.format_count(about['messages'], 'message')}, "
        f"{units.format_bytes(about['bytes'])}, among {len(about['hosts'])} hosts, "
        f"in {units.format_count(about['rounds'], 'round')}"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("from", "to", "messages", "bytes", "rounds", "not before"):
        table.add_column(heading, justify="left" if heading in ("from", "to") else "right")
    flows = about["flows"]
    for each in flows[:_MOST_FLOWS]:
        first, last = each["first_round"], each["last_round"]
        table.add_row(
            each["source"], each["destination"], f"{each['messages']:,}",
            units.format_bytes(each["bytes"]), f"{first}" if first == last else f"{first}-{last}",
            units.format_duration(each["not_before_ns"]),
        )  # fmt: skip
    Console(width=_WIDTH).print(table)
    if len(flows) > _MOST_FLOWS:
        print(f"  and {len(flows) - _MOST_FLOWS:,} more, all in --json")
