# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench tails`: p99 of csa_ud beside `ud_rto`'s on the real clock, under two kinds of loss.

One host sends messages of 64 KiB to another over two spines of 200 Mbit/s. Both transports run with
each seed in one lab, one after the other, so that a ratio is of one machine's minute.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs import yaml_source
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

OURS, BASELINE = "csa_ud", "ud_rto"
SEEDS = 10
MESSAGES = 128
"""More than the hundred that a p99 needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A kind of loss, and the largest median of the ratios that is good."""

    fault: str
    limit: float


CASES: Mapping[str, Case] = {
    "1 % of packets": Case('links: "leaf*<->spine*", loss: random 1%', 0.7),
    "every tail, once": Case('links: "h1->leaf1", drop: {tail: 1, iter: 1}', 0.5),
}
_EXPERIMENT = """
name: tails
topology:
  generator:
    {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1, access: {wire}, core: {wire}}}
transports: [{ours}, {baseline}]
workload: {{kind: point-to-point, bytes: {size}, message: 64KiB}}
faults: [{{name: loss, {fault}}}]
seeds: {seeds}
clock: real
deadline: 60s
"""
_WIRE = "{rate: 200Mbit, delay: 125us}"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """p99 of each transport under each loss, ns, one a seed."""

    p99_ns: Mapping[str, Mapping[str, list[int]]]  # by case, by transport
    faithful: int  # runs
    runs: int

    def ratios(self) -> dict[str, Interval]:
        """csa_ud's p99 over the baseline's, by case."""
        return {
            case: median_interval(
                [ours / other for ours, other in zip(of[OURS], of[BASELINE], strict=True)]
            )
            for case, of in self.p99_ns.items()
        }

    @property
    def missed(self) -> list[str]:
        """Cases whose median is above the limit."""
        return [case for case, r in self.ratios().items() if r.median > CASES[case].limit]

    def lines(self) -> list[str]:
        """For people."""
        found = []
        for case, ratio in self.ratios().items():
            p99 = ", ".join(
                f"{name} {median_interval(values).median / 1e6:.1f} ms"
                for name, values in self.p99_ns[case].items()
            )
            limit = CASES[case].limit
            missed = ", missed" if case in self.missed else ""
            found.append(f"{case:18}{ratio} of {BASELINE}'s p99, limit {limit:g}{missed} ({p99})")
        return [*found, f"{self.faithful} of {self.runs} runs were faithful"]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        ratios = self.ratios()
        return {
            "schema_version": SCHEMA_VERSION,
            "baseline": BASELINE,
            "ratios": {case: round(ratio.median, 4) for case, ratio in ratios.items()},
            "ratios_interval_95": {case: [r.low, r.high] for case, r in ratios.items()},
            "limits": {case: each.limit for case, each in CASES.items()},
            "missed": self.missed,
            "p99_ns": {case: dict(of) for case, of in self.p99_ns.items()},
            "faithful": self.faithful,
            "runs": self.runs,
            "environment": environment(),
        }


def run(seeds: int, say: Callable[[str], None]) -> Outcome:
    """Measure, as root. RunError if a run fails; labs are gone afterwards."""
    found: dict[str, dict[str, list[int]]] = {}
    runs: list[WorkloadRun] = []
    for name, case in CASES.items():
        say(f"{name}: {seeds} seeds")
        text = _EXPERIMENT.format(
            wire=_WIRE, ours=OURS, baseline=BASELINE, size=f"{MESSAGES * 64}KiB",
            fault=case.fault, seeds=seeds,
        )  # fmt: skip
        loaded = spec.of(yaml_source.parse(text, "tails.yaml"))
        with tempfile.TemporaryDirectory(prefix="softroce-lab-tails-") as unwanted:
            outcome = experiment_run.run(loaded, Silent(), under=Path(unwanted))
        runs += outcome.runs
        found[name] = {OURS: [], BASELINE: []}
        for each in outcome.runs:
            if each.reasons:
                raise RunError(f"{name}, {each.name}: {each.reasons[0]}")
            found[name][each.transport].append(each.summary()["fct_p99_ns"])
    faithful = sum((each.fidelity or {}).get("verdict") == "faithful" for each in runs)
    return Outcome(found, faithful, len(runs))
