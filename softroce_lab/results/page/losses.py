# SPDX-License-Identifier: GPL-2.0-or-later
"""What was lost when, per-link figures, and the ladders of messages."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.results import bitmap, ladder, story
from softroce_lab.results.incidents import What
from softroce_lab.results.page import charts, html
from softroce_lab.results.page.charts import Chart, Series
from softroce_lab.results.program_story import TABLE, ProgramRun
from softroce_lab.results.recorded import Recorded, name_of
from softroce_lab.results.story import Explained
from softroce_lab.transports import registry

_SHOWN = (What.DROP, What.DECISION, What.SENT_AGAIN, What.ARRIVED, What.RESTORED)
_WORDS = {
    What.DROP: "dropped",
    What.DECISION: "retransmission decided",
    What.SENT_AGAIN: "sent again",
    What.ARRIVED: "lost packet arrived",
    What.RESTORED: "restored from parity",
}
_COMPLETED = "message completed"
_TITLE = "Losses, repairs and completions over time"
_SUCCESS = 0
_MOST_LINKS = 40
_MOST_LADDERS = 200  # of a run: the slowest messages that lost a packet
_MOST_RUNGS = 400  # of a ladder
_MOST_RUNS = 12
_MOST_POINTS = 200_000  # of a kind but losses, of which all are shown


def explained(recorded: Recorded) -> dict[str, Explained]:
    """Of each transport the run with the first seed."""
    seed = recorded.runs[0]["seed"]
    runs = [run for run in recorded.runs if run["seed"] == seed][:_MOST_RUNS]
    return {name_of(run): Explained.of(recorded, run) for run in runs}


def of_programs(recorded: Recorded) -> str:
    """By program and queue pair, in place of the chart: messages of programs are not seen."""
    words = "The messages of programs are not seen, so their losses are not shown in time."
    more = "Links has the drops of each link, lab results explain the messages that met one."
    recorded_all = recorded.has(TABLE) and recorded.has("recovery")
    known = [ProgramRun.of(recorded, run) for run in recorded.runs if recorded_all]
    rows = [
        (pair.run, pair.name, pair.lost, pair.sent_again, pair.failed, pair.messages)
        for run in known
        for pair in run.by_queue_pair()
    ]
    head = ("run", "program and queue pair", "lost", "to be sent again", "failed messages",
            "recorded messages")  # fmt: skip
    table = html.table("Transmissions of recorded messages", head, rows) if rows else ""
    return html.section("timeline", _TITLE, html.paragraph(words, more), table)


def timeline(known: Mapping[str, Explained]) -> tuple[str, list[Chart]]:
    """A chart of each run that has points; all have the same time axis."""
    found = {name: points for name, one in known.items() if (points := _points(one))}
    every = [x for points in found.values() for x, _ in points.values()]
    start_ns = min((int(x[0]) for x in every), default=0)
    end_ns = max((int(x[-1]) for x in every), default=0)
    made = [
        _timeline(f"timeline{at}", name, known[name], points, (start_ns, end_ns))
        for at, (name, points) in enumerate(found.items())
    ]
    note = (
        "Runs of the first seed, all on the same time axis. Every loss of a data packet is shown; "
        "of the other kinds at most 200,000 each."
    )
    lost = any(each.what is What.DROP for one in known.values() for each in one.incidents)
    none = "" if lost else html.paragraph("No packet was lost.")
    places = [f"@{chart.name}@" for chart in made]
    return html.section("timeline", _TITLE, html.paragraph(note, kind="soft"), none, *places), made


def _hosts(known: Explained) -> list[str]:
    """Rows of the chart."""
    of = known.messages.columns
    hosts = {*of["destination"].tolist(), *of["source"].tolist()}
    return sorted(hosts, key=lambda host: (len(host), host))


def _points(known: Explained) -> Series:
    """By what happened: times, ascending, and rows."""
    of = known.messages.columns
    row_of = {host: row for row, host in enumerate(_hosts(known))}
    at_row = np.array([row_of[host] for host in of["destination"].tolist()])
    series: dict[str, tuple[Any, Any]] = {}
    for what in _SHOWN:
        found = [
            each
            for each in known.incidents
            if each.what is what and each.message >= 0 and each.kind != story.PARITY
        ]
        if what is not What.DROP:
            found = found[:: _every(len(found))]
        if found:
            x = np.array([each.time_ns for each in found])
            series[_WORDS[what]] = x, at_row[[each.message for each in found]]
    done = np.flatnonzero(of["status"] == _SUCCESS)
    done = done[np.argsort(of["completed_ns"][done], kind="stable")][:: _every(len(done))]
    if len(done):
        series[_COMPLETED] = of["completed_ns"][done], at_row[done]
    return series


def _timeline(
    chart: str, name: str, known: Explained, series: Series, ends_ns: tuple[int, int]
) -> Chart:
    rows = [
        (word, f"{len(x):,}", units.format_duration(int(x.min())),
         units.format_duration(int(x.max())))
        for word, (x, _) in series.items()
    ]  # fmt: skip
    data = html.table(f"{name}: number, first and last", ("what", "points", "first", "last"), rows)
    shapes = dict(zip((*_WORDS.values(), _COMPLETED), charts.SHAPES, strict=True))
    caption = (
        "By the receiver of the message; from above: drops (crosses), decisions to retransmit "
        "(triangles), packets sent again (squares), arrivals (circles), packets restored from "
        "parity (diamonds), completions of messages (pluses)."
    )
    labels = ("time since the run began, us", "receiver")
    title = f"{name}: losses, repairs and completions"
    return charts.points(
        chart, title, caption, labels, series, data, _hosts(known), shapes, ends_ns
    )


def _every(count: int) -> int:
    """Of so many points each n-th is shown."""
    return max(1, -(-count // _MOST_POINTS))


def links(recorded: Recorded) -> str:
    """Rates, queues, marks and drops of the busiest directed links of each run's first seed."""
    seed = recorded.runs[0]["seed"]
    parts = []
    for run in [run for run in recorded.runs if run["seed"] == seed][:_MOST_RUNS]:
        found = list(recorded.links.get(name_of(run), ()))
        found.sort(key=lambda link: (link["injected_drops"], link["received"]), reverse=True)
        rows = [_link(link, int(run["end_ns"] or 0)) for link in found[:_MOST_LINKS]]
        left = len(found) - len(rows)
        head = ("link", "frames", "rate", "drops", "of a full queue", "marked", "trimmed",
                "longest queue")  # fmt: skip
        table = html.table(f"Links of {name_of(run)}", head, rows)
        more = html.paragraph(f"{left:,} more are in links.json.", kind="soft") if left else ""
        parts.append(html.details(f"{name_of(run)}: {len(found):,} directed links", table + more))
    note = html.paragraph(
        "Those that lost most come first, then the busiest. A rate is the mean over the run.",
        kind="soft",
    )
    return html.section("links", "Links", note, *parts)


