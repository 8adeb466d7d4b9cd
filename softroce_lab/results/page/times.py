# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion times, slowdowns and steps: charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import SIZE_CLASSES, flows
from softroce_lab.results import figures_of
from softroce_lab.results.page import charts, html
from softroce_lab.results.page.charts import Chart
from softroce_lab.results.recorded import Recorded, Run
from softroce_lab.results.steps import Steps

_MOST_STEPS = 2_000  # of a table
_AT = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)


def completion(recorded: Recorded) -> tuple[str, list[Chart]]:
    """Distributions over all seeds, and their tails."""
    pooled = figures_of.completion_times(recorded)
    if not any(len(times) for times in pooled.values()):
        note = "No message was delivered, so there is no completion time."
        return html.section("completion", "Completion times", html.paragraph(note)), []
    series = {
        name: (np.sort(times) / 1000, np.arange(1, len(times) + 1) / len(times))
        for name, times in pooled.items()
        if len(times)
    }
    rows = [(f"{share:.1%}", *(_at(times, share) for times in pooled.values())) for share in _AT]
    data = html.table(
        "Time within which a share of the messages completed", ("share", *pooled), rows
    )
    chart = charts.lines(
        "cdf",
        "Message completion time, cumulative distribution",
        "The share of the measured messages, all seeds together, that completed within a time. "
        "Further left is faster. The time axis is logarithmic.",
        ("completion time, us", "share of messages"),
        series,
        data,
        log_x=True,
        steps=True,
    )
    tail = charts.lines(
        "tail",
        "The slowest messages",
        "The share of the measured messages, all seeds together, that took longer than a time. "
        "Both axes are logarithmic. A line ends at the slowest message but one.",
        ("completion time, us", "share that took longer"),
        {name: (x[:-1], 1 - y[:-1]) for name, (x, y) in series.items() if len(x) > 1},
        data,
        log_x=True,
        log_y=True,
        steps=True,
    )
    places = ("@cdf@", "@tail@", _warm_up(recorded.runs))
    return html.section("completion", "Completion times", *places), [chart, tail]


def _warm_up(runs: Sequence[Run]) -> str:
    """Which messages have no times; "" where all that were delivered have."""
    left_out = sum(run["delivered"] - run["measured"] for run in runs)
    if not left_out:
        return ""
    delivered = sum(run["delivered"] for run in runs)
    count = f"{left_out:,} of {delivered:,} delivered messages"
    if any(run["offered_load"] is not None for run in runs):
        return html.paragraph(
            f"{count} arrived in the warm-up of open-loop traffic. Completion times and slowdowns "
            "leave them out; losses, retransmissions, repair times, makespan and goodput are of "
            "the whole run."
        )
    return html.paragraph(
        f"{count} were the warm-up. Times, goodput and repair times leave them out; losses and "
        "numbers of packets are of the whole run."
    )


def _at(times: npt.NDArray[np.int64], share: float) -> str:
    if not len(times):
        return "-"
    ordered = np.sort(times)
    return units.format_duration(int(ordered[max(1, int(np.ceil(share * len(ordered)))) - 1]))


def slowdown(recorded: Recorded) -> tuple[str, list[Chart]]:
    """By size, of open-loop traffic; "" of other workloads."""
    runs = [run for run in recorded.runs if run.get("slowdown")]
    if not runs:
        return "", []
    names = list(dict.fromkeys(run["transport"] for run in runs))
    rows = []
    for size in SIZE_CLASSES:
        cells = [_slowdowns(runs, name, size) for name in names]
        rows.append((size, *cells))
    table = html.table(
        "Slowdown by size: p50 and p99, medians of the seeds", ("size", *names), rows
    )
    series = {name: _p99_by_size(runs, name) for name in names}
    chart = charts.lines(
        "slowdown",
        "p99 slowdown by size of the flow",
        "How many times as long as alone on the empty fabric; 1 is the least. Sizes from small to "
        f"large: {', '.join(SIZE_CLASSES)}.",
        ("class of sizes, from small to large", "p99 slowdown"),
        series,
        table,
    )
    return html.section("slowdown", "Slowdown by size", "@slowdown@", table), [chart]


def _slowdowns(runs: Sequence[Run], name: str, size: str) -> str:
    found = flows([run for run in runs if run["transport"] == name], size)
    if not found:
        return "-"
    p50, p99 = (float(np.median([one[key] for one in found])) for key in ("p50", "p99"))
    return f"{p50:.2f}, {p99:.2f}"


def _p99_by_size(
    runs: Sequence[Run], name: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    own = [run for run in runs if run["transport"] == name]
    by_size = [[one["p99"] for one in flows(own, size)] for size in SIZE_CLASSES]
    x = [at for at, found in enumerate(by_size) if found]
    return np.array(x, np.float64), np.array([float(np.median(by_size[at])) for at in x])


def steps(recorded: Recorded) -> tuple[str, list[Chart]]:
    """The steps of each job, of the first seed; "" with a single step."""
    seed = recorded.runs[0]["seed"]
    runs = [run for run in recorded.runs if run["seed"] == seed]
    try:
        known = {run["transport"]: _steps(recorded, run) for run in runs}
    except UserError as error:  # jobs, and no file of the experiment
        note = html.paragraph(f"Steps of jobs are not known: {error.what}.", kind="soft")
        return html.section("steps", "Steps", note), []
    every = next(iter(known.values()))[0].every
    jobs = dict.fromkeys(each.job for each in every)
    made = [
        chart for number, job in enumerate(jobs)
        if (chart := _steps_of(job, f"steps{number}", known, seed)) is not None
    ]  # fmt: skip
    if not made:
        return "", []
    places = [f"@{chart.name}@" for chart in made]
    return html.section("steps", "Steps", *places), made


def _steps(recorded: Recorded, run: Run) -> tuple[Steps, Mapping[int, int]]:
    messages = recorded.table("messages", run)
    found = Steps.of(recorded, run, messages)
    return found, found.times_ns(messages)


def _steps_of(
    job: str, chart: str, known: Mapping[str, tuple[Steps, Mapping[int, int]]], seed: int
) -> Chart | None:
    """The chart of one job, or of a run without jobs; None without two steps that were whole."""
    every = next(iter(known.values()))[0].every
    own = [index for index, each in enumerate(every) if each.job == job]
    names = [every[index].name for index in own]
    series = {}
    for transport, (_, times_ns) in known.items():
        x = [place for place, index in enumerate(own) if index in times_ns]
        if x:
            series[transport] = np.array(x), np.array([times_ns[own[at]] / 1000 for at in x])
    if not series or max(len(x) for x, _ in series.values()) < 2:
        return None
    rows = [
        (names[place], *(_step_time(known[name][1].get(index)) for name in series))
        for place, index in enumerate(own)
    ]
    of = f" of {job}" if job else ""
    data = html.table(f"Step times{of}, seed {seed}", ("step", *series), rows[:_MOST_STEPS])
    if len(rows) > _MOST_STEPS:
        data += html.paragraph(f"The first {_MOST_STEPS:,} of {len(rows):,}.")
    if every[own[0]].of_training:
        what = "From the end of the step before, or the begin of the run, to the end of its barrier"
        more = ""
    else:
        what = "From the first post of a step to its last completion"
        more = " In a pipelined collective steps overlap."
    caption = f"{what}, seed {seed}.{more}"
    labels = ("step", "time, us")
    title = f"Time of each step{of}"
    return charts.lines(chart, title, caption, labels, series, data, names=names)


def _step_time(taken_ns: int | None) -> str:
    return "-" if taken_ns is None else units.format_duration(taken_ns)
