# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run of a workload came to: one transport, one seed; the same on both clocks."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE, Messages
from softroce_lab.statistics import samples_needed
from softroce_lab.telemetry.repairs import Repairs
from softroce_lab.telemetry.repairs import times_ns as repair_times_ns
from softroce_lab.telemetry.transitions import figures as figures_of

if TYPE_CHECKING:
    from softroce_lab.experiment.capturing import RunCapture

Verdict: TypeAlias = Literal["passed", "failed"]

_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
_MOST_REASONS = 8

# Counters of the engine (docs/telemetry.md), by what a table calls them.
RETRANSMITTED = ("tx_retransmitted", "tx_connected_retransmitted")
SPURIOUS = ("rx_duplicate", "duplicate_request")  # and what the network duplicated
_SENT = ("tx_data", "tx_connected")
_ANSWERS = (  # of RC, which counts them as its packets, too
    "tx_ack", "tx_rnr_nak", "tx_nak_sequence", "tx_nak_invalid", "tx_nak_access",
    "tx_nak_operation",
)  # fmt: skip
FCT = {"fct_p50_ns": 500, "fct_p99_ns": 990, "fct_p999_ns": 999}
"""Percentiles of message completion times, per mille; their samples are the messages measured."""
REPAIR = {"repair_p50_ns": 500, "repair_p99_ns": 990}
"""The same of repair times, of the virtual clock; their samples are `repairs`."""
SLOWDOWN = {"slowdown_p50": 500, "slowdown_p99": 990}
"""The same of slowdowns of open-loop traffic."""
STEPS = {"step_p50_ns": 500, "step_p99_ns": 990}
"""The same of steps of a training; their samples are `steps`."""
SIZE_CLASSES = {
    "<=10kB": 10**4, "<=100kB": 10**5, "<=1MB": 10**6, "<=10MB": 10**7, ">10MB": 1 << 62,
}  # fmt: skip
"""Flows by size: the largest of each class, bytes; a class begins where the one before ends."""
OF_WORKLOADS = (
    "algbw_bps", "busbw_bps", "steps", *STEPS, "step_waiting", "offered_load",
    "measured_load", *SLOWDOWN, "slowdown",
)  # fmt: skip
"""Figures that only some workloads have (`figures.py`); None for others."""
OF_MESSAGES = (
    "messages", "delivered", "measured", "bytes", "makespan_ns", "goodput_bps", "packets_sent",
    "retransmitted", "spurious_retransmissions", "control_packets", "control_bytes",
)  # fmt: skip
"""Figures of messages and of hosts' counters: None where programs run, which show neither."""
CONTEXTS_MISSED = "contexts_missed"  # of a simulated RNIC with limits
CONTROL_BYTES = "tx_control_bytes"
CONTROL = ("tx_control", "tx_report", "tx_probe", "tx_clear", "tx_cnp", *_ANSWERS)


def total(counters: Mapping[str, int], names: Iterable[str]) -> int:
    """The sum of these counters; those of a host that are not there are 0."""
    return sum(counters.get(name, 0) for name in names)


def data_packets(counters: Mapping[str, int]) -> int:
    """Packets with data of messages that a host sent, retransmitted ones included."""
    return total(counters, _SENT) - total(counters, _ANSWERS)


