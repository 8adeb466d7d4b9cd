# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs beside that of `oracle`, the bound for retransmission after loss: pure functions of figures.

A run is compared with the oracle's of the same seed: the first run of the transport `oracle`,
whatever its label. All of these definitions are this project's (docs/explanation/transports.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab.experiment.figure_table import FIGURES, Row

ORACLE = "oracle"
EXCESS = "excess_p99"
RATIOS = {
    key: figure.over_oracle
    for key, figure in FIGURES.items()
    if figure.over_oracle and not figure.sweep_only
}
"""Figures that are ratios, and of what."""
LEAST_COST_RTTS = 0.5
"""The excess is defined where loss costs the oracle itself so many base RTTs or more."""
UNDEFINED = "undefined"
"""The excess where loss costs the oracle itself less than half a base RTT."""


def ratio(value_ns: float | None, oracle_ns: float | None) -> float | None:
    """None: one of them is not known, or the oracle's is 0."""
    if value_ns is None or not oracle_ns:
        return None
    return value_ns / oracle_ns


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


def is_bound(row: Row) -> bool:
    """Whether it is a run of `oracle`, whatever its label."""
    return bool(row["protocol"] == ORACLE)


def added(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of one experiment, each with `RATIOS`; None without a run of the oracle.

    A run that failed, or is compared with one that did, has no time.
    """
    bounds: dict[int, Row] = {}
    for row in filter(is_bound, rows):
        bounds.setdefault(row["seed"], row)
    return [{**row, **_ratios(row, bounds.get(row["seed"]))} for row in rows]


def _ratios(row: Row, bound: Row | None) -> dict[str, float | None]:
    if bound is None:
        return dict.fromkeys(RATIOS)
    whole = row["verdict"] == bound["verdict"] == "passed"
    return {
        name: ratio(row[of], bound[of]) if whole or not FIGURES[of].passed_only else None
        for name, of in RATIOS.items()
    }


def excess_of(row: Row, bound: Row | None, clean: Row | None) -> float | str | None:
    """Of a run's p99 message completion: a number, `UNDEFINED`, or None: something is missing.

    `bound`, `clean`: the oracle's run with the same seed and loss, and without loss.
    """
    if bound is None or clean is None:
        return None
    value_ns, with_loss_ns, without_loss_ns = (each["fct_p99_ns"] for each in (row, bound, clean))
    rtt_ns = row["base_rtt_ns"]
    if None in (value_ns, with_loss_ns, without_loss_ns, rtt_ns):
        return None
    found = excess(value_ns, with_loss_ns, without_loss_ns, rtt_ns)
    return UNDEFINED if found is None else found
