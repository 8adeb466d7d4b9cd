# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench spines`: how soon a transport leaves a spine that loses packets.

One host sends 64 MiB to another over a few spines, one of which loses packets from the beginning
on. Two figures, of each seed: the share of the packets after five base round trips that take other
spines, and retransmissions as a share of the packets of the transfer. A third one: packets over a
dead spine of two that carries again for 100 round trips. On the real clock links are slower, and
the latest decision that the run has recorded is added to the five round trips.

The packets that went to the bad spine are counted by its losses there, over its rate of loss.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from softroce_lab.errors import RunError
from softroce_lab.experiment import real, spec
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.forecast import base_rtt
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs import yaml_source
from softroce_lab.statistics import median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

Times: TypeAlias = npt.NDArray[np.int64]

ROUND_TRIPS = 5
OTHERS_LIMIT = 0.95  # of the packets after so many round trips
RETRANSMITTED_LIMIT = 0.03
BACK_ROUND_TRIPS = 100  # within which a spine that carries again is used again
SEEDS, FULL_SEEDS = 5, 100
LIMITS = (
    f"limits, for every seed: at least {OTHERS_LIMIT:.0%} on other spines, "
    f"less than {RETRANSMITTED_LIMIT:.0%} retransmitted, the spine that carries again used"
)
BYTES = "64MiB"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A bad spine among others."""

    spines: int
    loss: str  # as a rule has it
    share: float  # of packets that it loses


CASES: Mapping[str, Case] = {
    "dead, one of two": Case(2, "blackout", 1),
    "dead, one of four": Case(4, "blackout", 1),
    "grey at 1 %, one of four": Case(4, "random 1%", 0.01),
    "grey at 10 %, one of four": Case(4, "random 10%", 0.1),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """A clock, and links that suit it."""

    name: str
    wire: str
    deadline: str
    begins_ns: int = 0  # the transfer, after the times of rules do


CLOCKS: Mapping[str, Clock] = {
    "virtual": Clock("virtual", "{rate: 100Gbit, delay: 1us, limit: 1MiB}", "2s"),
    # A round trip of 20 ms, in which what the machine adds is little.
    "real": Clock("real", "{rate: 200Mbit, delay: 2500us}", "60s", real.START_NS),
}
_UP = "leaf1->spine"
_EXPERIMENT = """
name: spines
topology:
  generator:
    {{kind: leaf-spine, leaves: 2, spines: {spines}, hosts_per_leaf: 1,
      access: {wire}, core: {wire}}}