def _link(link: Mapping[str, Any], end_ns: int) -> Sequence[str]:
    wire = link.get("wire") or {}
    rate = "-"
    if link.get("bytes") and end_ns:
        rate = units.format_rate(link["bytes"] * 8e9 / end_ns)
    queue = units.format_bytes(wire["most_waiting_bytes"]) if wire else "-"
    counts = (wire.get(key, 0) for key in ("dropped_by_queue", "marked", "trimmed"))
    return (
        link["name"], f"{link['received']:,}", rate, f"{link['injected_drops']:,}",
        *(f"{count:,}" for count in counts), queue,
    )  # fmt: skip


def ladders(known: Mapping[str, Explained]) -> str:
    """Messages that lost a packet, packet by packet; the slowest in words without a script."""
    data = {name: list(_ladders(one)) for name, one in known.items()}
    worst = [
        html.details(f"{name}: the slowest message", f"<pre>{html.text(_text(one))}</pre>")
        for name, one in known.items()
        if len(one.messages)
    ]
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()
    note = (
        "Time goes down, the sender is left, the receiver right; a dashed arrow that ends in a "
        "cross is a lost packet. Times are microseconds since the post. Beside it is the bitmap of "
        "the receiver, the first packet left: filled where packets are there, open where they are "
        "to come, with a cross where they were lost. Losses are as recorded; when other packets "
        "arrived is interpolated between them."
    )
    choice = (
        '<div class="buttons"><label for="ladder-run">Run</label><select id="ladder-run"></select>'
        '<label for="ladder-message">Message</label><select id="ladder-message"></select></div>'
        '<pre id="ladder-words" aria-live="polite" tabindex="0"></pre>'
        '<div id="ladder" class="scroll" tabindex="0" role="region" aria-label="Ladder"></div>'
        "<details><summary>The ladder as a table</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="The ladder as a table">'
        '<table id="ladder-table"><caption>Each event of the message</caption><thead><tr>'
        '<th scope="col">time, us</th><th scope="col">way</th><th scope="col">packets</th>'
        '<th scope="col">what</th>'
        '<th scope="col">arrived</th><th scope="col">missing</th></tr></thead>'
        "<tbody></tbody></table></div></details>"
        f'<script type="text/plain" id="ladder-data">{packed}</script>'
    )
    few = (
        f"Of each run the {_MOST_LADDERS} slowest messages that lost a packet can be chosen; "
        "lab results explain --message has every one."
    )
    return html.section(
        "ladders", "Messages, packet by packet", html.paragraph(note), choice,
        html.paragraph(few, kind="soft"), *worst,
    )  # fmt: skip


def _text(known: Explained) -> str:
    tale = known.story(story.worst(known.messages, 1)[0])
    lines = (*story.words(tale, known.bound_ns(tale)), "", *ladder.lines(tale))
    return "\n".join(lines)


def _ladders(known: Explained) -> Iterator[list[Any]]:
    lost = np.zeros(len(known.messages), bool)
    for row, found in known.of_message.items():
        lost[row] = any(each.what is What.DROP for each in found)
    rows = story.worst(known.messages, _MOST_LADDERS, lost)
    for row in rows or story.worst(known.messages, 1):
        tale = known.story(row)
        words = story.words(tale, known.bound_ns(tale))
        taken = tale.taken_ns
        first = tale.status if taken is None else units.format_duration(taken)
        steps = ladder.rungs(tale)[:_MOST_RUNGS]
        begun_ns = max(tale.times["posted_ns"], 0)
        in_order = registry.uses_queue_pairs(known.messages.run.get("protocol"))
        maps = bitmap.bitmaps(tale, [each.time_ns for each in steps], in_order=in_order)
        rungs = [
            [each.time_ns - begun_ns, each.shape, each.label, each.note,
             of.cells, of.arrived, of.missing]
            for each, of in zip(steps, maps, strict=True)
        ]  # fmt: skip
        yield [tale.name, tale.source, tale.destination, [first, *words], rungs]
