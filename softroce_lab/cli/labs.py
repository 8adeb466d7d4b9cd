# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab up`, `lab down` and `lab ps`: labs come up, go down, and are listed."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from softroce_lab import topology, units
from softroce_lab.cli import completion
from softroce_lab.cli.completion import LAB_VARIABLE
from softroce_lab.cli.options import (
    Json,
    Lab,
    LabArgument,
    Xdp,
    XdpMode,
    either,
    print_document,
    say,
)
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric import runtime
from softroce_lab.fabric.observe import describe
from softroce_lab.plan.plan import Node, Plan

app = typer.Typer(add_completion=False)


@app.command()
def up(
    file: Annotated[
        str,
        typer.Argument(
            help="A topology file, or a built-in topology by name.",
            autocompletion=completion.topologies,
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the lab, instead of FILE's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the faults, instead of FILE's.")] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault profile to add; may be repeated.", autocompletion=completion.profiles
        ),
    ] = None,
    xdp: Xdp = XdpMode.AUTO,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; create nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring up the lab of a topology file; it stays up until `lab down`."""
    plan = topology.load(file, name=name, seed=seed, for_lab=True)
    for profile in faults or ():
        plan = _armed(plan, profile)
    facts: dict[str, Any] = {"state": "planned"}
    if not dry_run:
        begun = time.monotonic()
        with fabric.up(plan, mode=xdp.value, say=say) as made:
            facts = {"state": "up", "xdp": made.mode, "lacks": made.lacks}
            facts["seconds"] = time.monotonic() - begun
    if as_json:
        print_document(**facts, lab=describe.plan_document(plan))
    else:
        _print_plan(plan, facts)


def _armed(plan: Plan, where: str) -> Plan:
    # Imported late: most labs come up without a profile.
    from softroce_lab.faults import profile, resolve

    return resolve.arm(plan, profile.load(where))


def _print_plan(plan: Plan, facts: dict[str, Any]) -> None:
    how = f" ({facts['xdp']} XDP, {facts['seconds']:.2f} s)" if "xdp" in facts else ""
    switches = len(plan.nodes) - len(plan.hosts)
    things = ((len(plan.hosts), "host"), (switches, "switch"), (len(plan.links), "link"))
    counts = ", ".join(units.format_count(number, thing) for number, thing in things)
    print(f"{plan.name} {facts['state']}: {counts}{how}")
    rails = {node.name: _rails(node) for node in plan.nodes}
    width = max(15, *map(len, rails.values()))
    for node in plan.nodes:
        print(f"  {node.name:15} {node.kind:6} {rails[node.name]:{width}} {node.namespace}")
    if plan.faults and facts["state"] == "up":
        words = sorted({fault.word for fault in plan.faults})
        print(f"  faults: {', '.join(words)}; `lab fault show` tells what they do")
    elif plan.faults:
        _print_faults(plan)


def _rails(node: Node) -> str:
    return " ".join(port.address for port in node.ports if port.address) or "-"


def _print_faults(plan: Plan) -> None:
    # Imported late, as above.
    from softroce_lab.faults import lines

    print("  faults")
    for rule in lines.rules(plan.faults):
        print(f"    {rule.on(plan)}")


# --- lab down -------------------------------------------------------------------------------------


@app.command()
def down(
    name: LabArgument = None,
    lab: Lab = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Take down every lab.")] = False,
) -> None:
    """Take down the lab LAB, the only lab, or all of them. Commands of `lab exec` end with it."""
    name = either(name, lab)
    if all_labs and name not in (None, os.environ.get(LAB_VARIABLE)):
        raise UserError(f"--all: no effect with the name {name}", hint="give one of them")
    if all_labs:
        for each in runtime.down_all(say):
            print(f"{each} down")
        return
    name = name or runtime.only()
    runtime.down(name, say)
    print(f"{name} down")


# --- lab ps ---------------------------------------------------------------------------------------


@app.command()
def ps(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[LAB]",
            help="Show only this lab, with its nodes.",
            autocompletion=completion.labs,
        ),
    ] = None,
    lab: Lab = None,
    as_json: Json = False,
) -> None:
    """Show all labs, or one of them in detail; exit with 1 if one is damaged."""
    name = either(name, lab)
    if name is not None:
        runtime.existing(name)
    found = [each for each in runtime.labs() if name in (None, each.name)]
    documents = [describe.lab_document(condition) for condition in found]
    if as_json:
        print_document(labs=documents)
    elif not documents:
        say("no lab is up")
    else:
        for document in documents:
            _print_lab(document)
            if name is not None:
                _print_details(document)
    if any(document["damage"] for document in documents):
        raise typer.Exit(ExitCode.FAILED)


def _print_lab(document: dict[str, Any]) -> None:
    plan = document["plan"] or {"nodes": [], "links": []}
    things = ((len(plan["nodes"]), "node"), (len(plan["links"]), "link"))
    counts = ", ".join(units.format_count(number, thing) for number, thing in things)
    notes = (
        document["problem"],
        document["remains"] and f"{document['remains']}: lab doctor --clean",
        document["owner_pid"] and f"owned by process {document['owner_pid']}",
        "in use" if document["busy"] else None,
    )
    state = "damaged" if document["damage"] else document["state"]
    print("  ".join([f"{document['name']:20} {state:10} {counts}", *filter(None, notes)]))
    for lost in document["damage"]:
        print(f"  {lost['what']}: {lost['hint']}")


def _print_details(document: dict[str, Any]) -> None:
    plan = document["plan"] or {"nodes": [], "links": []}
    for node in plan["nodes"]:
        print(
            f"  {node['name']:15} {node['kind']:6} {node['address'] or '-':15} "
            f"{node['namespace']:20} {' '.join(node['ports'])}"
        )
    for near, far in plan["links"]:
        print(f"  {near} - {far}")
    for capability in document["lacks"]:
        print(f"  without {capability}")
    for process in document["processes"]:
        print(
            f"  {process['role']}: process {process['pid']}"
            f"{'' if process['alive'] else ', which has ended'}"
        )
