# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a sweep beside those of `oracle`: with the same values and seed, and without loss.

The loss-free run is that of a combination which differs in its faults alone (`loss_free`). So an
axis such as `loss: {none: {}, random: {faults: [...]}}` has it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from softroce_lab.experiment import over_oracle
from softroce_lab.experiment.figure_table import Row
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.over_oracle import EXCESS
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.sweep.rows import ERROR
from softroce_lab.experiment.sweep.values import label
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.plan.plan import with_digest

Labels: TypeAlias = tuple[str, ...]
"""Of a combination: those of its values, in the order of the axes."""


def loss_free(combinations: Mapping[Labels, Experiment]) -> dict[Labels, Labels]:
    """Of each combination the one that is the same without loss; of one without loss the first.

    It differs in its faults alone, and has none that drop or corrupt packets.
    """
    alike: dict[str, Labels] = {}
    rest: dict[Labels, str] = {}
    for labels, experiment in combinations.items():
        rest[labels], loses = _but_for_loss(experiment)
        if not loses:
            alike.setdefault(rest[labels], labels)
    return {labels: alike[key] for labels, key in rest.items() if key in alike}


def _but_for_loss(experiment: Experiment) -> tuple[str, bool]:
    """All that decides what a run comes to but its losses, as a text; whether it has any."""
    plan = experiment.plan(experiment.seeds[0])
    bare = with_digest(dataclasses.replace(plan, faults=()))
    document = experiment.document()
    own = {key: value for key, value in document.items() if key not in ("faults", "transports")}
    shapes = [
        (fault.directed_link, repr(fault.effect), repr(fault.window))
        for fault in plan.faults
        if fault.shapes
    ]
    text = json.dumps([own, bare.digest, shapes], sort_keys=True, default=str)
    return text, any(not fault.shapes for fault in plan.faults)


def check(source: Source, combinations: Mapping[Labels, Experiment]) -> None:
    """UserError, at its place, for a gate on the excess over the oracle that no run can have."""
    written = source.data.get("expect")
    names = written if isinstance(written, dict) else {}
    gates = [name for name in names if any(term.figure.sweep_only for term in expect.terms(name))]
    if not gates or any(one != other for one, other in loss_free(combinations).items()):
        return
    what = f"{gates[0]}: no combination differs from another one by its losses alone"
    hint = "such as over: {loss: {none: {faults: []}, some: {faults: [...]}}}"
    raise source.error(("expect", gates[0]), what, hint=hint, at_key=True)


def added(
    axes: Sequence[str], combinations: Mapping[Labels, Experiment], rows: Sequence[Row]
) -> list[dict[str, Any]]:
    """The rows, each with the ratios, and with the excess where it has one (`UNDEFINED`: a word).

    Rows have a column of each axis. None: a run of the oracle is missing, or there is no result.
    """

    def place(row: Row) -> Labels:
        return tuple(label(row[name]) for name in axes)

    found: list[dict[str, Any]] = []
    for _, group in itertools.groupby(rows, place):
        found += _with_ratios(list(group))
    bounds: dict[tuple[Labels, int], Row] = {}
    for row in found:
        if _has_result(row) and over_oracle.is_bound(row):
            bounds.setdefault((place(row), row["seed"]), row)
    clean = loss_free(combinations)
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
