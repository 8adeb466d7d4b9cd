# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench tails`: p99 of csa_ud beside `ud_rto`'s on the real clock, under two kinds of loss.

One host sends messages of 64 KiB to another over two spines of 200 Mbit/s, one at a time: with
several on their way a completion time is that of the queue, for others fill what a loss leaves
empty. A round trip takes 20 ms, so that what the machine adds decides nothing. Both transports run
with each seed in one lab, one after the other, so that a ratio is of one machine's minute.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
depth: 1
faults: [{{name: loss, {fault}}}]
seeds: {seeds}
clock: real
deadline: 60s
"""
_WIRE = "{rate: 200Mbit, delay: 2500us}"


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Both transports with one seed: p99, ns."""

    seed: int
    ours_ns: int
    baseline_ns: int
    faithful: bool  # both runs were: others are not judged

    @property
    def ratio(self) -> float:
        """csa_ud's p99 over the baseline's."""
        return self.ours_ns / self.baseline_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Pairs under each loss, by case."""

    pairs: Mapping[str, Sequence[Pair]]
    faithful: int  # runs
    runs: int
    failed: Sequence[str] = ()  # why, a line each; their seeds have no pair

    def ratios(self) -> dict[str, Interval]:
        """csa_ud's p99 over the baseline's, of cases that have a faithful pair."""
        return {
            case: median_interval([pair.ratio for pair in judged])
            for case, pairs in self.pairs.items()
            if (judged := [pair for pair in pairs if pair.faithful])
        }

    @property
    def missed(self) -> list[str]:
        """Cases whose median is above the limit."""
        return [case for case, r in self.ratios().items() if r.median > CASES[case].limit]

    @property
    def not_judged(self) -> list[str]:
        """Cases without a faithful pair."""
        return [case for case in self.pairs if case not in self.ratios()]

    @property
    def passed(self) -> bool:
        """Whether every case was judged, and none missed."""
        return not (self.missed or self.not_judged or self.failed)

    def lines(self) -> list[str]:
        """For people."""
        found = [self._line(case, pairs) for case, pairs in self.pairs.items()]
        found += [f"failed: {each}" for each in self.failed]
        return [*found, f"{self.faithful} of {self.runs} runs were faithful"]

    def _line(self, case: str, pairs: Sequence[Pair]) -> str:
        judged = [pair for pair in pairs if pair.faithful]
        out = [f"{pair.seed}*" for pair in pairs if not pair.faithful]
        without = f"; seeds left out, not faithful: {', '.join(out)}" if out else ""
        if not judged:
            return f"{case:18}not judged: no seed is faithful with both transports{without}"
        ratio, limit = self.ratios()[case], CASES[case].limit
        p99 = {OURS: [pair.ours_ns for pair in judged],
               BASELINE: [pair.baseline_ns for pair in judged]}  # fmt: skip
        text = ", ".join(
            f"{name} {median_interval(values).median / 1e6:.1f} ms" for name, values in p99.items()
        )
        missed = ", missed" if case in self.missed else ""
        return (
            f"{case:18}{ratio} of {BASELINE}'s p99, limit {limit:g}{missed} "
            f"({text}; n {len(judged)}{without})"
        )

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        ratios = self.ratios()
        return {
            "schema_version": SCHEMA_VERSION,
            "baseline": BASELINE,
            "verdict": "passed" if self.passed else "failed",
            "ratios": {case: round(ratio.median, 4) for case, ratio in ratios.items()},
            "ratios_interval_95": {case: [r.low, r.high] for case, r in ratios.items()},
            "limits": {case: each.limit for case, each in CASES.items()},
            "missed": self.missed,
            "not_judged": self.not_judged,
            "failed": list(self.failed),
            "pairs": {
                case: [dataclasses.asdict(pair) for pair in pairs]
                for case, pairs in self.pairs.items()
            },
            "faithful": self.faithful,
            "runs": self.runs,
            "environment": environment(),
        }


def run(seeds: int, say: Callable[[str], None]) -> Outcome:
    """Measure, as root. Labs are gone afterwards."""
    pairs: dict[str, list[Pair]] = {}
    failed: list[str] = []
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
        failed += [f"{name}, {each.name}: {each.reasons[0]}" for each in outcome.runs
                   if each.reasons]  # fmt: skip
        pairs[name] = _pairs(outcome.runs)
    return Outcome(pairs, sum(map(_is_faithful, runs)), len(runs), failed)


def _pairs(runs: Sequence[WorkloadRun]) -> list[Pair]:
    """Of the seeds that both transports passed."""
    by_seed: dict[int, dict[str, WorkloadRun]] = {}
    for each in runs:
        if not each.reasons:
            by_seed.setdefault(each.seed, {})[each.transport] = each
    return [
        Pair(
            seed,
            *(of[name].summary()["fct_p99_ns"] for name in (OURS, BASELINE)),
            faithful=all(map(_is_faithful, of.values())),
        )
        for seed, of in by_seed.items()
        if len(of) == 2
    ]


def _is_faithful(run: WorkloadRun) -> bool:
    return (run.fidelity or {}).get("verdict") == "faithful"
