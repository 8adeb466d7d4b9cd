# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fault`: change faults while traffic runs, and see what they achieve."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json
from softroce_lab.errors import UserError
from softroce_lab.fabric import achieved, faults, view
from softroce_lab.fabric.achieved import Achieved
from softroce_lab.fabric.faults import FaultControl
from softroce_lab.fabric.rights import needing_root
from softroce_lab.fabric.view import View
from softroce_lab.fabric.wire import WireStage
from softroce_lab.faults import live, profile, resolve, text
from softroce_lab.topology.plan import Plan

app = typer.Typer(add_completion=False, no_args_is_help=True)

Link = Annotated[
    str, typer.Argument(metavar="LINK", help="a->b, a<->b, a node or a node:port; globs.")
]
LabName = Annotated[str | None, typer.Option("--lab", help="The lab, when several are up.")]
_WORDS = {"ignore_unknown_options": True}  # "-5ms" is a negative delay, not an option


@app.callback()
def fault() -> None:
    """Set, show and clear faults of a lab that is up, while traffic runs."""


@app.command("set", context_settings=_WORDS)
def set_(
    link: Link,
    words: Annotated[
        list[str], typer.Argument(metavar="FAULT...", help="In tc's words: loss 1% delay 10ms 1ms.")
    ],
    lab: LabName = None,
    seed: Annotated[int | None, typer.Option(help="Of the faults' streams, not the lab's.")] = None,
    as_json: Json = False,
) -> None:
    """Set the faults that are named, on these links; all others stay as they are."""
    wanted = live.parse_impairments(words)
    _change(
        lab,
        lambda plan: live.set_on(plan, resolve.links_of(plan, link), wanted, seed=seed),
        as_json=as_json,
    )


@app.command()
def clear(
    link: Annotated[
        str | None, typer.Argument(metavar="[LINK]", help="As for set; none: every link.")
    ] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="loss, delay ...; none: all.")
    ] = None,
    lab: LabName = None,
    as_json: Json = False,
) -> None:
    """Clear these faults, or all, from these links, or all."""
    named = live.parse_cleared(words) if words else None
    _change(lab, lambda plan: live.clear_on(plan, _links(plan, link), named), as_json=as_json)


@app.command()
def apply(
    file: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A fault profile, or a ready one.")
    ],
    lab: LabName = None,
    as_json: Json = False,
) -> None:
    """Add the faults of a profile to those that are set."""
    rules = profile.load(file)
    _change(lab, lambda plan: _without_timeline(resolve.arm(plan, rules)), as_json=as_json)


@app.command()
def show(
    link: Annotated[
        str | None, typer.Argument(metavar="[LINK]", help="As for set; none: every link.")
    ] = None,
    lab: LabName = None,
    as_json: Json = False,
) -> None:
    """Show what faults were asked to do, beside what they have achieved since they were set."""
    seen = view.of_lab(lab)
    with needing_root(), seen.maps() as xdp, _stage(seen) as stage:
        found = list(achieved.look(seen.plan, xdp, stage, _links(seen.plan, link)))
    if as_json:
        print(
            json.dumps({"lab": seen.plan.name, "faults": [a.document() for a in found]}, indent=1)
        )
    elif not found:
        print(f"{seen.plan.name}: no faults{f' on {link}' if link else ''}")
    else:
        _print(found)


def _links(plan: Plan, pattern: str | None) -> tuple[int, ...]:
    if pattern is not None:
        return resolve.links_of(plan, pattern)
    return tuple(range(2 * len(plan.links)))


def _without_timeline(plan: Plan) -> Plan:
    """A lab follows the timeline of links that go down only if it came up with one."""
    if faults.next_turn_ns(plan, -1) is not None:
        raise UserError(
            "a profile whose links go down and up by a timeline is for a lab that comes up",
            hint="lab up FILE --faults PROFILE",
        )
    return plan


@contextlib.contextmanager
def _stage(seen: View) -> Iterator[WireStage | None]:
    if not faults.shaped(seen.plan):
        yield None
        return
    with WireStage(seen.directory) as stage:
        yield stage


def _change(lab: str | None, alter: Callable[[Plan], Plan], *, as_json: bool) -> None:
    seen = view.of_lab(lab)
    condition = seen.condition
    if condition is None:
        raise UserError("no lab is up", hint="lab up FILE")
    with needing_root(), seen.maps() as xdp:
        control = FaultControl(seen.directory, xdp, lambda node: view.namespace_of(condition, node))
        plan = control.change(alter, time.monotonic_ns)
    documents = text.documents(plan)
    if as_json:
        print(json.dumps({"lab": plan.name, "faults": documents}, indent=1))
    else:
        for document in documents:
            print(f"{document['fault']}  ({document['rule']}) on {_listed(document['links'])}")
        if not documents:
            print(f"{plan.name}: no faults")


def _listed(links: Any) -> str:
    return ", ".join(links[:4]) + (f" and {len(links) - 4} more" if len(links) > 4 else "")


# --- What `show` prints -----------------------------------------------------------------------


def _print(found: list[Achieved]) -> None:
    for link in dict.fromkeys(item.link for item in found):
        print(link)
        for item in found:
            if item.link == link:
                print(f"  {text.text(item.fault)}  ({item.fault.rule}, key {item.fault.key})")
                print(f"    {_compared(item.document())}")


def _compared(document: dict[str, Any]) -> str:
    asked, got = document["requested"], document["achieved"]
    if got is None:
        return "nothing yet"
    if "residence_ns" in got:
        spread = ", ".join(f"{p} {_time(ns)}" for p, ns in got["residence_ns"].items())
        late = ", ".join(f"{p} {_time(ns)}" for p, ns in got["late_ns"].items())
        return f"{got['released']} frames; time on the link {spread}; released late by {late}"
    if "rate_bps" in got:
        rate = "-" if got["rate_bps"] is None else units.format_rate(got["rate_bps"])
        most = units.format_bytes(got["most_waiting_bytes"])
        return (
            f"{rate} of {units.format_rate(asked['rate_bps'])}; at most "
            f"{got['most_waiting_packets']} packets ({most}) waited; "
            f"dropped {got['dropped']}, marked {got['marked']}, trimmed {got['trimmed']}"
        )
    if got["seen"] is None:
        return f"{got['hits']} hit"
    run = f"; mean run {_number(got['mean_run'])} of {_number(asked['mean_run'])}"
    return (
        f"{got['hits']} of {got['seen']} packets: {_percent(got['rate'])} of "
        f"{_percent(asked['rate'])}{run}"
    )


def _time(ns: int | None) -> str:
    return "-" if ns is None else units.format_duration(ns)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.4g} %"
