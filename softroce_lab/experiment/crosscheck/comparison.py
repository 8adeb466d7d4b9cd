# SPDX-License-Identifier: GPL-2.0-or-later
"""One experiment on both clocks, and whether they agree: docs/explanation/validity.md.

A quantity is measured in every run; runs of one transport and seed on the two clocks make a pair;
the difference of a pair is given in units of a margin; `agreement` has what the pairs of all seeds
come to. Margins are this project's.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab import junit, statistics, units
from softroce_lab.errors import EnvironmentLackError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import workload_record
from softroce_lab.experiment.crosscheck import agreement
from softroce_lab.experiment.crosscheck.agreement import Agreement, Distance, Verdict
from softroce_lab.experiment.figure_table import FIGURES, Figure
from softroce_lab.experiment.reporter import Progress, Reporter
from softroce_lab.experiment.run import XdpMode
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.fabric import lacks
from softroce_lab.paths import need_live
from softroce_lab.plan import base_rtt
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, RunDirectory, environment
from softroce_lab.transports.defaults import DEFAULT_TIMING, MACHINE_RTT_NS

SHARE = 0.1
"""Of the virtual clock's value, that the real one may be off by. A completion time may besides be
off by what the machine is taken to add to each round trip of it, `MACHINE_RTT_NS`."""

MOST_SHARE = 0.5
"""A completion time has no margin beyond this share of it: one that holds all shows nothing."""

PACKETS_SHARE = 0.01
"""Of a run's data packets, that counts of packets may be off by besides."""

_GENERATOR_SEED = 0x5EED  # of the exchanges that are tried
_SUCCESS = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """What is measured in a run."""

    figure: Figure
    of: Callable[[WorkloadRun], float]
    margin_of: Callable[[WorkloadRun, float], float]  # the virtual clock's run, and its value

    @property
    def name(self) -> str:
        """What it is called."""
        return self.figure.name

    def difference(self, pair: Pair) -> float:
        """The real clock's value less the virtual one's, in units of the margin."""
        virtual, real = self.of(pair.virtual), self.of(pair.real)
        if virtual == real:
            return 0.0  # also if it is without end on both
        margin = self.margin(pair)
        return (real - virtual) / margin if math.isfinite(margin) else -math.inf

    def margin(self, pair: Pair) -> float:
        """By how much the real clock may be off."""
        return self.margin_of(pair.virtual, self.of(pair.virtual))


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """The runs of one transport with one seed."""

    virtual: WorkloadRun
    real: WorkloadRun


def _completion_times(run: WorkloadRun) -> npt.NDArray[np.float64]:
    """Of all messages, in nanoseconds; one that was not delivered takes for ever."""
    found = run.messages
    times: npt.NDArray[np.float64] = (found["completed_ns"] - found["posted_ns"]).astype(np.float64)
    times[found["status"] != _SUCCESS] = math.inf
    return times