lb: flow
transports: [{transport}]
workload: {{kind: point-to-point, bytes: {bytes}, message: 1MiB}}
faults: [{faults}]
seeds: [{seed}]
clock: {clock}
deadline: {deadline}
"""
_FAULT = '{{name: {name}, links: "leaf*->spine1", loss: {loss}{when}}}'


@dataclasses.dataclass(frozen=True, slots=True)
class Left:
    """What one seed came to."""

    seed: int
    others: float  # share of the packets after ROUND_TRIPS that took other spines
    retransmitted: float  # share of the packets of the transfer

    @property
    def missed(self) -> bool:
        """Whether one of the limits is."""
        return self.others < OTHERS_LIMIT or self.retransmitted >= RETRANSMITTED_LIMIT


@dataclasses.dataclass(frozen=True, slots=True)
class Back:
    """Packets over a dead spine while it carried again for BACK_ROUND_TRIPS, of each seed."""

    transport: str
    packets: Mapping[int, int]  # by seed
    failed: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Whether every seed used it again."""
        return all(self.packets.values()) and not self.failed

    @property
    def text(self) -> str:
        """One line, and one for each failed seed."""
        used = [packets for packets in self.packets.values() if packets]
        title = f"{'well again, one of two':26}{self.transport:8} "
        line = (
            f"used again within {BACK_ROUND_TRIPS} RTTs by {len(used)} of {len(self.packets)} seeds"
        )
        least = f"; packets there: least {min(self.packets.values())}" if self.packets else ""
        return "\n".join((title + line + least, *(f"  failed: {why}" for why in self.failed)))

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        packets = {str(seed): count for seed, count in self.packets.items()}
        return {"transport": self.transport, "packets": packets, "failed": list(self.failed)}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All seeds of a case."""

    name: str
    transport: str
    found: Sequence[Left]
    failed: Sequence[str] = ()  # why, of each seed that failed: it has no figures

    @property
    def passed(self) -> bool:
        """Whether no seed misses a limit, or failed."""
        return not (self.missed or self.failed)

    @property
    def missed(self) -> int:
        """Seeds that miss a limit."""
        return sum(each.missed for each in self.found)

    @property
    def text(self) -> str:
        """One line, and one for each failed seed."""
        return "\n".join((self._figures(), *(f"  failed: {why}" for why in self.failed)))

    def _figures(self) -> str:
        title = f"{self.name:26}{self.transport:8} "
        ended = f", {len(self.failed)} failed" if self.failed else ""
        if not self.found:
            return f"{title}no figures{ended}"
        others = [each.others for each in self.found]
        again = [each.retransmitted for each in self.found]
        return (
            f"{title}on other spines after {ROUND_TRIPS} RTTs: median "
            f"{median_interval(others).median:.1%}, least {min(others):.1%}; retransmitted: median "
            f"{median_interval(again).median:.2%}, most {max(again):.2%}; "
            f"{self.missed} of {len(self.found)} seeds miss{ended}"
        )

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "case": self.name,
            "transport": self.transport,
            "missed": self.missed,
            "failed": list(self.failed),
            "seeds": [dataclasses.asdict(each) | {"missed": each.missed} for each in self.found],
        }


def experiment(
    case: Case,
    transport: str,
    bytes_: str,
    clock: Clock,
    seed: int,
    well_ns: tuple[int, int] | None = None,
) -> Experiment:
    """One transfer of a case. Between these two times of it the spine loses nothing."""
    periods = {"bad": ""}
    if well_ns is not None:
        begin_ns, end_ns = (clock.begins_ns + ns for ns in well_ns)
        periods = {"bad": f", for: {begin_ns}ns", "again": f", at: {end_ns}ns"}
    faults = [_FAULT.format(name=name, loss=case.loss, when=when) for name, when in periods.items()]
    text = _EXPERIMENT.format(
        spines=case.spines, transport=transport, bytes=bytes_, wire=clock.wire, seed=seed,
        clock=clock.name, deadline=clock.deadline, faults=", ".join(faults),
    )  # fmt: skip
    return spec.of(yaml_source.parse(text, "spines.yaml"))


def transfer(loaded: Experiment) -> tuple[WorkloadRun, Times]:
    """Run it, on its clock: and when the bad spine lost packets, ns. RunError if it fails."""
    seed = loaded.seeds[0]
    if loaded.clock == "virtual":
        run = VirtualRun(loaded, loaded.transports[0], seed, lambda _: None).go()
        events = pa.table(run.events)
    else:
        with tempfile.TemporaryDirectory(prefix="softroce-lab-spines-") as unwanted:
            outcome = experiment_run.run(loaded, Silent(), under=Path(unwanted))
            (run,) = outcome.runs
            events = pq.read_table(outcome.directory / "events.parquet")
    if run.reasons:
        raise RunError(f"seed {seed}: {run.reasons[0]}")
    lost = np.asarray(events["link"]) == f"{_UP}1"
    return run, np.asarray(events["time_ns"])[lost]


def measure(case: Case, loaded: Experiment) -> Left:
    """One transfer. RunError if it fails."""
    return left(case, loaded, *transfer(loaded))


def left(case: Case, loaded: Experiment, run: WorkloadRun, lost_ns: Times) -> Left:
    """The figures of a transfer."""
    empty = _empty(loaded, run)
    after_ns = ROUND_TRIPS * empty.rtt_ns + _latest_decision_ns(run)
    late = int((lost_ns >= after_ns).sum())
    ups = [link for link in run.links if link["name"].startswith(_UP)]
    entered = sum(link["sent"] + link["injected_drops"] for link in ups)
    # Of the link's bandwidth no more went before.
    before = -(-after_ns * empty.rate_bps // (8 * run.facts["path_mtu"] * 10**9))
    afterwards = max(1, entered - before)
    summary = run.summary()
    needed = summary["packets_sent"] - summary["retransmitted"]
    others = max(0.0, 1 - late / case.share / afterwards)
    return Left(loaded.seeds[0], others, summary["retransmitted"] / needed)


def _empty(loaded: Experiment, run: WorkloadRun) -> base_rtt.Empty:
    """The fabric without traffic."""
    return base_rtt.of(loaded.plan(loaded.seeds[0]), run.facts["path_mtu"])


def _latest_decision_ns(run: WorkloadRun) -> int:
    """How long the policy's latest decision took; 0 on the virtual clock."""
    hosts = run.facts.get("processes", {}).values()
    return max((int(host["decision_lateness_ns"]["p100"]) for host in hosts), default=0)


def run(transport: str, seeds: int, clock: Clock, say: Callable[[str], None]) -> list[Outcome]:
    """All cases, with so many seeds from 1 on."""
    outcomes = []
    for name, case in CASES.items():
        say(f"{name}: {seeds} seeds")
        found, failed = [], []
        for seed in range(1, seeds + 1):
            try:
                found.append(measure(case, experiment(case, transport, BYTES, clock, seed)))
            except RunError as error:  # the other seeds have figures
                failed.append(error.what)
        outcomes.append(Outcome(name, transport, found, failed))
    return outcomes


def measure_back(case: Case, transport: str, clock: Clock, seed: int) -> int:
    """Packets over the bad spine while it carries again. RunError if a run fails.

    That is from the middle of the transfer on. Afterwards it loses all packets again, so that no
    later ones count.
    """
    loaded = experiment(case, transport, BYTES, clock, seed)
    dead, _ = transfer(loaded)
    well_at_ns = max(1, dead.makespan_ns // 2)
    dead_at_ns = well_at_ns + BACK_ROUND_TRIPS * _empty(loaded, dead).rtt_ns
    back, _ = transfer(experiment(case, transport, BYTES, clock, seed, (well_at_ns, dead_at_ns)))
    return sum(link["sent"] for link in back.links if link["name"] == f"{_UP}1")


def run_back(transport: str, seeds: int, clock: Clock, say: Callable[[str], None]) -> Back:
    """With so many seeds from 1 on."""
    say(f"well again, one of two: {seeds} seeds")
    packets, failed = {}, []
    for seed in range(1, seeds + 1):
        try:
            packets[seed] = measure_back(CASES["dead, one of two"], transport, clock, seed)
        except RunError as error:
            failed.append(error.what)
    return Back(transport, packets, failed)


def document(outcomes: Sequence[Outcome], back: Back) -> dict[str, Any]:
    """For `--json`."""
    passed = all(each.passed for each in outcomes) and back.passed
    return {
        "schema_version": SCHEMA_VERSION,
        "round_trips": ROUND_TRIPS,
        "limits": {"others": OTHERS_LIMIT, "retransmitted": RETRANSMITTED_LIMIT},
        "verdict": "passed" if passed else "failed",
        "cases": [each.document() for each in outcomes],
        "back_round_trips": BACK_ROUND_TRIPS,
        "back": back.document(),
        "environment": environment(),
    }
