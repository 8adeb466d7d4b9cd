# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fault`: change faults while traffic runs, and see what they achieve."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, Lab, print_document, say, warn_of_damage
from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric import faults
from softroce_lab.fabric.daemons import control_plane, wire
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.faults import FaultControl
from softroce_lab.fabric.ledger.ledger import History
from softroce_lab.fabric.observe import achieved, damage, view
from softroce_lab.fabric.observe.achieved import Achieved
from softroce_lab.fabric.observe.view import View
from softroce_lab.fabric.rights import needing_root
from softroce_lab.faults import lines, live, profile, resolve, text
from softroce_lab.faults.lines import Rule
from softroce_lab.inputs.validation import listed
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan

app = typer.Typer(add_completion=False, no_args_is_help=True)

Link = Annotated[
    str,
    typer.Argument(
        metavar="LINK",
        help="a->b, a<->b, a node or a node:port; globs.",
        autocompletion=completion.links,
    ),
]
LinkToo = Annotated[
    str | None,
    typer.Argument(
        metavar="[LINK]", help="Links, as for set; default: all.", autocompletion=completion.links
    ),
]
_WORDS = {"ignore_unknown_options": True}  # "-5ms" is a negative delay, not an option


def _without_options(words: Sequence[str]) -> Sequence[str]:
    """The words. UserError for one that is written as an option: the parser took it for a word."""
    for word in words:
        if word.startswith("--"):
            hint = "a lab is chosen by --lab; each option has its own value behind it"
            raise UserError(f"no such option: {word}", hint=hint)
    return words


@app.callback()
def fault() -> None:
    """Set, show and clear faults of a lab that is up; traffic need not stop.

    For example: lab fault set 'leaf1<->spine1' loss 1% delay 1ms
    """


@app.command("set", context_settings=_WORDS)
def set_(
    link: Link,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FAULT...", help="Faults in tc netem syntax: loss 1% delay 10ms 1ms."
        ),
    ],
    lab: Lab = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the faults, instead of the lab's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set faults of LINK: loss, delay and others; those that are not named stay."""
    wanted = live.parse_impairments(_without_options(words))
    _change(
        lab,
        lambda plan: live.set_on(plan, resolve.links_of(plan, link), wanted, seed=seed),
        as_json=as_json,
    )


@app.command()
def clear(
    link: LinkToo = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Faults to clear: loss, delay ...; default: all."),
    ] = None,
    lab: Lab = None,
    as_json: Json = False,
) -> None:
    """Clear the named faults, or all, of LINK, or of all links."""
    named = live.parse_cleared(words) if words else None
    _change(lab, lambda plan: live.clear_on(plan, _links(plan, link), named), as_json=as_json)


@app.command()
def apply(
    file: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            help="A fault profile: a file, or a built-in one.",
            autocompletion=completion.profiles,
        ),
    ],
    lab: Lab = None,
    as_json: Json = False,
) -> None:
    """Add the faults of a profile, a YAML file, to those that are set."""
    rules = profile.load(file)
    history = view.up(lab).history

    def armed(plan: Plan) -> Plan:
        after = resolve.arm(plan, rules)
        _check_followed(faults.moved_by_time(plan, after), history, file)
        return after

    _change(lab, armed, as_json=as_json)


@app.command()
def show(
    link: LinkToo = None,
    lab: Lab = None,
    as_json: Json = False,
) -> None:
    """Show for each fault the value that was set, and the one measured since then."""
    seen = view.of_lab(lab)
    links = _links(seen.plan, link)
    found, dead = _look(seen, links)
    problem = dead or damage.on_links(seen.damage(), links)
    if as_json:
        print_document(**_shown(seen.plan, found, problem))
    elif not found:
        print(f"{seen.plan.name}: no faults{f' on {link}' if link else ''}")
    else:
        _print(found, lost=dead is not None)
    if problem is not None:
        raise problem


def _look(seen: View, links: tuple[int, ...]) -> tuple[list[Achieved], RunError | None]:
    """The faults on these links. If the wire stage is dead, its own counts are missing."""
    plan = seen.plan
    shaped = sorted(faults.shaped(plan).keys() & set(links))
    with needing_root(), seen.maps() as xdp:
        if not shaped:
            return list(achieved.look(plan, xdp, None, links)), None
        try:
            with WireStage(seen.directory) as stage:
                return list(achieved.look(plan, xdp, stage, links)), None
        except RunError as error:
            names = listed(locate.link_names(plan, shaped), 6)
            problem = RunError(
                f"{error.what}; frames of {names} are lost, and what happened there is unknown",
                hint=f"lab down {plan.name} and lab up bring it back; `lab fault clear LINK` lets "
                f"frames pass without it; its log: {seen.directory / wire.LOG}",
            )
            return list(achieved.look(plan, xdp, None, links)), problem


def _shown(plan: Plan, found: list[Achieved], problem: RunError | None) -> dict[str, Any]:
    return {
        "lab": plan.name,
        "timeline_ns": found[0].now_ns if found else None,
        "problem": problem and {"what": problem.what, "hint": problem.hint},
        "faults": [item.document() for item in found],
    }


def _links(plan: Plan, pattern: str | None) -> tuple[int, ...]:
    if pattern is not None:
        return resolve.links_of(plan, pattern)
    return tuple(range(2 * len(plan.links)))