def _quantile(per_mille: int) -> Callable[[WorkloadRun], float]:
    """One that was measured, as in the table of `lab run`."""

    def of(run: WorkloadRun) -> float:
        times = np.sort(_completion_times(run))
        return float(times[max(1, -(-len(times) * per_mille // 1000)) - 1])

    return of


def _of_time(run: WorkloadRun, value: float) -> float:
    base_rtt_ns: int = run.facts["base_rtt_ns"]
    return value * min(MOST_SHARE, SHARE + MACHINE_RTT_NS / base_rtt_ns)


def _of_packets(run: WorkloadRun, value: float) -> float:
    return SHARE * value + max(1.0, PACKETS_SHARE * int(run.messages["packets"].sum()))


def _quantity(figure: Figure) -> Quantity:
    """A percentile of completion times, or a count of packets."""
    if figure.samples is not None:
        return Quantity(figure, _quantile(figure.per_mille), _of_time)
    return Quantity(figure, figure.compute, _of_packets)


QUANTITIES = [_quantity(figure) for figure in FIGURES.values() if figure.crosschecked]


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity of one transport, on both clocks; values are medians over the seeds."""

    transport: str
    quantity: Quantity
    virtual: float
    real: float
    margin: float
    agreement: Agreement

    def document(self) -> dict[str, Any]:
        """For `--json`; what is without end is None."""
        found, unit = dataclasses.asdict(self.agreement), self.quantity.figure.unit
        return {
            "transport": self.transport,
            "quantity": self.quantity.name,
            "unit": unit.suffix.lstrip("_") or unit.name,
            "virtual": _finite(self.virtual),
            "real": _finite(self.real),
            "margin": _finite(self.margin),
            "difference_in_margins": {k: _finite(found[k]) for k in ("median", "low", "high")},
            **{name: found[name] for name in ("p_same", "p_differs", "verdict")},
        }


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """What else is to be reported of a transport."""

    transport: str
    distance: Distance  # of all completion times
    same_first_losses: bool | None  # whether the same packets were lost when they were sent first
    faithful: int  # runs on the real clock
    runs: int
    causes: tuple[str, ...]  # why its clocks may differ, as far as that is known

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the crosscheck found."""

    experiment: Experiment
    directory: Path
    clocks: dict[str, str]  # clock -> its run directory
    comparisons: list[Comparison]
    about: list[About]

    @property
    def verdict(self) -> Verdict:
        """`same` if all comparisons say so, `differs` if one does."""
        found = {each.agreement.verdict for each in self.comparisons}
        return next(each for each in ("differs", "undecided", "same") if each in found)

    def document(self) -> dict[str, Any]:
        """For `--json`, and the manifest."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.experiment.name,
            "run_dir": str(self.directory),
            "clocks": self.clocks,
            "seeds": list(self.experiment.seeds),
            "verdict": self.verdict,
            "alpha": statistics.ALPHA,
            "margins": {
                "share": SHARE,
                "machine_rtt_ns": MACHINE_RTT_NS,
                "most_share": MOST_SHARE,
                "packets_share": PACKETS_SHARE,
            },
            "comparisons": [each.document() for each in self.comparisons],
            "transports": [each.document() for each in self.about],
        }


def run(
    virtual: Experiment,
    real: Experiment,
    reporter: Reporter,
    *,
    under: Path = Path("runs"),
    mode: XdpMode = "auto",
) -> Outcome:
    """Run both, the same experiment on one clock each, and compare.

    UserError for what only one clock has, EnvironmentLackError before anything runs, RunError. A
    run that ends badly is a verdict.
    """
    experiment_run.refuse_what_is_simulated(real)
    _need_machine()
    directory = RunDirectory.create(f"{virtual.name}-both", under=under)
    about = environment() | {"file": virtual.file}
    directory.manifest(state="running", name=virtual.name, environment=about)
    try:
        outcomes = {
            each.clock: experiment_run.run(
                each, _Titled(reporter, each.clock), under=directory.path / each.clock, mode=mode
            )
            for each in (virtual, real)
        }
    except BaseException as error:
        state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        directory.manifest(state=state, error=str(error) or type(error).__name__)
        raise
    paths: dict[str, str] = {clock: str(outcome.directory) for clock, outcome in outcomes.items()}
    pairs = paired(virtual, outcomes["virtual"].runs, outcomes["real"].runs)
    found = Outcome(
        virtual,
        directory.path,
        paths,
        compared(pairs),
        [
            _about(virtual, each, pairs[each.label], _same_losses(outcomes.values(), each))
            for each in virtual.transports
        ],
    )
    directory.manifest(state="done", **found.document())
    return found


class _Titled:
    """Names the clock of a run."""

    def __init__(self, reporter: Reporter, clock: str) -> None:
        self._reporter, self._clock = reporter, clock
        self.say = reporter.say

    def run(self, name: str, messages: int) -> Progress:
        """A run begins."""
        return self._reporter.run(f"{self._clock}: {name}", messages)


def _need_machine() -> None:
    """EnvironmentLackError where no lab comes up: there is one clock only."""
    hint = "run it as root, or with sudo: a crosscheck needs both clocks"
    if os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint=hint)
    need_live()
    lacks.need(lacks.AF_XDP)
    lacks.need_compiler()


def paired(
    experiment: Experiment, virtual: Sequence[WorkloadRun], real: Sequence[WorkloadRun]
) -> dict[str, list[Pair]]:
    """The runs of both clocks by transport, in the order of seeds."""
    by_name = {run.name: run for run in real}
    pairs: dict[str, list[Pair]] = {each.label: [] for each in experiment.transports}
    for run in virtual:
        pairs[run.transport].append(Pair(run, by_name[run.name]))
    return pairs


def compared(pairs: dict[str, list[Pair]]) -> list[Comparison]:
    """Every quantity of every transport, judged together."""
    raw = [(name, each, quantity) for name, each in pairs.items() for quantity in QUANTITIES]
    found = agreement.judged(
        [
            agreement.agreement([quantity.difference(pair) for pair in each])
            for _, each, quantity in raw
        ]
    )
    return [
        Comparison(
            name,
            quantity,
            median([quantity.of(pair.virtual) for pair in each]),
            median([quantity.of(pair.real) for pair in each]),
            median([quantity.margin(pair) for pair in each]),
            judged,
        )
        for (name, each, quantity), judged in zip(raw, found, strict=True)
    ]


def _about(
    experiment: Experiment, transport: Transport, pairs: Sequence[Pair], same_losses: bool | None
) -> About:
    generator = np.random.Generator(np.random.PCG64(_GENERATOR_SEED))
    times = [(_completion_times(pair.virtual), _completion_times(pair.real)) for pair in pairs]
    return About(
        transport.label,
        agreement.distance(times, generator),
        same_losses,
        sum(_faithful(pair.real) for pair in pairs),
        len(pairs),
        tuple(_causes(experiment, pairs)),
    )


def _same_losses(outcomes: Iterable[experiment_run.Outcome], transport: Transport) -> bool | None:
    """Whether both clocks lost the same data packets first, with each seed; None: unknown."""
    if not transport.shows_messages:
        return None
    lost = [
        {
            run.seed: workload_record.first_losses(outcome.directory, run)
            for run in outcome.runs
            if run.transport == transport.label
        }
        for outcome in outcomes
    ]
    return lost[0] == lost[1]


def _faithful(run: WorkloadRun) -> bool:
    return (run.fidelity or {}).get("verdict") == "faithful"


def _causes(experiment: Experiment, pairs: Sequence[Pair]) -> Iterator[str]:
    """Why the clocks may differ, of what a run shows."""
    plan = experiment.plan(experiment.seeds[0])
    rtt_ns = base_rtt.of(plan, path_mtu_bytes(plan.mtu, 4)).rtt_ns
    if rtt_ns < DEFAULT_TIMING.t_min_ns:
        yield (
            f"the fabric's round trip, {units.format_duration(rtt_ns)}, is shorter than what the "
            f"machine may add: timers are its own, {DEFAULT_TIMING.t_min_ns // 10**6} ms and more"
        )
    unfaithful = [pair.real for pair in pairs if not _faithful(pair.real)]
    if unfaithful:
        first = unfaithful[0]
        reasons = (first.fidelity or {}).get("reasons") or ("no reason given",)
        yield (
            f"{len(unfaithful)} of {len(pairs)} runs on the real clock were not faithful; "
            f"with seed {first.seed}, {reasons[0]}"
        )
    lost = sum(int(link["emulator_drops"]) for pair in pairs for link in pair.real.links)
    if lost:
        yield f"the machine lost {units.format_count(lost, 'frame')}, not a rule"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_junit(path: Path, outcome: Outcome) -> None:
    """A suite for each transport, a case for each quantity. UserError if it cannot be written.

    `failure` is a difference, `skipped` what too few seeds could decide.
    """
    suites = []
    for about in outcome.about:
        mine = [each for each in outcome.comparisons if each.transport == about.transport]
        suites.append(junit.Suite(about.transport, [_case(about, each) for each in mine]))
    junit.write(path, "lab run --clock both", suites)


def _case(about: About, comparison: Comparison) -> junit.Case:
    classname, name = f"crosscheck.{about.transport}", comparison.quantity.name
    found = comparison.agreement
    text = f"off by {found.median:+.2f} [{found.low:+.2f}, {found.high:+.2f}] margins"
    if found.verdict == "differs":
        return junit.Case(classname, name, "failure", text, name, "\n".join(about.causes))
    if found.verdict == "undecided":
        return junit.Case(classname, name, "skipped", text)
    return junit.Case(classname, name)
