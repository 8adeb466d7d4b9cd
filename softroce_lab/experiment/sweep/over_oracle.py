# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a sweep beside those of `oracle`: with the same values and seed, and without loss.

The loss-free run is that of a combination which differs in its faults alone (`loss_free`). So an
axis such as `loss: {none: {}, random: {faults: [...]}}` has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from softroce_lab.experiment import over_oracle
from softroce_lab.experiment.over_oracle import EXCESS
from softroce_lab.experiment.sweep.loss_free import loss_free
from softroce_lab.experiment.sweep.schema import ERROR
from softroce_lab.experiment.sweep.spec import Sweep, label
from softroce_lab.experiment.sweep.work import Row


def added(sweep: Sweep, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows, each with the ratios, and with the excess where it has one (`UNDEFINED`: a word).

    Rows have a column of each axis. None: a run of the oracle is missing, or there is no result.
    """
    names = [axis.name for axis in sweep.axes]

    def place(row: Row) -> tuple[str, ...]:
        return tuple(label(row[name]) for name in names)

    found: list[dict[str, Any]] = []
    for _, group in itertools.groupby(rows, place):
        found += _with_ratios(list(group))
    bounds: dict[tuple[tuple[str, ...], int], Row] = {}
    for row in found:
        if _has_result(row) and over_oracle.is_bound(row):
            bounds.setdefault((place(row), row["seed"]), row)
    clean = loss_free(sweep.by_labels)
    for row in found:
        here, seed = place(row), row["seed"]
        row[EXCESS] = None
        if _has_result(row) and clean.get(here, here) != here:
            ends = bounds.get((here, seed)), bounds.get((clean[here], seed))
            row[EXCESS] = over_oracle.excess_of(row, *ends)
    return found


def _has_result(row: Row) -> bool:
    return bool(row["verdict"] != ERROR)


def _with_ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of one combination; those without a result have none."""
    run = iter(over_oracle.added([row for row in rows if _has_result(row)]))
    none = dict.fromkeys(over_oracle.RATIOS)
    return [next(run) if _has_result(row) else {**row, **none} for row in rows]