def _check_followed(rules: Sequence[str], history: History, file: str) -> None:
    """UserError if links go down by a timeline of these rules, and no process would lead around."""
    if rules and not control_plane.is_alive(history):
        raise UserError(
            f"{file}: links go down or come up by the timeline of {listed(rules)}, and this lab "
            "has no control plane, which leads routes around them in time",
            hint="a lab that comes up with such a timeline has one: lab down, then "
            f"lab up FILE --faults {shlex.quote(file)}",
        )


def _change(lab: str | None, alter: Callable[[Plan], Plan], *, as_json: bool) -> None:
    seen = view.of_lab(lab)
    condition = seen.condition
    if condition is None:
        raise UserError("no lab is up", hint="lab up FILE")
    before, lost = seen.plan, seen.damage()

    def noting(plan: Plan) -> Plan:
        nonlocal before
        before = plan
        after = alter(plan)
        new = set(after.faults) - set(before.faults)
        if broken := damage.on_links(lost, {fault.directed_link for fault in new}):
            raise broken
        return after

    with needing_root(), seen.maps() as xdp:
        control = FaultControl(
            seen.directory,
            xdp,
            lambda node: view.namespace_of(condition, node),
            say,
        )
        after = control.change(noting, time.monotonic_ns)
    warn_of_damage(lost)
    for note in live.notes(set(after.faults) - set(before.faults)):
        say(note)
    _print_change(before, after, as_json=as_json)


def _print_change(before: Plan, after: Plan, *, as_json: bool) -> None:
    old, new = set(before.faults), set(after.faults)
    made = lines.rules(fault for fault in after.faults if fault not in old)
    gone = lines.rules(fault for fault in before.faults if fault not in new)
    gone = [rule for rule in gone if rule not in made]  # that one began anew
    if as_json:
        changes = {"set": _documents(after, made), "cleared": _documents(before, gone)}
        print_document(lab=after.name, **changes, faults=text.documents(after))
        return
    for rule in gone:
        print(f"{'replaced' if made else 'cleared':8} {rule.on(before)}")
    for rule in made:
        print(f"set      {rule.on(after)}")
    if not after.faults:
        print(f"{after.name}: no faults")
    elif not made and not gone:
        print(f"{after.name}: nothing changed")


def _documents(plan: Plan, rules: list[Rule]) -> list[dict[str, Any]]:
    names = locate.arrows(plan)
    return [
        {
            "rule": rule.name,
            "fault": rule.text,
            "key": rule.key,
            "links": [names[number] for number in rule.directed_links],
        }
        for rule in rules
    ]


# --- What `show` prints -----------------------------------------------------------------------

_WIRE_WORDS = ("rate", "delay")  # measured by the wire stage


def _print(found: list[Achieved], *, lost: bool) -> None:
    """Print all rules; `lost`: the wire stage is dead, and its values are unknown."""
    by_rule = {(item.fault.directed_link, item.fault.rule_id): item for item in found}
    if any(item.moment for item in found):
        print(f"timeline at {units.format_duration(found[0].now_ns)}")
    for link in dict.fromkeys(item.link for item in found):
        print(link)
        for group in lines.grouped(item.fault for item in found if item.link == link):
            items = [by_rule[fault.directed_link, fault.rule_id] for fault in group]
            moment = f"  {items[0].moment}" if items[0].moment else ""
            print(f"  {lines.line(group)}  ({group[0].rule}, key {group[0].key}){moment}")
            print(f"    {_achieved(items, lost=lost)}")


def _achieved(items: list[Achieved], *, lost: bool) -> str:
    """Of a fault, or of all packets that a rule names."""
    if lost and items[0].fault.word in _WIRE_WORDS:
        return "unknown: the wire stage does not answer"
    documents = [item.document() for item in items]
    if len(items) == 1 and items[0].fault.word != "down":
        return _compared(documents[0])
    hits = sum(document["achieved"]["hits"] for document in documents if document["achieved"])
    return f"{units.format_count(hits, 'packet')} lost" if hits else "no packet lost"


def _compared(document: dict[str, Any]) -> str:
    asked, got = document["requested"], document["achieved"]
    if got is None:
        return "nothing yet"
    if "residence_ns" in got:
        if not got["released"]:
            return "no frames yet"
        spread, late = _percentiles(got["residence_ns"]), _percentiles(got["late_ns"])
        frames = units.format_count(got["released"], "frame")
        error = f"percentiles to {_percent(got['percentile_error'])}"
        return f"{frames}; time on the link {spread}; released late by {late}; {error}"
    if "rate_bps" in got:
        rate = "-" if got["rate_bps"] is None else units.format_rate(got["rate_bps"])
        most = units.format_bytes(got["most_waiting_bytes"])
        return (
            f"{rate} of {units.format_rate(asked['rate_bps'])}; at most "
            f"{units.format_count(got['most_waiting_packets'], 'packet')} ({most}) waited; "
            f"dropped {got['dropped']}, marked {got['marked']}, trimmed {got['trimmed']}"
        )
    if got["seen"] is None:
        return f"{units.format_count(got['hits'], 'packet')} lost"
    if not got["seen"]:
        return "no packets yet"
    run = ""
    if asked["mean_run"] is not None:
        run = f"; mean run {_number(got['mean_run'])} of {_number(asked['mean_run'])}"
    share = f"{got['hits']:,} of {units.format_count(got['seen'], 'packet')}"
    return f"{share}: {_percent(got['rate'])} of {_percent(asked['rate'])}{run}"


def _percentiles(times: dict[str, int | None]) -> str:
    known = {name: ns for name, ns in times.items() if ns is not None}
    return ", ".join(f"{name} {units.format_duration(ns)}" for name, ns in known.items())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.4g} %"
