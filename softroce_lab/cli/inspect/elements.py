# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect node` and `lab inspect link`: one node, or links, in every detail."""

from __future__ import annotations

import collections
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, LabOrFile, print_document, warn_of_damage
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
        print_document(**document)
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
        _print_counters(port["counters"])
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


def _print_counters(counters: dict[str, Any] | None) -> None:
    """Print those that are not 0, in one line."""
    if counters is not None:
        shown = [f"{name} {count:,}" for name, count in counters.items() if count]
        print(f"    {', '.join(shown) or 'nothing counted'}")


# --- Links ----------------------------------------------------------------------------------------


@app.command()
def link(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="LINK",
            help="'a->b', 'a<->b', a node or a node:port; globs.",
            autocompletion=completion.links,
        ),
    ],
    lab: LabOrFile = None,
    as_json: Json = False,
) -> None:
    """Show links: their ends, faults, queues and counters."""
    seen = view.of(lab)
    document = inspection.link_document(seen, pattern)
    if as_json:
        print_document(**document)
    else:
        _print_timeline(document)
        for half in document["links"]:
            _print_half(half)
    warn_of_damage(seen.damage())


def _print_timeline(document: dict[str, Any]) -> None:
    """What moment it is, if a fault that is shown hangs on it."""
    moments = [fault["moment"] for half in document["links"] for fault in half["faults"]]
    if any(moments):
        print(f"timeline at {units.format_duration(document['timeline_ns'])}")


def _print_half(half: dict[str, Any]) -> None:
    near, far = half["from"], half["to"]
    print(f"{near['port']} -> {far['port']}  (directed link {half['directed_link']})")
    for end in (near, far):
        print(f"  {end['port']:24} {end['mac']}  {end['address'] or ''}".rstrip())
    for fault in half["faults"]:
        what = f"  fault {fault['text']}  (rule {fault['rule']}, key {fault['key']})"
        print("  ".join(filter(None, (what, fault["moment"], _hits(fault)))))
    for line in half["tc"]:
        print(f"    {line}")
    _print_counters(half["counters"])
    if half["queued_bytes"]:
        print(f"    queue {units.format_bytes(half['queued_bytes'])}")


def _hits(fault: dict[str, Any]) -> str:
    if fault["hits"] is None:
        return ""
    if fault["seen"] == 0:
        return "no packets yet"
    of = "" if fault["seen"] is None else f" of {fault['seen']:,}"
    return f"hit {fault['hits']:,}{of}"
