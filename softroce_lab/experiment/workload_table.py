# SPDX-License-Identifier: GPL-2.0-or-later
"""The table that compares transports: a column each, its runs of all seeds taken together.

Its lines are the figures of `figure_table`. Times and rates are medians over the runs, with the
least and the largest value; counts are sums. A run that failed has no makespan and no goodput.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from softroce_lab.experiment.figure_table import (
    BY_SIZE,
    CLASS_P99,
    FIGURES,
    SIZE_CLASSES,
    Figure,
    Row,
    all_figures,
    flows,
)
from softroce_lab.experiment.held_back import WORDS
from softroce_lab.statistics import MARK, Interval

GAP = 2  # characters between columns
Spread: TypeAlias = Callable[[Sequence[Any]], Interval]
"""The median of several runs, and between what they are."""


class Line(NamedTuple):
    title: str
    cells: list[str]


def least_and_most(values: Sequence[Any]) -> Interval:
    return Interval(statistics.median(values), min(values), max(values))


def lines(rows: Sequence[Row], spread: Spread = least_and_most) -> tuple[list[str], list[Line]]:
    """The transports in their order, and the lines; those without any news are left out."""
    names = list(dict.fromkeys(row["transport"] for row in rows))
    groups = [[row for row in rows if row["transport"] == name] for name in names]
    found = [Line("verdict", [verdict(group) for group in groups])]
    for figure in all_figures(rows).values():
        if figure.unit == BY_SIZE:
            found += _by_size(groups, spread)
        elif figure.title:
            cells = [cell(figure, group, spread) for group in groups]
            if _has_news(figure, rows, cells):
                found.append(Line(figure.title, cells))
    jobs = rows[0].get("jobs", ())
    return names, found + [line for job in jobs for line in _of_job(job, groups, spread)]


def _of_job(job: str, groups: Sequence[Sequence[Row]], spread: Spread) -> Iterator[Line]:
    mine = [[row["jobs"][job] for row in group] for group in groups]
    if any(row["jobs"][job]["transport"] != row["transport"] for group in groups for row in group):
        yield Line(f"{job}: transport", [each[0]["transport"] for each in mine])
    for figure in FIGURES.values():
        cells = [cell(figure, each, spread) for each in mine] if figure.in_jobs else []
        if any(each != "-" for each in cells):
            yield Line(f"{job}: {figure.name}", cells)


def beside(names: Sequence[str], lines: Sequence[Line], width: int) -> Iterator[range]:
    """The columns that stand side by side in so many characters: in as many tables as it takes.

    A table has one column at least, however wide that is.
    """
    left = width - max((len(line.title) for line in lines), default=0)
    first, taken = 0, 0
    for at, name in enumerate(names):
        column = GAP + max(len(name), *(len(line.cells[at]) for line in lines))
        if at > first and taken + column > left:
            yield range(first, at)
            first, taken = at, 0
        taken += column
    yield range(first, len(names))


def _has_news(figure: Figure, rows: Sequence[Row], cells: Sequence[str]) -> bool:
    if figure.unlike and all(row[figure.key] == row[figure.unlike] for row in _passed(rows)):
        return False
    if figure.always:
        return figure.of_programs or any(row["messages"] is not None for row in rows)
    return any(each not in ("", "0", "-") for each in cells)


def cell(figure: Figure, rows: Sequence[Row], spread: Spread = least_and_most) -> str:
    """A figure of several runs; a percentile of too few samples is marked."""
    if figure.key in _SPECIAL:
        return _SPECIAL[figure.key](rows)
    values = figure.values(rows)
    if not values:
        return "-"
    if figure.unit.adds_up:
        return figure.unit.show(sum(values))
    text, fewest = spread_text(values, figure.unit.show, spread), figure.fewest(rows)
    if fewest is None:
        return text
    shows_number = figure.samples is not None and figure.samples.shows_number
    return f"{text}{MARK} (n {fewest})" if shows_number else f"{text}{MARK}"


def spread_text(values: Sequence[Any], show: Callable[[Any], str], spread: Spread) -> str:
    """`2 us [1 us, 3 us]`, or the median if that says it all."""
    found = spread(values)
    median, low, high = map(show, (found.median, found.low, found.high))
    return median if low == high else f"{median} [{low}, {high}]"


def _by_size(groups: Sequence[Sequence[Row]], spread: Spread) -> Iterator[Line]:
    """The p99 slowdown of each class of sizes that any run has flows of."""
    for size in SIZE_CLASSES:
        cells = [cell(CLASS_P99, flows(group, size), spread) for group in groups]
        if any(each != "-" for each in cells):
            yield Line(f"{CLASS_P99.title}, {size}", cells)


def _passed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] == "passed"]


def _held_back(rows: Sequence[Row]) -> str:
    """The causes, each with its largest share in any of the runs."""
    found: dict[str, float] = {}
    for row in rows:
        for each in row["held_back"] or ():
            own = each["transport"] == row["transport"]
            title = WORDS[each["by"]] if own else f"{each['transport']}: {WORDS[each['by']]}"
            found[title] = max(each["share"], found.get(title, 0))
    return ", ".join(f"{title} {100 * share:.0f} %" for title, share in found.items())


def _delivered(rows: Sequence[Row]) -> str:
    seen = [row for row in rows if row["messages"] is not None]
    done, total = (sum(row[key] for row in seen) for key in ("delivered", "messages"))
    return f"{done:,}" if done == total else f"{done:,} of {total:,}"


def verdict(rows: Sequence[Row]) -> str:
    passed = len(_passed(rows))
    if passed == len(rows):
        return "passed"
    return "FAILED" if not passed else f"FAILED {len(rows) - passed} of {len(rows)}"


def _verified(rows: Sequence[Row]) -> str:
    found = {row["verified"] for row in rows}
    return "NO" if False in found else "yes" if True in found else "-"


def _faithful(rows: Sequence[Row]) -> str:
    judged = [row["fidelity"]["verdict"] for row in rows if row["fidelity"]]
    return "" if not judged else next((each for each in judged if each != "faithful"), judged[0])


_SPECIAL: dict[str, Callable[[Sequence[Row]], str]] = {
    "delivered": _delivered,
    "verified": _verified,
    "held_back": _held_back,
    "fidelity": _faithful,
}
