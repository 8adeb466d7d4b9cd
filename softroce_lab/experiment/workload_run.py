# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run of a workload came to: one transport, one seed; the same on both clocks."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment import figure_table
from softroce_lab.experiment.alone import Alone
from softroce_lab.experiment.figure_table import COLLECTIVES, FIGURES, few_samples, quantile
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE, Messages
from softroce_lab.telemetry.repairs import Repairs
from softroce_lab.telemetry.transitions import figures as figures_of
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.training import Traffic, Training
from softroce_lab.workloads.work import Workload

if TYPE_CHECKING:
    from softroce_lab.experiment.capturing import RunCapture

Verdict: TypeAlias = Literal["passed", "failed"]

_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
_MOST_REASONS = 8

CONTEXTS_MISSED = "contexts_missed"  # of a simulated RNIC with limits


@dataclasses.dataclass(frozen=True, slots=True)
class Flows:
    """What a run with open-loop traffic knows of each message besides, in the order of messages.

    Messages of other jobs arrive when they are posted, and have no time alone.
    """

    arrival_ns: npt.NDArray[np.int64]  # when it was to be sent, since the run began
    alone_ns: npt.NDArray[np.int64]  # until it was there, alone on the empty fabric; NEVER_NS

    @classmethod
    def of_posts(cls, messages: Messages) -> Flows:
        return cls(messages["posted_ns"].copy(), np.full(len(messages), NEVER_NS))

    def put(self, rows: npt.NDArray[np.bool_], part: Flows) -> None:
        for mine, theirs in (
            (self.arrival_ns, part.arrival_ns),
            (self.alone_ns, part.alone_ns),
        ):
            mine[rows] = theirs


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadRun:
    """One transport's run with one seed, complete."""

    transport: str  # its label in the experiment
    protocol: str  # whose rules its messages follow: `oracle`, whatever the label
    congestion_control: str
    seed: int
    clock: str
    hosts: tuple[str, ...]  # names, by index
    messages: Messages  # of dtype MESSAGE
    end_ns: int  # when it was over, on its clock, since it began
    links: Sequence[Mapping[str, Any]] = ()  # as `telemetry.links.LinkFigures`, as dicts
    counters: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)  # by host
    stats: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # by host, for stats.json
    events: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)  # columns
    policies: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # summaries, by host
    transitions: Sequence[Mapping[str, Any]] = ()  # telemetry.transitions; of `shift`
    verified: bool | None = None  # whether every byte was right in the end; None: not checked
    problems: Sequence[str] = ()  # what ended it early, or was wrong with it, in words
    fidelity: Mapping[str, Any] | None = None  # of the real clock
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # `added` adds them
    printed: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by programs
    jobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # figures of each, by name
    flows: Flows | None = None  # of open-loop traffic
    after_warm_up: npt.NDArray[np.bool_] | None = None
    """Which messages are not of a warm-up; None: there is none. Of open-loop traffic by arrival."""
    recoveries: Iterable[Mapping[str, Any]] = ()
    """Parts of the columns of recovery.parquet (`recoveries.Recorded`); (): not recorded."""
    program_messages: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    """Columns of program_messages.parquet (hosts/program_records.py); of programs alone."""
    samples: Mapping[str, npt.NDArray[Any]] | None = None
    """The columns of samples.parquet (`sim.samples`); None: not recorded."""
    repairs: Repairs | None = None  # of lost packets; None: the clock does not measure them
    held_back: Sequence[Mapping[str, Any]] | None = None  # held_back.named; None: not measured
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # more for the manifest
    cost: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # CPU time and the like

    @property
    def name(self) -> str:
        return f"{self.transport}/{self.seed}"

    def with_capture(self, capture: RunCapture) -> WorkloadRun:
        """The same, and what was captured of it, in the run directory."""
        figures = capture.document() | {"file": capture.wanted.path.name}
        return dataclasses.replace(self, facts={**self.facts, "capture": figures})

    @property
    def reasons(self) -> list[str]:
        found = [*self.problems, *_statuses(self)]
        if self.verified is False and not self.problems:
            found.append("buffers differ from what they must be")
        return found

    @property
    def verdict(self) -> Verdict:
        """Whether every message was delivered, and every byte that was checked was right."""
        return "failed" if self.reasons else "passed"

    @property
    def done(self) -> Messages:
        delivered: Messages = self.messages[self.messages["status"] == _SUCCESS]
        return delivered

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Which messages percentiles are of: those delivered, after the warm-up if there is one."""
        delivered: npt.NDArray[np.bool_] = self.messages["status"] == _SUCCESS
        return delivered if self.after_warm_up is None else delivered & self.after_warm_up

    def completion_times_ns(self) -> npt.NDArray[np.int64]:
        """Per measured message, from the post of the send to its completion at the sender.

        Of open-loop traffic from the arrival of the flow: a post may have waited for others.
        """
        begun = self.messages["posted_ns"] if self.flows is None else self.flows.arrival_ns
        times: npt.NDArray[np.int64] = (self.messages["completed_ns"] - begun)[self.measured]
        return times

    @property
    def compared(self) -> npt.NDArray[np.bool_]:
        """Which measured messages are open-loop flows, so that they have a slowdown."""
        if self.flows is None:
            return np.zeros(len(self.messages), bool)
        return self.measured & (self.flows.alone_ns != NEVER_NS)

    def slowdowns(self) -> npt.NDArray[np.float64]:
        """Of open-loop traffic, per measured flow: until it was there, over the same alone."""
        if self.flows is None:
            return np.zeros(0)
        rows = self.compared
        taken_ns = (self.messages["received_ns"] - self.flows.arrival_ns)[rows]
        ratios: npt.NDArray[np.float64] = taken_ns / self.flows.alone_ns[rows]
        return ratios

    def operation_times_ns(self) -> npt.NDArray[np.int64]:
        """Per operation that is whole, from its first post to its last completion.

        Those of a warm-up are left out.
        """
        times = []
        messages = self.messages[self._timed]
        for operation in np.unique(messages["operation"]):
            rows = messages[messages["operation"] == operation]
            if (rows["status"] == _SUCCESS).all():
                times.append(int(rows["completed_ns"].max() - rows["posted_ns"].min()))
        return np.array(times, dtype=np.int64)

    @property
    def _timed(self) -> npt.NDArray[np.bool_]:
        """Which messages makespan and goodput are of.

        Open-loop flows of the warm-up are among them: its end does not divide the run.
        """
        if self.after_warm_up is None or self.flows is not None:
            return np.ones(len(self.messages), bool)
        return self.after_warm_up

    @property
    def _timed_done(self) -> Messages:
        delivered: npt.NDArray[np.bool_] = self.messages["status"] == _SUCCESS
        done: Messages = self.messages[delivered & self._timed]
        return done

    @property
    def begins_ns(self) -> int:
        """When the makespan begins: at the first post, or with the end of the warm-up if later."""
        done, timed = self.done, self._timed_done
        if not len(timed):
            return 0
        begins_ns = int(timed["posted_ns"].min())
        if len(timed) < len(done):
            warm_up = self.messages[~self._timed & (self.messages["status"] == _SUCCESS)]
            begins_ns = max(begins_ns, int(warm_up["completed_ns"].max()))
        return begins_ns

    @property
    def makespan_ns(self) -> int:
        done = self._timed_done
        return max(int(done["completed_ns"].max()) - self.begins_ns, 0) if len(done) else 0

    @property
    def goodput_bps(self) -> int:
        span_ns = self.makespan_ns
        return int(self._timed_done["bytes"].sum()) * 8 * 10**9 // span_ns if span_ns else 0

    def count(self, names: Iterable[str]) -> int:
        names = tuple(names)
        return sum(figure_table.total(each, names) for each in self.counters.values())

    def document(self) -> dict[str, Any]:
        """For `--json`: the summary, and which percentiles have too few samples."""
        summary = self.summary()
        return summary | {"few_samples": figure_table.few_samples(summary)}

    def summary(self) -> dict[str, Any]:
        """What `--json`, the manifest and a sweep's row have of it: figures, and what it was.

        Those of jobs are there if the workload has jobs.
        """
        return {
            "transport": self.transport,
            "protocol": self.protocol,
            "congestion_control": self.congestion_control,
            "seed": self.seed,
            "clock": self.clock,
            "verdict": self.verdict,
            "reasons": self.reasons[:_MOST_REASONS],
            **figure_table.computed(self),
            **{f"{figure_table.PRINTED}{name}": value for name, value in self.printed.items()},
            **({"jobs": dict(self.jobs)} if self.jobs else {}),
            **({"shift": figures_of(self.transitions)} if self.transitions else {}),
        }


def _statuses(run: WorkloadRun) -> list[str]:
    """One line for every way in which messages ended badly, causes before what came of them."""
    failed = run.messages[run.messages["status"] != _SUCCESS]
    # The others wait for those that were posted first.
    failed = failed[np.argsort(failed["posted_ns"].astype(np.uint64), kind="stable")]
    by_status: dict[int, list[int]] = collections.defaultdict(list)
    for row, status in enumerate(failed["status"].tolist()):
        by_status[status].append(row)
    return [
        f"{len(rows)} of {len(run.messages)} messages: {_status_name(status)}, "
        f"the first {_named(run, failed[rows[0]])}"
        for status, rows in sorted(by_status.items(), key=_cause_first)
    ]


def _cause_first(item: tuple[int, list[int]]) -> tuple[bool, int]:
    """What failed by itself comes before what was flushed with it, or never posted."""
    return item[0] in (NOT_DONE, _FLUSHED), item[0]


def _status_name(status: int) -> str:
    return "not delivered" if status == NOT_DONE else ibv_wc_status(status).name


def _named(run: WorkloadRun, row: Any) -> str:
    key = "/".join(str(row[field]) for field in ("operation", "step", "message"))
    return f"{key} from {run.hosts[row['source']]} to {run.hosts[row['destination']]}"


Asked: TypeAlias = Callable[[], Alone]
"""Prepares the times of flows alone: only open-loop traffic has them."""


def added(
    workload: Workload,
    run: WorkloadRun,
    alone: Asked,
    jobs: Mapping[str, tuple[str, Asked]] = MappingProxyType({}),
) -> WorkloadRun:
    """The run, with what the figures of this workload are computed from.

    `jobs`: the label of each job's transport, and the times of its flows alone.
    RunError if a flow cannot be measured alone.
    """
    if isinstance(workload, Jobs):
        return _with_jobs(workload, run, jobs)
    if isinstance(workload, OpenLoop):
        return _with_flows(workload, run, alone)
    if workload.warm_up:
        after = run.messages["operation"] >= workload.warm_up
        run = dataclasses.replace(run, after_warm_up=after)
    return dataclasses.replace(run, figures=_figures(workload, run))


def _with_jobs(
    workload: Jobs, run: WorkloadRun, jobs: Mapping[str, tuple[str, Asked]]
) -> WorkloadRun:
    """The figures of each job's messages: all that a run has of messages.

    Open-loop flows count in the whole as in their job: from the arrival, without the warm-up.
    """
    found, flows, is_open = {}, Flows.of_posts(run.messages), False
    after_warm_up = np.ones(len(run.messages), bool)
    for name, job in workload.jobs.items():
        label, alone = jobs[name]
        mine = np.isin(run.messages["source"], job.ranks)
        part = dataclasses.replace(run, messages=run.messages[mine], problems=())
        part = added(job, part, alone)
        if part.flows is not None:
            flows.put(mine, part.flows)
            is_open = True
        if part.after_warm_up is not None:
            after_warm_up[mine] = part.after_warm_up
        summary = part.summary()
        own = {key: summary[key] for key, figure in FIGURES.items() if figure.of_messages}
        found[name] = {"transport": label, "verdict": part.verdict, **own,
                       "few_samples": few_samples(summary)}  # fmt: skip
    if not is_open:
        return dataclasses.replace(run, jobs=found)
    return dataclasses.replace(run, jobs=found, flows=flows, after_warm_up=after_warm_up)


def _with_flows(workload: OpenLoop, run: WorkloadRun, alone: Asked) -> WorkloadRun:
    """With each flow's time alone on the empty fabric; without deliveries no flow has one."""
    load = {
        "offered_load": float(workload.offered_load),
        "measured_load": float(workload.measured_load),
    }
    flows = workload.flows
    alone_ns = np.full(len(flows), NEVER_NS)
    if len(run.done):
        hosts = np.array(workload.ranks)
        ends = hosts[flows["source"]], hosts[flows["destination"]]
        alone_ns = alone().times_ns(*ends, flows["bytes"])
    timed = Flows(flows["at_ns"], alone_ns)
    return dataclasses.replace(run, flows=timed, after_warm_up=workload.warm, figures=load)


