# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect node`: one node in every detail."""

from __future__ import annotations

import collections
import json
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, LabOrFile, warn_of_damage
from softroce_lab.fabric.observe import describe, inspection, view

app = typer.Typer(add_completion=False)


@app.command()
def node(
    name: Annotated[
        str, typer.Argument(metavar="NODE", help="Such as h1.", autocompletion=completion.nodes)
    ],
    lab: LabOrFile = None,
    as_json: Json = False,
) -> None:
    """Show a node: its ports, addresses, routes and counters."""
    seen = view.of(lab)
    document = inspection.node_document(seen, name)
    if as_json:
        print(json.dumps({"schema_version": describe.SCHEMA_VERSION, **document}, indent=1))
    else:
        _print_node(document["node"])
    warn_of_damage(seen.damage())


def _print_node(node: dict[str, Any]) -> None:
    print(f"{node['kind']} {node['name']}, tier {node['tier']}, namespace {node['namespace']}")
    if node["kernel_host"]:
        print(describe.kernel_host_line(node["kind"], node["kernel_host"]))
    for port in node["ports"]:
        ends = f"{port['mac']}  to {port['peer']}"
        addresses = filter(None, (port["address"], port["address6"]))
        print("  ".join([f"  {port['name']:15} {port['ifindex']:5}  {ends}", *addresses]))
        show_counters(port["counters"])
    for qp in node["shift"]:
        _print_with_backup(qp)
    if node["routes"]:
        print("routes")
    for ports, hosts in _grouped(node["routes"]).items():
        print(f"  {ports or 'nowhere'}: {', '.join(hosts)}")


def _print_with_backup(qp: dict[str, Any]) -> None:
    """A queue pair with a backup: its states, then its newest transitions."""
    ends = f"{qp['port']} qp {qp['qp']} to {qp['peer']} qp {qp['peer_qp']}"
    ago = units.format_duration(qp["ago_ns"])
    print(f"shift {ends}: {qp['sender']}, receiver {qp['receiver']}, epoch {qp['epoch']}")
    print(f"    {ago} ago: {qp['why']}; {units.format_count(qp['transitions'], 'transition')}")
    for row in qp["newest"]:
        if row["before"] != row["after"]:
            print(f"    {row['side']} {row['before']} -> {row['after']}: {row['why']}")


def _grouped(routes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Equal-cost ports -> the hosts that they lead to."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for route in routes:
        found[" ".join(route["ports"])].append(f"{route['host']} {route['destination']}")
    return found


def show_counters(counters: dict[str, Any] | None) -> None:
    """Print those that are not 0, in one line."""
    if counters is not None:
        shown = [f"{name} {count:,}" for name, count in counters.items() if count]
        print(f"    {', '.join(shown) or 'nothing counted'}")
