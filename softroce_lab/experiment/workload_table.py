# SPDX-License-Identifier: GPL-2.0-or-later
"""The table that compares transports: a column each, its runs of all seeds taken together.

Of times and rates the median of the runs (of an even number the middle of the two in the middle),
with the least and the largest behind it; of counts the sum. A run that failed never got done: it
has no makespan, and no goodput.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from softroce_lab import units
from softroce_lab.experiment.held_back import WORDS
from softroce_lab.experiment.workload_run import (
    FCT,
    REPAIR,
    SIZE_CLASSES,
    SLOWDOWN,
    STEPS,
    flows_of,
)
from softroce_lab.statistics import marked

Row = Mapping[str, Any]  # of `WorkloadRun.summary`

GAP = 2  # characters between columns


class Line(NamedTuple):
    """A line of the table."""

    title: str
    cells: list[str]


def lines(rows: Sequence[Row]) -> tuple[list[str], list[Line]]:
    """The transports in their order, and the lines; those without any news are left out."""
    names = list(dict.fromkeys(row["transport"] for row in rows))
    groups = [[row for row in rows if row["transport"] == name] for name in names]
    found = []
    for title, show, is_news in _LINES:
        cells = [show(group) for group in groups]
        if is_news(rows, cells):
            found.append(Line(title, cells))
    return names, found + [line for job in rows[0].get("jobs", ()) for line in _of_job(job, groups)]


def _of_job(job: str, groups: Sequence[Sequence[Row]]) -> Iterator[Line]:
    """The lines of a job."""
    mine = [[row["jobs"][job] for row in group] for group in groups]
    if any(row["jobs"][job]["transport"] != row["transport"] for group in groups for row in group):
        yield Line(f"{job}: transport", [each[0]["transport"] for each in mine])
    for title, show in _OF_JOBS:
        cells = [show(each) for each in mine]
        if any(cell != "-" for cell in cells):
            yield Line(f"{job}: {title}", cells)


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


def _always(_rows: Sequence[Row], _cells: Sequence[str]) -> bool:
    return True


def _if_seen(rows: Sequence[Row], _cells: Sequence[str]) -> bool:
    """Whether the runs have messages: programs do not show theirs."""
    return any(row["messages"] is not None for row in rows)


def _if_any(_rows: Sequence[Row], cells: Sequence[str]) -> bool:
    return any(cell not in ("", "0", "-") for cell in cells)


def _unlike_makespan(rows: Sequence[Row], _cells: Sequence[str]) -> bool:
    return any(row["operation_p50_ns"] != row["makespan_ns"] for row in _passed(rows))


def _spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    if not values:
        return "-"
    shown, least, most = map(form, (statistics.median(values), min(values), max(values)))
    return shown if least == most else f"{shown} [{least}, {most}]"


def _of_messages(key: str) -> Callable[[Sequence[Row]], str]:
    """A time of those that were measured; marked if a run has too few."""

    def show(rows: Sequence[Row]) -> str:
        known = [row for row in rows if row[key] is not None]
        text = _spread([row[key] for row in known], units.format_duration)
        fewest = min((row["measured"] for row in known), default=0)
        return marked(text, FCT[key], fewest) if known else text

    return show


def _of_repairs(key: str) -> Callable[[Sequence[Row]], str]:
    """A repair time; marked, with the number of samples, if a run has too few."""

    def show(rows: Sequence[Row]) -> str:
        known = [row for row in rows if row[key] is not None]
        text = _spread([row[key] for row in known], units.format_duration)
        return _counted(text, REPAIR[key], [row["repairs"] for row in known])

    return show


def _over_oracle(key: str) -> Callable[[Sequence[Row]], str]:
    """Over the oracle's of the same seed."""

    def show(rows: Sequence[Row]) -> str:
        found = [row[key] for row in rows if row.get(key) is not None]
        return _spread(found, lambda share: f"{share:.2f}")

    return show


def _of_all(key: str) -> Callable[[Sequence[Row]], str]:
    """A time of runs that passed."""
    return lambda rows: _spread(_known(rows, key), units.format_duration)


def _of_steps(key: str) -> Callable[[Sequence[Row]], str]:
    """A time of steps, of runs that passed; marked if a run has too few."""

    def show(rows: Sequence[Row]) -> str:
        known = [row for row in _passed(rows) if row[key] is not None]
        text = _spread([row[key] for row in known], units.format_duration)
        return _counted(text, STEPS[key], [row["steps"] for row in known])

    return show


def _counted(text: str, per_mille: int, samples: Sequence[int]) -> str:
    """A percentile; where it is marked, with the number of samples, of the run that has fewest."""
    fewest = min(samples, default=0)
    shown = marked(text, per_mille, fewest) if samples else text
    return text if shown == text else f"{shown} (n {fewest})"


def _rate(key: str) -> Callable[[Sequence[Row]], str]:
    """A rate of runs that passed."""
    return lambda rows: _spread(_known(rows, key), units.format_rate)


