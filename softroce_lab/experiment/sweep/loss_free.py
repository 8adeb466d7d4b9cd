# SPDX-License-Identifier: GPL-2.0-or-later
"""Which combination of a sweep is another one without loss, and gates that need one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TypeAlias

from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.spec import Experiment
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
