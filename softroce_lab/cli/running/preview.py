# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab run` prints without running anything: `--plan`, and `--list` with its transports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli import tables
from softroce_lab.cli.options import print_json
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.spec import Experiment, Overrides
from softroce_lab.experiment.transports import written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.telemetry.rundir import give_to_user
from softroce_lab.transports import knobs
from softroce_lab.transports.options import Option
from softroce_lab.workloads import graph
from softroce_lab.workloads.goal import writer
from softroce_lab.workloads.programs import Programs
from softroce_lab.workloads.work import Workload

_MOST_FLOWS = 40
_WIDTH = 120


def show_traffic(path: Path, overrides: Overrides, goal: Path | None, *, as_json: bool) -> None:
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
    about = _traffic_document(loaded, work, names)
    if as_json:
        print_json(about)
    else:
        _print_traffic(about)


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


def _traffic_document(experiment: Experiment, work: Workload, names: list[str]) -> dict[str, Any]:
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


def _print_traffic(about: dict[str, Any]) -> None:
    print(f"{about['name']}: {about['workload']}, seed {about['seed']}")
    print(
        f"  {units.format_count(about['messages'], 'message')}, "
        f"{units.format_bytes(about['bytes'])}, among {len(about['hosts'])} hosts, "
        f"in {units.format_count(about['rounds'], 'round')}"
    )
    table = tables.table("from<", "to<", "messages", "bytes", "rounds", "not before")
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


# --- lab run --list ------------------------------------------------------------------------------


def print_ready(found: Mapping[str, Sequence[tuple[str, str]]], *, as_json: bool) -> None:
    """Print the ready files of each kind: their names and what they are about."""
    if as_json:
        print_json([
            {"name": name, "kind": kind, "about": about}
            for kind, files in found.items()
            for name, about in files
        ])  # fmt: skip
        return
    for kind, files in found.items():
        print(f"{kind}s")
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, about in files:
            table.add_row(f"  {name}", about.partition(". ")[0].rstrip("."))
        Console().print(table)


def print_settings(names: Sequence[str], *, as_json: bool) -> None:
    """Of these transports, each written as in `--transport`. UserError."""
    chosen = [*written.labelled(written.of_argument(each) for each in names).values()]
    if as_json:
        print_json([_settings_document(each) for each in chosen])
        return
    for number, each in enumerate(chosen):
        if number:
            print()
        _print_settings(_settings_document(each))


def _settings_document(transport: Transport) -> dict[str, Any]:
    """A knob has no default here: that follows from the fabric and the transport."""
    entry = transport.entry
    return {
        "transport": transport.label,
        "knobs": [_setting(each) for each in entry.knobs],
        "options": [
            _setting(each) | {"default": _written(each, each.default)} for each in entry.options
        ],
    }


def _setting(option: Option) -> dict[str, Any]:
    values = "true or false" if isinstance(option.default, bool) else option.bounds()
    if isinstance(option, knobs.MeasurableTimeout):
        values += f", or {knobs.MEASURED}"
    return {"name": option.name, "values": values, "help": option.help}


def _written(option: Option, value: float | str) -> Any:
    """As a file has it: with its unit, if it has one."""
    return option.shown(value) if option.unit else value


def _print_settings(found: dict[str, Any]) -> None:
    label = found["transport"]
    if found["knobs"]:
        print(f"{label}: knobs; docs/explanation/transports.md explains them")
        _print_rows(found["knobs"])
    if found["options"]:
        print(f"{label}: options; in a file options: {{{found['options'][0]['name']}: VALUE}}")
        _print_rows(found["options"])


def _print_rows(settings: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in settings:
        values = each["values"]
        if "default" in each:
            default = each["default"]
            values += f"; default {str(default).lower() if isinstance(default, bool) else default}"
        table.add_row(f"  {each['name']}", escape(values), escape(each["help"]))
    Console().print(table)