def _slowdown(key: str) -> Callable[[Sequence[Row]], str]:
    """Of all flows."""

    def show(rows: Sequence[Row]) -> str:
        known = [(row[key], flows_of(row)) for row in rows if row[key] is not None]
        return _ratios(known, SLOWDOWN[key])

    return show


def _slowdown_of(size_class: str) -> Callable[[Sequence[Row]], str]:
    """The p99 of the flows of a class of sizes."""

    def show(rows: Sequence[Row]) -> str:
        classes = [one for row in rows for one in row["slowdown"] or ()]
        known = [(one["p99"], one["n"]) for one in classes if one["size_class"] == size_class]
        return _ratios([each for each in known if each[1]], SLOWDOWN["slowdown_p99"])

    return show


def _ratios(known: Sequence[tuple[float, int]], per_mille: int) -> str:
    """Of each run a percentile, and how many samples it has."""
    text = _spread([value for value, _ in known], lambda ratio: f"{ratio:,.2f}")
    return _counted(text, per_mille, [count for _, count in known]) if known else text


def _share(key: str) -> Callable[[Sequence[Row]], str]:
    """A share of runs that passed."""
    return lambda rows: _spread(_known(rows, key), lambda share: f"{100 * share:.1f} %")


def _known(rows: Sequence[Row], key: str) -> list[float]:
    """Of runs that passed and have this figure."""
    return [row[key] for row in _passed(rows) if row[key] is not None]


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


def _sum(key: str) -> Callable[[Sequence[Row]], str]:
    """Of the runs that have this figure."""

    def show(rows: Sequence[Row]) -> str:
        known = [row[key] for row in rows if row[key] is not None]
        return f"{sum(known):,}" if known else "-"

    return show


def _delivered(rows: Sequence[Row]) -> str:
    seen = [row for row in rows if row["messages"] is not None]
    done, total = (sum(row[key] for row in seen) for key in ("delivered", "messages"))
    return f"{done:,}" if done == total else f"{done:,} of {total:,}"


def _verdict(rows: Sequence[Row]) -> str:
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


_LINES: list[
    tuple[str, Callable[[Sequence[Row]], str], Callable[[Sequence[Row], Sequence[str]], bool]]
] = [
    ("verdict", _verdict, _always),
    ("messages delivered", _delivered, _if_seen),
    ("verified, every byte", _verified, _if_any),
    ("makespan", _of_all("makespan_ns"), _if_seen),
    ("p50 operation", _of_all("operation_p50_ns"), _unlike_makespan),
    ("goodput, all hosts", _rate("goodput_bps"), _if_seen),
    ("algbw", _rate("algbw_bps"), _if_any),
    ("busbw", _rate("busbw_bps"), _if_any),
    ("p50 step", _of_steps("step_p50_ns"), _if_any),
    ("p99 step", _of_steps("step_p99_ns"), _if_any),
    ("waiting, share of a step", _share("step_waiting"), _if_any),
    ("p50 message completion", _of_messages("fct_p50_ns"), _if_seen),
    ("p99 message completion", _of_messages("fct_p99_ns"), _if_seen),
    ("p99.9 message completion", _of_messages("fct_p999_ns"), _if_seen),
    ("offered load", _share("offered_load"), _if_any),
    ("load of the flows measured", _share("measured_load"), _if_any),
    ("p50 slowdown", _slowdown("slowdown_p50"), _if_any),
    ("p99 slowdown", _slowdown("slowdown_p99"), _if_any),
    *((f"p99 slowdown, {each}", _slowdown_of(each), _if_any) for each in SIZE_CLASSES),
    ("p50 repair", _of_repairs("repair_p50_ns"), _if_any),
    ("p99 repair", _of_repairs("repair_p99_ns"), _if_any),
    ("p50 repair, over the oracle's", _over_oracle("repair_p50_over_oracle"), _if_any),
    ("p99 repair, over the oracle's", _over_oracle("repair_p99_over_oracle"), _if_any),
    ("makespan, over the oracle's", _over_oracle("time_over_oracle"), _if_any),
    ("held back by", _held_back, _if_any),
    ("data packets sent", _sum("packets_sent"), _if_seen),
    ("control packets", _sum("control_packets"), _if_any),
    ("injected drops", _sum("injected_drops"), _always),
    ("of these, full queues", _sum("queue_drops"), _if_any),
    ("ECN marks", _sum("marked"), _if_any),
    ("trimmed", _sum("trimmed"), _if_any),
    ("emulator drops", _sum("emulator_drops"), _if_any),
    ("retransmitted", _sum("retransmitted"), _if_seen),
    ("spurious", _sum("spurious_retransmissions"), _if_seen),
    ("QP contexts missed", _sum("contexts_missed"), _if_any),
    ("fidelity", _faithful, _if_any),
]

_OF_JOBS: list[tuple[str, Callable[[Sequence[Row]], str]]] = [
    ("makespan", _of_all("makespan_ns")),
    ("goodput", _rate("goodput_bps")),
    ("p50 step", _of_steps("step_p50_ns")),
    ("p99 completion", _of_messages("fct_p99_ns")),
    ("p99 slowdown", _slowdown("slowdown_p99")),
]