@dataclasses.dataclass(frozen=True, slots=True)
class Flows:
    """What a run with open-loop traffic knows of each message besides, in the order of messages.

    Messages of other jobs arrive when they are posted, have no warm-up, and no time alone.
    """

    arrival_ns: npt.NDArray[np.int64]  # when it was to be sent, since the run began
    measured: npt.NDArray[np.bool_]  # arrived after the warm-up
    alone_ns: npt.NDArray[np.int64]  # until it was there, alone on the empty fabric; NEVER_NS

    @classmethod
    def of_posts(cls, messages: Messages) -> Flows:
        """Of messages of other workloads."""
        count = len(messages)
        return cls(messages["posted_ns"].copy(), np.ones(count, bool), np.full(count, NEVER_NS))

    def put(self, rows: npt.NDArray[np.bool_], part: Flows) -> None:
        """Take these rows from a job's."""
        for mine, theirs in (
            (self.arrival_ns, part.arrival_ns),
            (self.measured, part.measured),
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
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of OF_WORKLOADS
    jobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # figures of each, by name
    flows: Flows | None = None  # of open-loop traffic
    recoveries: Iterable[Mapping[str, Any]] = ()
    """Parts of the columns of recovery.parquet (`recoveries.Recorded`); (): not recorded."""
    program_messages: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    """Columns of program_messages.parquet (hosts/program_losses.py); of programs alone."""
    samples: Mapping[str, npt.NDArray[Any]] | None = None
    """The columns of samples.parquet (`sim.samples`); None: not recorded."""
    repairs: Repairs | None = None  # of lost packets; None: the clock does not measure them
    held_back: Sequence[Mapping[str, Any]] | None = None  # held_back.named; None: not measured
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # more for the manifest
    cost: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # CPU time and the like

    @property
    def name(self) -> str:
        """What it is called in the run directory."""
        return f"{self.transport}/{self.seed}"

    def with_capture(self, capture: RunCapture) -> WorkloadRun:
        """The same, and what was captured of it, in the run directory."""
        figures = capture.document() | {"file": capture.wanted.path.name}
        return dataclasses.replace(self, facts={**self.facts, "capture": figures})

    @property
    def reasons(self) -> list[str]:
        """Why it failed; [] if it passed."""
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
        """The messages that were delivered and acknowledged."""
        delivered: Messages = self.messages[self.messages["status"] == _SUCCESS]
        return delivered

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Which messages percentiles are of: those delivered, after the warm-up if there is one."""
        delivered: npt.NDArray[np.bool_] = self.messages["status"] == _SUCCESS
        return delivered if self.flows is None else delivered & self.flows.measured

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

    def _repair_figures(self) -> dict[str, int | None]:
        """Of packets whose first transmission was lost. Some that were not recorded: no times."""
        if self.repairs is None:
            return dict.fromkeys(("repairs", "unrepaired", *REPAIR))
        times = repair_times_ns(self.repairs)
        missed = self.facts.get("repairs_not_recorded", 0)
        return {
            "repairs": len(times),
            "unrepaired": len(self.repairs) - len(times),
            **{key: None if missed else quantile(times, at) for key, at in REPAIR.items()},
        }

    def operation_times_ns(self) -> npt.NDArray[np.int64]:
        """Per operation that is whole, from its first post to its last completion."""
        times = []
        operations = self.messages["operation"]
        for operation in np.unique(operations):
            rows = self.messages[operations == operation]
            if (rows["status"] == _SUCCESS).all():
                times.append(int(rows["completed_ns"].max() - rows["posted_ns"].min()))
        return np.array(times, dtype=np.int64)

    @property
    def makespan_ns(self) -> int:
        """From the first post to the last completion."""
        done = self.done
        return int(done["completed_ns"].max() - done["posted_ns"].min()) if len(done) else 0

    @property
    def goodput_bps(self) -> int:
        """Of all hosts together, over the makespan."""
        span_ns = self.makespan_ns
        return int(self.done["bytes"].sum()) * 8 * 10**9 // span_ns if span_ns else 0

    def count(self, names: Iterable[str]) -> int:
        """Sum of counters over all hosts."""
        names = tuple(names)
        return sum(total(each, names) for each in self.counters.values())

    def _losses(self) -> dict[str, int]:
        """Of links; on the real clock of hosts' sockets and of the wire stage, too."""
        found = _on_links(self.links)
        stage = self.facts.get("stage", {})
        found["injected_drops"] += stage.get("no_route", 0)
        found["emulator_drops"] += stage.get("lost", 0)
        found["emulator_drops"] += sum(p["emulator_drops"] for p in self.facts.get("ports", ()))
        return found

    def document(self) -> dict[str, Any]:
        """For `--json`: the summary, and which percentiles have too few samples."""
        summary = self.summary()
        return summary | {"few_samples": few_samples(summary)}

    def summary(self) -> dict[str, Any]:
        """The figures of the tables, of the manifest and of `--json`. Absent ones are None.

        Those of jobs are there if the workload has jobs.
        """
        times, operations = self.completion_times_ns(), self.operation_times_ns()
        return {
            "transport": self.transport,
            "protocol": self.protocol,
            "congestion_control": self.congestion_control,
            "seed": self.seed,
            "clock": self.clock,
            "verdict": self.verdict,
            "reasons": self.reasons[:_MOST_REASONS],
            "verified": self.verified,
            "messages": len(self.messages),
            "delivered": len(self.done),
            "measured": int(self.measured.sum()),
            "bytes": int(self.done["bytes"].sum()),
            "makespan_ns": self.makespan_ns,
            "goodput_bps": self.goodput_bps,
            "operation_p50_ns": quantile(operations, 500),
            "operation_p99_ns": quantile(operations, 990),
            **{key: quantile(times, per_mille) for key, per_mille in FCT.items()},
            **{key: self.figures.get(key) for key in OF_WORKLOADS},
            "held_back": None if self.held_back is None else [*self.held_back],
            "packets_sent": sum(map(data_packets, self.counters.values())),
            "retransmitted": self.count(RETRANSMITTED),
            "spurious_retransmissions": self.count(SPURIOUS),
            **self._repair_figures(),
            "base_rtt_ns": self.facts.get("base_rtt_ns"),
            "control_packets": self.count(CONTROL),
            "control_bytes": self.count((CONTROL_BYTES,)),
            **self._losses(),
            CONTEXTS_MISSED: self.count((CONTEXTS_MISSED,)),
            "end_ns": self.end_ns,
            "fidelity": self.fidelity,
            **({"jobs": dict(self.jobs)} if self.jobs else {}),
            **({"shift": figures_of(self.transitions)} if self.transitions else {}),
            **(dict.fromkeys(OF_MESSAGES) if "programs" in self.facts else {}),
        }


def few_samples(summary: Mapping[str, Any]) -> list[str]:
    """The percentiles in a summary that have fewer samples than they need.

    Those of classes of sizes are left out: each class has its number of samples.
    """
    if summary["measured"] is None:
        return []
    kinds, samples = FCT, dict.fromkeys(FCT, summary["measured"])
    if summary["slowdown"] is not None:
        kinds, samples = kinds | SLOWDOWN, samples | dict.fromkeys(SLOWDOWN, flows_of(summary))
    if summary["steps"] is not None:
        kinds, samples = kinds | STEPS, samples | dict.fromkeys(STEPS, summary["steps"])
    if summary["repairs"]:  # without any there is no figure to mark
        kinds, samples = kinds | REPAIR, samples | dict.fromkeys(REPAIR, summary["repairs"])
    return [key for key, at in kinds.items() if samples[key] < samples_needed(at)]


def flows_of(summary: Mapping[str, Any]) -> int:
    """How many flows slowdowns are of."""
    return sum(each["n"] for each in summary["slowdown"] or ())


def quantile(times: npt.NDArray[np.int64], per_mille: int) -> int | None:
    """The smallest value that so many of a thousand do not exceed: one that was measured."""
    value = _ranked(times, per_mille)
    return None if value is None else int(value)


def ratio_quantile(ratios: npt.NDArray[np.float64], per_mille: int) -> float | None:
    """The same of ratios."""
    value = _ranked(ratios, per_mille)
    return None if value is None else float(value)


def _ranked(values: npt.NDArray[Any], per_mille: int) -> Any:
    if not len(values):
        return None
    rank = max(1, -(-len(values) * per_mille // 1000))
    return np.partition(values, rank - 1)[rank - 1]


def _statuses(run: WorkloadRun) -> list[str]:
    """One line for every way in which messages ended badly, causes before what came of them."""
    found = run.messages[run.messages["status"] != _SUCCESS]
    by_status: dict[int, list[int]] = collections.defaultdict(list)
    for row, status in enumerate(found["status"].tolist()):
        by_status[status].append(row)
    return [
        f"{len(rows)} of {len(run.messages)} messages: {_status_name(status)}, "
        f"the first {_named(run, found[rows[0]])}"
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


def _on_links(links: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    wires = [link["wire"] for link in links if link.get("wire")]
    return {
        "injected_drops": sum(link["injected_drops"] for link in links),
        "queue_drops": sum(wire["dropped_by_queue"] for wire in wires),
        "marked": sum(wire["marked"] for wire in wires),
        "trimmed": sum(wire["trimmed"] for wire in wires),
        "emulator_drops": sum(link["emulator_drops"] for link in links),
    }
