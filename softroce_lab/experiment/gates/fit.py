# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates that no run of a file can have: refused before the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab.experiment.figure_table import FIGURES, LOSSLESS, ORACLE, PRINTED, TRUTH, Figure
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.spec import Experiment
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.work import Workload


def check(source: Source, experiments: Sequence[Experiment], *, sweep: bool = False) -> None:
    names: Any = source.data.get("expect") or {}
    for name in names:
        for term in expect.terms(name):
            lacks = [_lacks(term.figure, each, sweep=sweep) for each in experiments]
            if lacks and lacks[0] is not None and None not in lacks:
                what, hint = lacks[0]
                raise source.error(("expect", name), f"{name}: {what}", hint=hint, at_key=True)


def _lacks(figure: Figure, experiment: Experiment, *, sweep: bool) -> tuple[str, str | None] | None:
    """Why its runs do not have a figure, and what to do; None: they may have it."""
    seen = [each.gate for each in FIGURES.values() if each.of_programs and each.unit.is_number]
    if experiment.raw.workload.kind == "program" and not figure.of_programs:
        return "programs show no messages", f"of them: {', '.join(seen)}"
    if figure.key.startswith(PRINTED) and experiment.raw.workload.kind != "program":
        return "only programs print figures", "workload: {kind: program}"
    if figure.unit == TRUTH and experiment.clock == "virtual" and experiment.payload == "none":
        return "no bytes are compared", "payload: verify"
    if figure.virtual_only and experiment.clock == "real":
        return f"the real clock does not record {figure.gate}", "clock: virtual"
    if figure.sweep_only and not sweep:
        return (
            "only a sweep has it: it compares with a run without loss",
            "write it into a sweep: docs/howto/experiments.md, Sweep over values",
        )
    protocols = {each.protocol for each in experiment.transports}
    # In a sweep, the oracle's run without loss may stand for it (sweep/bounds.py).
    stands_in = {LOSSLESS} if sweep and ORACLE in protocols else set()
    if figure.bound and figure.bound not in protocols | stands_in:
        what = f"no run is of {figure.bound}, which it is compared with"
        return what, f"transports: [..., {figure.bound}]"
    if figure.workloads is not None and not _is_of(experiment, figure.workloads.types):
        kind = experiment.raw.workload.kind
        return f"{kind} has no {figure.gate}: it is of {figure.workloads.name}", None
    return None


def _is_of(experiment: Experiment, kinds: tuple[type[Workload], ...]) -> bool:
    workload = experiment.workload(experiment.seeds[0])
    once = workload.once if isinstance(workload, Operations) else workload
    return isinstance(once, kinds)
