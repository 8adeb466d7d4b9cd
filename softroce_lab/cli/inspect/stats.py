# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect stats`: counters of queue pairs, ports, links and hosts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli import completion, tables
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, Lab, either, print_json, say
from softroce_lab.errors import UserError
from softroce_lab.fabric import runtime
from softroce_lab.fabric.observe import stats as counters
from softroce_lab.fabric.observe import view
from softroce_lab.fabric.observe.stats import Collector, Stats

app = typer.Typer(add_completion=False)

_LEAST_INTERVAL_NS = 50_000_000  # below, reading the counters would be what is seen

Row = tuple[str, str, int, float | None]  # of what, counter, value, a second


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--json", flag("as_json"), ("everything",)),
        Mode("--openmetrics", flag("openmetrics"), ("everything",)),
        Mode("--listen", flag("listen"), ("everything",)),
    )


@app.command(cls=_Command)
def stats(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LAB] [NODE|PORT|LINK]...",
            help="The lab, if several are up; then h1, leaf1:spine1, 'a->b', globs; default: all.",
            autocompletion=completion.links,
        ),
    ] = None,
    lab: Lab = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "-i", "--interval", metavar="TIME", help="Repeat at this interval, with rates."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include zeros.")] = False,
    openmetrics: Annotated[
        bool, typer.Option("--openmetrics", help="Print OpenMetrics text.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS:PORT", help="Serve Prometheus scrapes; loopback only."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show counters of queue pairs, ports, links and hosts.

    Prints one counter a line, without zeros; with --interval --json, one document a line.
    """
    interval_ns = None if interval is None else units.parse_time_ns(interval)
    if interval_ns is not None and interval_ns < _LEAST_INTERVAL_NS:
        raise UserError(f"--interval {interval} is too short", hint="50ms at least")
    repeats = interval_ns is not None
    if sum((as_json, openmetrics, listen is not None)) > 1 or (repeats and (openmetrics or listen)):
        why = "--json, --openmetrics and --listen exclude each other, --interval the last two"
        raise UserError(why, hint="choose one of them")
    name, names = _split(what or [], lab)
    with counters.collecting(view.of_lab(name), names) as collector:
        if listen is not None:
            from softroce_lab.cli.inspect import stats_server  # late: prometheus_client is slow

            stats_server.serve(collector, listen)
        elif openmetrics:
            from softroce_lab.fabric.observe import openmetrics as metrics  # late, as above

            sys.stdout.write(metrics.text(collector.collect()))
        elif interval_ns is not None:
            _watch(collector, interval_ns, as_json=as_json, everything=everything)
        elif as_json:
            print_json(collector.collect().document())
        else:
            _print(collector.collect(), None, everything=everything)


def _split(what: Sequence[str], lab: str | None) -> tuple[str | None, Sequence[str]]:
    """The lab's name, if the first word is one, and the rest."""
    if what and what[0] in {condition.name for condition in runtime.labs()}:
        return either(what[0], lab), what[1:]
    return lab, what


# --- Text ----------------------------------------------------------------------------------------


def _rows(now: Stats, before: Stats | None, *, everything: bool) -> Iterator[Row]:
    """Rates are of what was there before, too."""
    # By kind, too: a port and the RNIC at it are called the same.
    groups = before.groups() if before else ()
    then = {(group.kind, group.title): group.counts for group in groups}
    seconds = (now.time_ns - before.time_ns) / 1e9 if before else 0.0
    for group in now.groups():
        earlier = then.get((group.kind, group.title))
        for name, value in group.counts.items():
            if value or everything:
                rate = None
                if earlier is not None and name in earlier and value >= earlier[name]:
                    rate = (value - earlier[name]) / seconds
                yield group.title, name, value, rate


def _print(now: Stats, before: Stats | None, *, everything: bool) -> None:
    """Columns that `grep`, `sort` and `awk` can read."""
    rows = list(_rows(now, before, everything=everything))
    first = max((len(title) for title, *_ in rows), default=0)
    for title, name, value, rate in rows:
        tail = f"  {rate:>14,.0f}/s" if rate else ""
        print(f"{title:{first}}  {name:30}  {value:>16}{tail}")
    for note in now.notes:
        say(note)


# --- Again and again -----------------------------------------------------------------------------


def _watch(collector: Collector, interval_ns: int, *, as_json: bool, everything: bool) -> None:
    if not as_json and sys.stdout.isatty():
        _screen(collector, interval_ns, everything=everything)
    before: Stats | None = None
    for now in _samples(collector, interval_ns):
        if as_json:
            print(json.dumps(now.document()), flush=True)
        else:
            _print(now, before, everything=everything)
            print(flush=True)
        before = now


def _samples(collector: Collector, interval_ns: int) -> Iterator[Stats]:
    while True:
        now = collector.collect()
        yield now
        time.sleep(max(0, now.time_ns + interval_ns - time.monotonic_ns()) / 1e9)


def _screen(collector: Collector, interval_ns: int, *, everything: bool) -> None:
    console = Console()
    before: Stats | None = None
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        for now in _samples(collector, interval_ns):
            rows = list(_rows(now, before, everything=everything))
            screen.update(_table(now, rows, console.height - 4), refresh=True)
            before = now


def _table(now: Stats, rows: list[Row], most: int) -> Table:
    """If they are too many, those that move."""
    shown = rows
    if len(rows) > most:
        shown = sorted(rows, key=lambda row: -(row[3] or 0))[:most]
    table = tables.table("of<", "counter<", "value", "a second", no_wrap=True)
    table.title = f"{now.lab}: {len(shown)} of {len(rows)} counters"
    for title, name, value, rate in shown:
        table.add_row(title, name, f"{value:,}", f"{rate:,.0f}" if rate else "")
    return table
