# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures for papers, by matplotlib: labels, units and the way to make them again are in the file.

Series differ by dashes and markers, not by colour alone. Equal input gives equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import __version__
from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.experiment.figure_table import (
    FIGURES,
    MESSAGES,
    PRINTED,
    SIZE_CLASSES,
    Figure,
    flows,
    percentiles,
    printed,
)
from softroce_lab.results import aside, figures_of, ratio_plot, sweeps
from softroce_lab.results.incidents import What
from softroce_lab.results.plot_style import COLOURS, DASHES, MARKERS, wrapped
from softroce_lab.results.recorded import Recorded, Run, name_of, need_messages
from softroce_lab.results.story import PARITY, Explained
from softroce_lab.statistics import median_interval, spread_name

SUFFIXES = ("pdf", "svg", "png")
_MOST_LINKS = 20
_LANE = 0.14  # between the kinds of points of a receiver, where 1 is between receivers
_INCHES = (3.4, 2.4)  # a column of a paper
_PANEL_INCHES = 0.9  # the height of one of several above each other
_WIDEST_TITLE, _WIDEST_LABEL, _MOST_LINES = 52, 20, 3  # characters, and lines, of a sweep's cells
_LINES_BESIDE = 24  # of labels that stand upright
_LONGEST_NAME = 24  # in a legend
_STYLE = {
    "font.size": 8, "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 200, "pdf.fonttype": 42,
    "svg.hashsalt": "softroce_lab", "svg.fonttype": "none", "legend.fontsize": 7,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is to be drawn."""

    recorded: Recorded
    run: Run | None = None  # of kinds that show one run; None: the first
    others: Sequence[Recorded] = ()  # more directories, of kinds in `OF_SEVERAL`
    only: Sequence[str] = ()  # KEY=VALUE, of kinds in `OF_SEVERAL`: which runs

    @property
    def one(self) -> Run:
        """The run that a kind shows."""
        return self.recorded.runs[0] if self.run is None else self.run


Draw = Callable[[Any, Asked], None]
"""Draws into matplotlib's axes."""


def save(asked: Asked, kind: str, path: Path, command: str) -> None:
    """Draw a figure into a file: written aside and renamed. UserError, EnvironmentLackError."""
    draw = KINDS.get(kind)
    if draw is None:
        raise UserError(f"there is no figure {kind!r}", hint=f"--kind {'|'.join(KINDS)}")
    suffix = suffix_of(path)
    if (asked.others or asked.only) and kind not in OF_SEVERAL:
        hint = f"one directory, and no --only; of several: {', '.join(OF_SEVERAL)}"
        raise UserError(f"the figure {kind!r} is of one directory", hint=hint)
    if asked.recorded.is_sweep and kind not in OF_SWEEPS:
        hint = f"of a sweep: {', '.join(OF_SWEEPS)}; lab run --keep-runs keeps its runs"
        raise UserError(f"a sweep has no figure {kind!r}", hint=hint)
    if not asked.recorded.is_sweep and kind not in (*OF_LINKS, *OF_SEVERAL, *OF_PROGRAMS):
        for run in asked.recorded.runs:
            need_messages(run)

    def paint(mpl: Any, figure: Any) -> None:
        axes = figure.subplots()
        draw(axes, asked)
        _few_decades(mpl, axes)

    title = f"{asked.recorded.manifest.get('name')}: {asked.recorded.name}"
    digests = ", ".join(digest(each) for each in (asked.recorded, *asked.others))
    text = f"{command}; sha256 of the results {digests}"
    write(path, paint, metadata(title, text, suffix))


def suffix_of(path: Path) -> str:
    """Which format a file's name asks for. UserError if there is no such format."""
    suffix = path.suffix.lstrip(".")
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: of what kind is it?", hint="-o FILE.pdf, FILE.svg or FILE.png")
    return suffix


def need(path: Path) -> None:
    """UserError, EnvironmentLackError: why no figure would be written to this file."""
    suffix_of(path)
    _matplotlib()


def write(
    path: Path,
    paint: Callable[[Any, Any], None],
    about: dict[str, Any],
    inches: tuple[float, float] = _INCHES,
) -> None:
    """Let `paint` draw into a figure of matplotlib, and write it aside and rename it.

    `about`: its `metadata`. UserError, EnvironmentLackError.
    """
    mpl, plt = _matplotlib()
    drawn = io.BytesIO()  # matplotlib's PDF does not survive a full disk
    with mpl.rc_context(_STYLE):
        figure = plt.figure(figsize=inches, layout="constrained")
        try:
            paint(mpl, figure)
            figure.savefig(drawn, format=suffix_of(path), metadata=about)
        finally:
            plt.close(figure)
    aside.write(path, drawn.getvalue())


def _matplotlib() -> tuple[Any, Any]:
    """The library, and its pyplot, without a window."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise EnvironmentLackError(
            "matplotlib, which draws the figures",
            hint="./lab results plot installs it; elsewhere: pip install 'softroce-lab[plot]'",
        ) from error
    mpl.use("agg")
    import matplotlib.pyplot as plt

    return mpl, plt


def _few_decades(mpl: Any, axes: Any) -> None:
    """Plain numbers at 1, 2 and 5 where a logarithmic axis has less than two decades.

    matplotlib labels each minor tick there, over its neighbours.
    """
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() != "log":
            continue
        axis.set_minor_formatter(mpl.ticker.NullFormatter())
        least, most = axis.get_view_interval()
        if most < 100 * least:
            digits = (1, 2, 5) if most > 10 * least else (1, 2, 3, 4, 5, 7)
            axis.set_major_locator(mpl.ticker.LogLocator(subs=digits))
            axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def digest(recorded: Recorded) -> str:
    """SHA-256, hex, of the directory's results: tables, links and manifest."""
    found = hashlib.sha256()
    for each in sorted(recorded.path.iterdir()):
        if each.suffix in (".parquet", ".json") and each.is_file():
            found.update(f"{each.name}\0{hashlib.sha256(each.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def metadata(title: str, text: str, suffix: str) -> dict[str, Any]:
    """A title, and the command with the digest, by the names that the format has."""
    by = f"softroce_lab {__version__}"
    if suffix == "pdf":
        return {"Title": title, "Subject": text, "Creator": by, "CreationDate": None}
    if suffix == "svg":
        return {"Title": title, "Description": text, "Creator": by, "Date": None}
    return {"Title": title, "Description": text, "Software": by}


# --- Kinds -----------------------------------------------------------------------------------


def _style(at: int) -> dict[str, Any]:
    return {"color": COLOURS[at % len(COLOURS)], "linestyle": DASHES[at % len(DASHES)]}


def _legend(axes: Any, *, above: bool = False) -> None:
    """Long names lose their middle."""
    handles, names = axes.get_legend_handles_labels()
    half = _LONGEST_NAME // 2
    short = [
        each if len(each) <= _LONGEST_NAME else f"{each[: half - 1]}..{each[1 - half :]}"
        for each in names
    ]
    place = {"ncols": 4, "loc": "lower center", "bbox_to_anchor": (0.5, 1.0)} if above else {}
    axes.legend(handles, short, **place)


def _steps(
    axes: Any, series: dict[str, Any], label: str, nothing: str, *, tail: bool = False
) -> None:
    """Cumulative distributions; `nothing`: why there are none.

    `tail`: the share that takes longer, on a logarithmic axis. It ends at the largest time, which
    no message exceeds.
    """
    for at, (name, times) in enumerate(series.items()):
        if len(times):
            x = np.sort(times) / 1000
            share = np.arange(1, len(x) + 1) / len(x)
            y = np.append(1 - share[:-1], np.nan) if tail else share
            axes.step(x, y, where="post", label=name, **_style(at))
    if not axes.lines:
        raise UserError(f"there is nothing to draw: {nothing}")
    axes.set(xscale="log", xlabel=f"{label} (us)", ylabel="share")
    if tail:
        axes.set(yscale="log", ylabel="share that takes longer")
    _legend(axes)


def _cdf(axes: Any, asked: Asked) -> None:
    """Message completion times, all seeds together."""
    times = figures_of.completion_times(asked.recorded)
    _steps(axes, times, "message completion time", "no message was delivered")


def _ccdf(axes: Any, asked: Asked) -> None:
    """The tail of the same: which share of the messages takes longer than a time."""
    times = figures_of.completion_times(asked.recorded)
    _steps(axes, times, "message completion time", "no message was delivered", tail=True)


def _recovery(axes: Any, asked: Asked) -> None:
    """Repair times, all seeds together."""
    table = asked.recorded.table("repairs")
    here = table["arrived_ns"] >= 0
    taken = table["arrived_ns"] - table["dropped_ns"]
    names = dict.fromkeys(run["transport"] for run in asked.recorded.runs)
    of = {name: taken[here & (table["transport"] == name)] for name in names}
    lost = len(here) > 0
    _steps(axes, of, "repair time", "no lost packet arrived" if lost else "no packet was lost")


def _fct(axes: Any, asked: Asked) -> None:
    """Percentiles with intervals over the seeds; of a sweep p99 by cell."""
    if asked.recorded.is_sweep:
        return _swept(axes, asked.recorded, FIGURES["fct_p99_ns"])
    figures = percentiles(MESSAGES)
    names = list(dict.fromkeys(run["transport"] for run in asked.recorded.runs))
    counts: list[int] = []
    for at, name in enumerate(names):
        values = [
            [
                r[each.key] / 1000
                for r in asked.recorded.runs
                if r["transport"] == name and r[each.key]
            ]
            for each in figures
        ]
        counts += map(len, filter(None, values))
        shift = (at - (len(names) - 1) / 2) * 0.12
        x = [place + shift for place, each in enumerate(values) if each]
        _errors(axes, x, [each for each in values if each], at, name, lines=False)
    axes.set(ylabel="message completion (us)", yscale="log", xlabel=_spread(counts))
    axes.set_xticks(range(len(figures)), [each.name.split()[0] for each in figures])
    _legend(axes)
    return None


def _spread(counts: Sequence[int]) -> str:
    """What a point and its bar are, of so many seeds each."""
    if not counts or max(counts) == 1:
        return "of one seed"
    few, most = min(counts), max(counts)
    seeds = f"{most} seeds" if few == most else f"{few} to {most} seeds"
    return f"median and {spread_name(counts)} of {seeds}"


def _errors(
    axes: Any, x: Sequence[float], values: Sequence[Sequence[float]], at: int, name: str, *,
    lines: bool,
) -> None:  # fmt: skip
    """Medians with their intervals."""
    found = [median_interval(each) for each in values]
    y = [each.median for each in found]
    low = [each.median - each.low for each in found]
    high = [each.high - each.median for each in found]
    style = _style(at) if lines else {"color": COLOURS[at % len(COLOURS)], "linestyle": "none"}
    marker = MARKERS[at % len(MARKERS)]
    axes.errorbar(x, y, yerr=[low, high], marker=marker, ms=4, capsize=2, label=name, **style)


def _swept(axes: Any, recorded: Recorded, figure: Figure) -> None:
    rows, varied = sweeps.rows(recorded), sweeps.axes(recorded)
    cells = sweeps.cells(rows, varied)
    counts: list[int] = []
    for at, name in enumerate(dict.fromkeys(name for of in cells.values() for name in of)):
        known = [
            (place, [value / figure.unit.divisor for value in of[name][figure.key]])
            for place, of in enumerate(cells.values())
            if of.get(name, {}).get(figure.key)
        ]
        if known:
            x, values = zip(*known, strict=True)
            _errors(axes, x, values, at, name, lines=True)
            counts += map(len, values)
    if not counts:
        hint = f"lab results show {recorded.name} has its verdicts"
        raise UserError("there is nothing to draw: no run that passed has it", hint=hint)
    title, labels = sweeps.short_labels(rows, varied)
    _cell_labels(axes, labels)
    label = f"{figure.name} ({figure.unit.name})"
    axes.set(ylabel=label, xlabel=f"{wrapped(title, _WIDEST_TITLE, 3)}\n{_spread(counts)}")
    _legend(axes)


def _cell_labels(axes: Any, labels: Sequence[str]) -> None:
    """As many as fit side by side, upright, each on few lines; the figure grows for them."""
    texts = [wrapped(each, _WIDEST_LABEL, _MOST_LINES) for each in labels]
    lines = max(each.count("\n") + 1 for each in texts)
    step = -(-len(texts) * lines // _LINES_BESIDE)
    axes.figure.set_size_inches(_INCHES[0], _INCHES[1] + 1)
    axes.set_xticks(range(0, len(texts), step), texts[::step], rotation=90, fontsize=6)


def _slowdown(axes: Any, asked: Asked) -> None:
    """p99 by class of sizes, of open-loop traffic; of a sweep by cell."""
    if asked.recorded.is_sweep:
        return _slowdown_swept(axes, asked.recorded)
    runs = [run for run in asked.recorded.runs if run.get("slowdown")]
    if not runs:
        raise UserError("there is no slowdown", hint="open-loop workloads have it")
    counts: list[int] = []
    for at, name in enumerate(dict.fromkeys(run["transport"] for run in runs)):
        own = [run for run in runs if run["transport"] == name]
        known = [
            (place, values)
            for place, size in enumerate(SIZE_CLASSES)
            if (values := [one["p99"] for one in flows(own, size)])
        ]
        if known:
            x, values = zip(*known, strict=True)
            _errors(axes, x, values, at, name, lines=True)
            counts += map(len, values)
    if not counts:
        hint = "a longer deadline; lab results show has how many were delivered"
        raise UserError("there is nothing to draw: no flow behind the warm-up arrived", hint=hint)
    axes.set(ylabel="p99 slowdown", xlabel=f"size of the flow; {_spread(counts)}")
    axes.set_xticks(range(len(SIZE_CLASSES)), list(SIZE_CLASSES), fontsize=6)
    _legend(axes)
    return None


def _slowdown_swept(axes: Any, recorded: Recorded) -> None:
    """A panel for each class of sizes that has flows: p99 of each cell, a line a transport."""
    rows, varied = sweeps.rows(recorded), sweeps.axes(recorded)
    cells, found = sweeps.slowdowns(rows, varied)
    if not found:
        hint = (
            "of a sweep over open-loop traffic whose runs passed; lab results show has its verdicts"
        )
        raise UserError("there is nothing to draw: no run has a slowdown", hint=hint)
    figure = axes.figure
    axes.remove()
    panels = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    counts: list[int] = []
    names = dict.fromkeys(row["transport"] for row in rows)
    for panel, (size, by_cell) in zip(panels, found.items(), strict=True):
        for at, name in enumerate(names):
            known = [(place, by_cell[cell, name]) for place, cell in enumerate(cells)
                     if (cell, name) in by_cell]  # fmt: skip
            if known:
                x, values = zip(*known, strict=True)
                _errors(panel, x, values, at, name, lines=True)
                counts += map(len, values)
        panel.set_ylabel(size)
    title, labels = sweeps.short_labels(rows, varied)
    _cell_labels(panels[-1], labels)
    figure.set_size_inches(_INCHES[0], _PANEL_INCHES * len(found) + 1.6)
    panels[-1].set_xlabel(f"{wrapped(title, _WIDEST_TITLE, 3)}\n{_spread(counts)}")
    figure.supylabel("p99 slowdown, by size of the flow", fontsize=8)
    _legend(panels[0], above=True)


def _collective(axes: Any, asked: Asked) -> None:
    """Time and bus bandwidth of a collective, of each transport; of a sweep by cell."""
    shown = {
        "time of an operation (us)": FIGURES["operation_p50_ns"],
        "bus bandwidth (Mbit/s)": FIGURES["busbw_bps"],
    }
    rows, varied = _rows_and_axes(asked.recorded)
    cells = sweeps.cells(rows, varied)
    if not any(of.get("busbw_bps") for by_name in cells.values() for of in by_name.values()):
        hint = "collectives have it, such as lab run ring-all-reduce"
        raise UserError(
            "there is nothing to draw: no run that passed has a bus bandwidth", hint=hint
        )
    _panels(axes, asked.recorded, shown)


def _printed(axes: Any, asked: Asked) -> None:
    """What programs printed, of each transport; of a sweep by cell."""
    rows, varied = _rows_and_axes(asked.recorded)
    passed = sweeps.cells(rows, varied).values()
    keys = dict.fromkeys(key for by_name in passed for of in by_name.values() for key in of)
    shown = {key.removeprefix(PRINTED): printed(key) for key in keys if key.startswith(PRINTED)}
    if not shown:
        hint = "workload: {kind: program, ..., figures: [perftest]}, or another form of output"
        raise UserError("there is nothing to draw: no run that passed printed a figure", hint=hint)
    _panels(axes, asked.recorded, shown)


def _rows_and_axes(recorded: Recorded) -> tuple[Sequence[Any], Sequence[str]]:
    """Figures of all runs, and what a sweep varies."""
    if recorded.is_sweep:
        return sweeps.rows(recorded), sweeps.axes(recorded)
    return recorded.runs, ()


def _panels(axes: Any, recorded: Recorded, shown: Mapping[str, Figure]) -> None:
    """A panel for each figure, by its label: medians of each transport, of a sweep by cell."""
    rows, varied = _rows_and_axes(recorded)
    cells = sweeps.cells(rows, varied)
    figure = axes.figure
    axes.remove()
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    names = list(dict.fromkeys(name for of in cells.values() for name in of))
    counts: list[int] = []
    for panel, (label, each) in zip(panels, shown.items(), strict=True):
        for at, name in enumerate(names):
            known = [
                (place if recorded.is_sweep else at, [v / each.unit.divisor for v in values])
                for place, of in enumerate(cells.values())
                if (values := of.get(name, {}).get(each.key))
            ]
            if known:
                x, values = zip(*known, strict=True)
                _errors(panel, x, values, at, name, lines=recorded.is_sweep)
                counts += map(len, values)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.margins(x=0.15)
    figure.set_size_inches(_INCHES[0], len(shown) * _INCHES[1])
    if not recorded.is_sweep:
        panels[-1].set_xticks(range(len(names)), names, rotation=90 if len(names) > 4 else 0)
        panels[-1].set_xlabel(_spread(counts))
        return
    title, labels = sweeps.short_labels(rows, varied)
    _cell_labels(panels[-1], labels)
    figure.set_size_inches(_INCHES[0], len(shown) * _INCHES[1] + 1)
    panels[-1].set_xlabel(f"{wrapped(title, _WIDEST_TITLE, 3)}\n{_spread(counts)}")
    _legend(panels[0], above=True)


def _timeline(axes: Any, asked: Asked) -> None:
    """Losses, repairs and completions of one run over time, by receiver."""
    known = Explained.of(asked.recorded, asked.one)
    of = known.messages.columns["destination"]
    hosts = sorted(set(of.tolist()), key=lambda host: (len(host), host))
    rows = {host: row for row, host in enumerate(hosts)}
    shown = {What.DROP: "x", What.DECISION: "^", What.SENT_AGAIN: "s", What.ARRIVED: "o",
             What.RESTORED: "D"}  # fmt: skip
    middle = len(shown) / 2
    for at, (what, marker) in enumerate(shown.items()):
        found = [
            each
            for each in known.incidents
            if each.what is what and each.message >= 0 and each.kind != PARITY
        ]
        x = [each.time_ns / 1000 for each in found]
        y = [rows[of[each.message]] + _LANE * (middle - at) for each in found]
        axes.plot(x, y, marker, ms=3, mfc="none", color=COLOURS[at], label=what.value,
                  rasterized=len(x) > 5000)  # fmt: skip
    done = known.messages.columns["status"] == 0
    over = known.messages.columns["completed_ns"][done] / 1000
    y = [rows[host] + _LANE * (middle - len(shown)) for host in of[done]]
    axes.plot(over, y, "+", ms=3, color=COLOURS[len(shown)], label="completed",
              rasterized=len(over) > 5000)  # fmt: skip
    axes.set(xlabel=f"time (us), {known.name}", ylabel="receiver")
    axes.set_yticks(range(len(hosts)), hosts, fontsize=6)
    axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _queue(axes: Any, asked: Asked) -> None:
    """The longest queues of one run."""
    links = asked.recorded.links.get(name_of(asked.one), ())
    found = [(link["wire"]["most_waiting_bytes"] / 1024, link["name"])
             for link in links if link.get("wire")]  # fmt: skip
    found = sorted((each for each in found if each[0]), reverse=True)[:_MOST_LINKS][::-1]
    if not found:
        raise UserError(f"no packet of {name_of(asked.one)} waited in a queue that is recorded")
    sizes, names = zip(*found, strict=True)
    axes.barh(range(len(sizes)), sizes, color=COLOURS[0])
    axes.set(xlabel=f"longest queue (KiB), {name_of(asked.one)}")
    axes.set_yticks(range(len(names)), names, fontsize=5)


def _heatmap(axes: Any, asked: Asked) -> None:
    """Mean completion time of one run by sender and receiver."""
    of = asked.recorded.table("messages", asked.one)
    done = figures_of.measured(of)
    if not done.any():
        behind = " after the warm-up" if "after_warm_up" in of else ""
        raise UserError(f"no message of {name_of(asked.one)} was delivered{behind}")
    named = asked.recorded.manifest.get("hosts") or ()
    hosts = list(dict.fromkeys((*named, *of["source"].tolist(), *of["destination"].tolist())))
    place = {host: at for at, host in enumerate(hosts)}
    total, count = np.zeros((len(hosts),) * 2), np.zeros((len(hosts),) * 2)
    rows, columns = ([place[host] for host in of[end][done]] for end in ("source", "destination"))
    np.add.at(total, (rows, columns), figures_of.taken_ns(of) / 1000)
    np.add.at(count, (rows, columns), 1)
    with np.errstate(invalid="ignore"):
        image = axes.imshow(total / count, cmap="viridis", origin="lower")
    axes.figure.colorbar(image, label="mean completion (us)")
    axes.grid(visible=False)
    axes.set(xlabel=f"receiver, {name_of(asked.one)}", ylabel="sender")
    step = max(1, len(hosts) // 8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(0, len(hosts), step), hosts[::step], fontsize=6)


KINDS: dict[str, Draw] = {
    "cdf": _cdf,
    "ccdf": _ccdf,
    "fct": _fct,
    "slowdown": _slowdown,
    "collective": _collective,
    "ratios": lambda axes, asked: ratio_plot.draw(
        axes, (asked.recorded, *asked.others), asked.only
    ),
    "timeline": _timeline,
    "queue": _queue,
    "heatmap": _heatmap,
    "recovery": _recovery,
    "printed": _printed,
}
OF_SWEEPS = ("fct", "slowdown", "collective", "ratios", "printed")
OF_SEVERAL = ("ratios",)
OF_LINKS = ("queue",)
OF_PROGRAMS = ("printed",)
