# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab up`: bring a topology up and prove every link of it."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from softroce_lab import topology, units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, Xdp, XdpMode
from softroce_lab.fabric import lab
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
        with lab.up(plan, mode=xdp.value, say=_say) as made:
            facts = {"state": "up", "xdp": made.mode, "lacks": made.lacks}
            facts["seconds"] = time.monotonic() - begun
    if as_json:
        document = {"schema_version": describe.SCHEMA_VERSION, **facts}
        print(json.dumps(document | {"lab": describe.plan_document(plan)}, indent=1))
    else:
        _print(plan, facts)


def _armed(plan: Plan, where: str) -> Plan:
    # Imported late: most labs come up without a profile.
    from softroce_lab.faults import profile, resolve

    return resolve.arm(plan, profile.load(where))


def _say(text: str) -> None:
    typer.echo(f"lab: {text}", err=True)


def _print(plan: Plan, facts: dict[str, Any]) -> None:
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
