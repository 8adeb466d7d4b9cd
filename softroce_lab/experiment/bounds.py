# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs compared with the bounds `oracle` and `lossless`: pure functions of figures.

`oracle` bounds retransmission after loss. `lossless` is the same transport on a fabric whose faults
lose nothing, so it bounds every way of recovery. A run is compared with the bound's run of the same
seed: the first run of that transport, whatever its label. All of these definitions are this
project's (docs/explanation/transports.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from softroce_lab.experiment.figure_table import FIGURES, LOSSLESS, ORACLE, Row

EXCESS = "excess_p99"
RATIOS = {key: figure for key, figure in FIGURES.items() if figure.bound and not figure.sweep_only}
"""Figures that are the ratio of a run's figure to that of a bound."""
LEAST_COST_RTTS = 0.5
"""The excess is defined where loss costs the oracle itself so many base RTTs or more."""
UNDEFINED = "undefined"
"""The excess where loss costs the oracle itself less than half a base RTT."""


def ratio(value_ns: float | None, bound_ns: float | None) -> float | None:
    """None: one of them is not known, or the bound's is 0."""
    if value_ns is None or not bound_ns:
        return None
    return value_ns / bound_ns


def excess(
    value_ns: float, with_loss_ns: float, without_loss_ns: float, base_rtt_ns: float
) -> float | None:
    """(value - L) / (O - L): of a percentile under loss, over what loss costs the oracle.

    `with_loss_ns`, O: the oracle's under the same loss; `without_loss_ns`, L: without; same seed.
    None: O - L is below half a base RTT. Then queues decide, and loss may even shorten it.
    """
    cost_ns = with_loss_ns - without_loss_ns
    if cost_ns < LEAST_COST_RTTS * base_rtt_ns:
        return None
    return (value_ns - without_loss_ns) / cost_ns


def is_run_of(row: Row, bound: str) -> bool:
    """Whether the row is a run of this bound, whatever its label."""
    return bool(row["protocol"] == bound)


def by_seed(rows: Sequence[Row], bound: str) -> dict[int, Row]:
    """The first run of this bound with each seed."""
    runs: dict[int, Row] = {}
    for row in rows:
        if is_run_of(row, bound):
            runs.setdefault(row["seed"], row)
    return runs


def added(
    rows: Sequence[Row], lossless: Mapping[int, Row] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """The rows of one experiment, each with `RATIOS`.

    A ratio is None without a run of its bound. A run that failed, or is compared with one that
    did, has no time. `lossless`: by seed, runs that stand for `lossless` where no row is of it.
    """
    runs = {
        ORACLE: by_seed(rows, ORACLE),
        LOSSLESS: {**lossless, **by_seed(rows, LOSSLESS)},
    }
    return [
        {**row, **{key: _ratio(row, runs[figure.bound].get(row["seed"]), figure.ratio_of)
                   for key, figure in RATIOS.items()}}
        for row in rows
    ]  # fmt: skip


def _ratio(row: Row, bound: Row | None, key: str) -> float | None:
    if bound is None:
        return None
    both_passed = row["verdict"] == bound["verdict"] == "passed"
    if FIGURES[key].passed_only and not both_passed:
        return None
    return ratio(row[key], bound[key])


def excess_of(row: Row, oracle: Row | None, lossless: Row | None) -> float | str | None:
    """Of a run's p99 message completion: a number, `UNDEFINED`, or None: something is missing.

    `oracle` and `lossless` are the runs of the bounds with the same seed.
    """
    if oracle is None or lossless is None:
        return None
    value_ns, with_loss_ns, without_loss_ns = (
        each["fct_p99_ns"] for each in (row, oracle, lossless)
    )
    rtt_ns = row["base_rtt_ns"]
    if None in (value_ns, with_loss_ns, without_loss_ns, rtt_ns):
        return None
    known = excess(value_ns, with_loss_ns, without_loss_ns, rtt_ns)
    return UNDEFINED if known is None else known
