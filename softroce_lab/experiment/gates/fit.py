# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates that no run of a file can have: refused before the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab.experiment import over_oracle
from softroce_lab.experiment.gates.expect import VERIFIED, Term
from softroce_lab.experiment.spec import Experiment
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.training import Training
from softroce_lab.workloads.work import Workload

_OF_FABRIC = ("injected_drops", "queue_drops", "marked", "trimmed", "emulator_drops")
_REPAIRS = ("repairs", "unrepaired", "repair_p50", "repair_p99", "repair_p50_over_oracle",
            "repair_p99_over_oracle")  # fmt: skip
_OF_KINDS: dict[str, tuple[tuple[type[Workload], ...], str]] = {
    "algbw": ((Collective, Exchange), "collectives"),
    "busbw": ((Collective, Exchange), "collectives"),
    "slowdown_p50": ((OpenLoop,), "open-loop traffic"),
    "slowdown_p99": ((OpenLoop,), "open-loop traffic"),
    "step_p50": ((Training,), "a training"),
    "step_p99": ((Training,), "a training"),
    "step_waiting": ((Training,), "a training"),
}


def check(source: Source, experiments: Sequence[Experiment], *, sweep: bool = False) -> None:
    """UserError, at its place, for a gate on a figure that none of these experiments has."""
    names: Any = source.data.get("expect") or {}
    for name in names:
        for part in name.split("/"):
            figure = Term.of(part).figure
            lacks = [_lacks(figure, each, sweep=sweep) for each in experiments]
            if lacks and lacks[0] is not None and None not in lacks:
                what, hint = lacks[0]
                raise source.error(("expect", name), f"{name}: {what}", hint=hint, at_key=True)


def _lacks(figure: str, experiment: Experiment, *, sweep: bool) -> tuple[str, str | None] | None:
    """Why its runs do not have a figure, and what to do; None: they may have it."""
    if experiment.raw.workload.kind == "program" and figure not in _OF_FABRIC:
        return "programs show no messages", f"of them: {', '.join(_OF_FABRIC)}"
    if figure == VERIFIED and experiment.clock == "virtual" and experiment.payload == "none":
        return "no bytes are compared", "payload: verify"
    if figure in _REPAIRS and experiment.clock == "real":
        return "the real clock does not record repair times", "clock: virtual"
    if figure == over_oracle.EXCESS and not sweep:
        return "only a sweep has it: it compares with a run without loss", "docs/sweeps.md"
    bound = any(each.protocol == over_oracle.ORACLE for each in experiment.transports)
    if figure in (*over_oracle.RATIOS, over_oracle.EXCESS) and not bound:
        return "no run is of oracle, which it is compared with", "transports: [..., oracle]"
    kinds, words = _OF_KINDS.get(figure, ((), ""))
    if kinds and not _is_of(experiment, kinds):
        kind = experiment.raw.workload.kind
        return f"{kind} has no {figure}: it is of {words}", None
    return None


def _is_of(experiment: Experiment, kinds: tuple[type[Workload], ...]) -> bool:
    workload = experiment.workload(experiment.seeds[0])
    once = workload.once if isinstance(workload, Operations) else workload
    return isinstance(once, kinds)