def _figures(workload: Workload, run: WorkloadRun) -> dict[str, Any]:
    once = workload.once if isinstance(workload, Operations) else workload
    if run.verdict == "failed":
        return {}
    if isinstance(once, COLLECTIVES.types):
        return _of_collective(once, run)
    return _of_training(workload, run) if isinstance(workload, Training) else {}


def _of_collective(once: Any, run: WorkloadRun) -> dict[str, Any]:
    """As nccl-tests define them (doc/PERFORMANCE.md), for the median operation."""
    time_ns = quantile(run.operation_times_ns(), 500)
    if not time_ns:
        return {}
    algbw_bps = 8 * 10**9 * once.vector_bytes // time_ns
    return {"algbw_bps": algbw_bps, "busbw_bps": int(algbw_bps * once.bus_factor)}


def _of_training(training: Training, run: WorkloadRun) -> dict[str, Any]:
    """Steps: each from the end of the one before to its own, which is when its barrier is over.

    Those of the warm-up are left out.
    """
    barriers = run.messages[run.messages["step"] == Traffic.BARRIER]
    ends_ns = [
        int(barriers[barriers["operation"] == step]["received_ns"].max())
        for step in range(training.steps)
    ]
    times_ns = np.diff(ends_ns, prepend=0)[training.warm_up :]
    busiest_ns = sum(map(training.busiest_ns, range(training.warm_up, training.steps)))
    whole_ns = int(times_ns.sum())
    return {
        "steps": len(times_ns),
        "step_times_ns": times_ns,
        "step_mean_ns": whole_ns // len(times_ns),
        "step_waiting": 1 - busiest_ns / whole_ns,
    }
