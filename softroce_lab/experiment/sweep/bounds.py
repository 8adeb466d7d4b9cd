# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a sweep compared with the bounds `oracle` and `lossless` (experiment/bounds.py).

Both runs have the same values and seed. A sweep with an axis such as
`loss: {none: {}, random: {faults: [...]}}` needs no transport `lossless`: the oracle's run of the
combination that differs in its losses only (`loss_free`) is the same run.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from softroce_lab.experiment import bounds
from softroce_lab.experiment.bounds import EXCESS
from softroce_lab.experiment.figure_table import LOSSLESS, ORACLE, Row
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.gates.expect import Term
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.sweep.rows import ERROR
from softroce_lab.experiment.sweep.values import label
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.plan.plan import with_digest

Labels: TypeAlias = tuple[str, ...]
"""Of a combination: those of its values, in the order of the axes."""


def loss_free(combinations: Mapping[Labels, Experiment]) -> dict[Labels, Labels]:
    """Of each combination the one that is the same without loss; of one without loss the first.

    It differs in its faults alone, and has none that drop, cut or corrupt packets.
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
    """UserError, at its place, for a gate that needs a run without loss if there is none.

    It is the oracle's in the combination that `loss_free` names, or a run of `lossless`.
    """
    if any(
        transport.protocol == LOSSLESS
        for experiment in combinations.values()
        for transport in experiment.transports
    ):
        return
    written = source.data.get("expect")
    names = written if isinstance(written, dict) else {}
    gates = [name for name in names if any(map(_needs_lossless, expect.terms(name)))]
    if not gates or any(one != other for one, other in loss_free(combinations).items()):
        return
    what = f"{gates[0]}: no combination differs from another one by its losses alone"
    hint = "such as over: {loss: {none: {faults: []}, some: {faults: [...]}}}"
    raise source.error(("expect", gates[0]), what, hint=hint, at_key=True)


def _needs_lossless(term: Term) -> bool:
    return term.figure.key == EXCESS or term.figure.bound == LOSSLESS


def added(
    axes: Sequence[str], combinations: Mapping[Labels, Experiment], rows: Sequence[Row]
) -> list[dict[str, Any]]:
    """The rows, each with the ratios, and with the excess where it has one (`UNDEFINED`: a word).

    Rows have a column of each axis. None: a run of a bound is missing, or there is no result.
    Where no row is of `lossless`, the oracle's run of the combination without loss stands for it.
    """

    def place(row: Row) -> Labels:
        return tuple(label(row[name]) for name in axes)

    places = {where: list(group) for where, group in itertools.groupby(rows, place)}
    results = {where: list(filter(_has_result, group)) for where, group in places.items()}
    clean = loss_free(combinations)
    compared: list[dict[str, Any]] = []
    for where, group in places.items():
        oracle = bounds.by_seed(results[where], ORACLE)
        lossless = {
            **bounds.by_seed(results.get(clean.get(where, ()), ()), ORACLE),
            **bounds.by_seed(results[where], LOSSLESS),
        }
        with_ratios = iter(bounds.added(results[where], lossless))
        for row in group:
            if not _has_result(row):
                compared.append({**row, **dict.fromkeys((*bounds.RATIOS, EXCESS))})
                continue
            ends = oracle.get(row["seed"]), lossless.get(row["seed"])
            known = None if ends[0] is ends[1] else bounds.excess_of(row, *ends)
            compared.append({**next(with_ratios), EXCESS: known})
    return compared


def _has_result(row: Row) -> bool:
    return bool(row["verdict"] != ERROR)
