# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab top`: what every link carries and loses, as it happens."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, Lab, LabArgument, either, print_document
from softroce_lab.errors import UserError
from softroce_lab.fabric.observe import traffic, view
from softroce_lab.fabric.observe.traffic import LinkRate, Meter, Sample
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan

app = typer.Typer(add_completion=False)

_LEAST_INTERVAL_NS = 50_000_000  # below, reading the counters would be what is seen


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (Mode("--json", flag("as_json"), ("once",)),)  # which prints one sample, too


@app.command(cls=_Command)
def top(
    name: LabArgument = None,
    lab: Lab = None,
    interval: Annotated[
        str, typer.Option("-i", "--interval", metavar="TIME", help="Time between samples.")
    ] = "1s",
    once: Annotated[
        bool, typer.Option("--once", help="Print one sample as text and exit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show rates, drops by cause and queues of every directed link until Ctrl-C."""
    interval_ns = units.parse_time_ns(interval)
    if interval_ns < _LEAST_INTERVAL_NS:
        raise UserError(f"--interval {interval} is too short", hint="50ms at least")
    seen = view.of_lab(either(name, lab))
    with traffic.metering(seen) as meter:
        if once or as_json or not sys.stdout.isatty():
            before = meter.sample()
            after = _next(meter, before, interval_ns)
            _print_once(after.plan, traffic.rates(before, after), as_json=as_json)
        else:
            _watch(meter, interval_ns)


def _next(meter: Meter, before: Sample, interval_ns: int) -> Sample:
    """The sample one interval after `before`. RunError if the lab went down."""
    left_ns = before.time_ns + interval_ns - time.monotonic_ns()
    time.sleep(max(0, left_ns) / 1e9)
    return meter.sample()


def _watch(meter: Meter, interval_ns: int) -> None:
    console = Console()
    before = meter.sample()
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            after = _next(meter, before, interval_ns)
            rates = traffic.rates(before, after)
            screen.update(_table(after.plan, rates, console.height - 4), refresh=True)
            before = after


def _print_once(plan: Plan, rates: dict[int, LinkRate], *, as_json: bool) -> None:
    if as_json:
        print_document(**_document(plan, rates))
        return
    Console(width=max(130, Console().width), highlight=False).print(_table(plan, rates, None))


def _document(plan: Plan, rates: dict[int, LinkRate]) -> dict[str, Any]:
    names = locate.arrows(plan)
    return {
        "lab": plan.name,
        "links": [
            {
                "directed_link": number,
                "name": names[number],
                **dataclasses.asdict(rate),
                "counts": rate.counts._asdict(),
            }
            for number, rate in rates.items()
        ],
    }


Column = Callable[[LinkRate], str]

_COLUMNS: tuple[tuple[str, Column], ...] = (
    ("frames/s", lambda rate: f"{rate.frames_per_second:,.0f}"),
    ("bit/s", lambda rate: units.format_rate(rate.bits_per_second)),
    ("util", lambda rate: "" if rate.utilisation is None else f"{rate.utilisation:.0%}"),
    ("queue", lambda rate: units.format_bytes(rate.queued_bytes) if rate.queued_bytes else ""),
    ("loss", lambda rate: _some(rate.counts.loss)),
    ("down", lambda rate: _some(rate.counts.down)),
    ("full", lambda rate: _some(rate.counts.queue)),
    ("marked", lambda rate: _some(rate.counts.marked)),
    ("corrupt", lambda rate: _some(rate.counts.corrupted)),
    ("no route", lambda rate: _some(rate.counts.no_route)),
    ("refused", lambda rate: _some(rate.counts.refused)),
    ("emulator", lambda rate: _some(rate.counts.emulator)),
    ("to stage", lambda rate: _some(rate.counts.to_stage)),
)


def _some(count: int | None) -> str:
    return f"{count:,}" if count else ""


def _is_busy(rate: LinkRate) -> bool:
    return bool(rate.frames_per_second or rate.queued_bytes or any(rate.counts))


def _table(plan: Plan, rates: dict[int, LinkRate], most: int | None) -> Group:
    """The busy links, in the order of the plan; if they are too many, the busiest."""
    names = locate.arrows(plan)
    busy = [number for number, rate in rates.items() if _is_busy(rate)]
    if most is not None and len(busy) > most:
        busy = sorted(sorted(busy, key=lambda n: -rates[n].bits_per_second)[:most])
    table = Table(box=None, pad_edge=False)
    table.add_column("link", no_wrap=True)
    cells = {heading: [show(rates[number]) for number in busy] for heading, show in _COLUMNS}
    shown = {heading: column for heading, column in cells.items() if any(column)}
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for i, number in enumerate(busy):
        table.add_row(names[number], *(column[i] for column in shown.values()))
    title = f"{plan.name}: {len(busy)} of {len(rates)} directed links"
    return Group(title, table) if busy else Group(f"{title}: nothing moves")
