# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts a page together: sections in their order, the style, Bokeh and the data, in one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from softroce_lab import __version__
from softroce_lab.results import aside
from softroce_lab.results.page import blamed, charts, compared, html, losses, swept, times, what
from softroce_lab.results.page.charts import Chart
from softroce_lab.results.recorded import Recorded, programs_of

_HERE = Path(__file__).parent
_FILES = ("style.css", "points.js", "page.js")

Part = tuple[str, Sequence[Chart]]  # a section, "" for none, with @NAME@ where a chart goes


def page(recorded: Recorded, more: str = "") -> str:
    """The whole document. UserError for a directory without results, EnvironmentLackError.

    `more`: a section of a run, before its ladders.
    """
    charts.library()
    parts = list(swept.parts(recorded) if recorded.is_sweep else _parts(recorded, more))
    every = [chart for _, made in parts for chart in made]
    script, divs = charts.scripts(every)
    body = "".join(section for section, _ in parts)
    for chart, div in zip(every, divs, strict=True):
        body = body.replace(f"@{chart.name}@", chart.placed(div))
    return _document(recorded, body, script, len(every))


def _parts(recorded: Recorded, more: str) -> Iterator[Part]:
    if any(map(programs_of, recorded.runs)):
        yield from _of_programs(recorded)
        return
    known = losses.explained(recorded)
    yield what.what(recorded), []
    yield what.verdicts(recorded), []
    yield what.figures(recorded), []
    yield compared.section(recorded), []
    yield times.completion(recorded)
    yield times.slowdown(recorded)
    yield times.steps(recorded)
    yield losses.timeline(known)
    yield losses.links(recorded), []
    yield more, []
    yield losses.ladders(known), []


def _of_programs(recorded: Recorded) -> Iterator[Part]:
    """What is known of programs, which do not show their messages."""
    yield what.what(recorded), []
    yield what.verdicts(recorded), []
    yield what.figures(recorded), []
    yield what.programs(recorded), []
    yield losses.of_programs(recorded), []
    yield losses.links(recorded), []


_TITLES = {
    "run": "What was run", "verdicts": "Verdicts", "figures": "Figures",
    compared.NAME: "Compared", "programs": "Programs",
    "completion": "Completion times",
    "slowdown": "Slowdown", "steps": "Steps", "timeline": "Losses", "links": "Links",
    blamed.NAME: "Blame", "ladders": "Messages", "cells": "Cells",
    "rows": "All cells",
}  # fmt: skip


def _document(recorded: Recorded, body: str, script: str, count: int) -> str:
    name = str(recorded.manifest.get("name") or recorded.name)
    entries = "".join(
        f'<li><a href="#{key}">{title}</a></li>'
        for key, title in _TITLES.items()
        if f'<section id="{key}"' in body
    )
    warning = recorded.warning
    marked = html.paragraph(f"{warning}.", kind="warning") if warning else ""
    style, *scripts = ((_HERE / file).read_text("utf-8") for file in _FILES)
    title = html.text(f"{name}: report")
    verdict = html.text(recorded.manifest.get("verdict", recorded.state))
    return f"""<!doctype html>
<html lang="en" data-charts="{count}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="softroce_lab {__version__}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:;
 style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; font-src data:">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>{html.text(name)}</h1>
<p class="soft">{html.text(recorded.name)}: <strong>{verdict}</strong></p>
{marked}
<nav aria-label="Sections"><ul>{entries}</ul></nav>
</header>
<main id="main">
{body}
</main>
{script}
<script>{"".join(scripts)}</script>
</body>
</html>
"""


def write(path: Path, text: str) -> None:
    """Write a page. RunError."""
    aside.write(path, text.encode())
