# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of figures: everything that is measured in a run, each figure stated once.

A new figure is one entry of `FIGURES`. The table of `lab run`, the columns of a sweep, gates,
`lab results compare`, the page of `lab results report`, `lab run --clock both` and the checks of a
manifest are made from the entries, and so is the reference.

A run is a `WorkloadRun` (workload_run.py). That module imports this one, so the type of a run is
`Any` here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.statistics import samples_needed
from softroce_lab.telemetry.repairs import times_ns as repair_times_ns
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.training import Training
from softroce_lab.workloads.work import Workload

Row: TypeAlias = Mapping[str, Any]
"""Figures of one run by their keys: of `WorkloadRun.summary`, a manifest, or a sweep's row."""

ORACLE, LOSSLESS = "oracle", "lossless"
"""The transports that are bounds, which others are compared with (bounds.py)."""

SIZE_CLASSES = {
    "<=10kB": 10**4, "<=100kB": 10**5, "<=1MB": 10**6, "<=10MB": 10**7, ">10MB": 1 << 62,
}  # fmt: skip
"""Flows by size: the largest of each class, bytes; a class begins where the one before ends."""

PRINTED = "printed."
"""Figures with this prefix are those that programs print: `printed.median_ms`."""

# Counters of the engine (docs/reference/counters.md), by what a figure calls them.
RETRANSMITTED = ("tx_retransmitted", "tx_connected_retransmitted")
SPURIOUS = ("rx_duplicate", "duplicate_request")  # and what the network duplicated
_SENT = ("tx_data", "tx_connected")
_PARITY = ("tx_parity",)  # among `tx_data`
_ANSWERS = (  # of RC, which counts them as its packets, too
    "tx_ack", "tx_rnr_nak", "tx_nak_sequence", "tx_nak_invalid", "tx_nak_access",
    "tx_nak_operation",
)  # fmt: skip
CONTROL = ("tx_control", "tx_report", "tx_probe", "tx_clear", "tx_cnp", *_ANSWERS)


def total(counters: Mapping[str, int], names: Iterable[str]) -> int:
    """The sum of these counters; those of a host that are not there are 0."""
    return sum(counters.get(name, 0) for name in names)


def data_packets(counters: Mapping[str, int]) -> int:
    """Packets with data of messages that a host sent: with retransmissions, without parity."""
    # An answer is counted before it leaves; a program's counters may be read between.
    return max(total(counters, _SENT) - total(counters, (*_ANSWERS, *_PARITY)), 0)


def quantile(values: npt.NDArray[Any], per_mille: int) -> Any:
    """The smallest value that so many of a thousand do not exceed: one that was measured.

    An int of whole numbers, otherwise a float. None without values.
    """
    if not len(values):
        return None
    rank = max(1, -(-len(values) * per_mille // 1000))
    return np.partition(values, rank - 1)[rank - 1].item()


# --- What an entry is made of ------------------------------------------------------------------


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"{text!r} is no number") from None
    if not math.isfinite(number):
        raise UserError(f"{text!r} is no number that a figure can be compared with")
    return number


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a figure are stored, written and read."""

    name: str  # in tables with fixed units, and on axes
    column: str  # the type of a sweep's column, as Arrow calls it
    show: Callable[[Any], str] = str  # for people
    parse: Callable[[str], float] = _number  # the bound of a gate
    suffix: str = ""  # of the keys; a gate's name leaves it out
    divisor: int = 1  # from the stored value to the fixed unit
    adds_up: bool = False  # several runs are taken together by their sum; otherwise by the median

    @property
    def is_number(self) -> bool:
        return self.column in ("int64", "float64")

    def exact(self, value: float) -> str:
        """For verdicts: without rounding a ratio to what a table has room for."""
        return f"{value:,.6g}" if self.column == "float64" else self.show(value)


def _count(value: float) -> str:
    return f"{value:,.12g}"


CLASSES = "list<class>"
"""The type of a column: slowdowns by size class, each a row of `CLASS`."""
CLASS = {"size_class": "string", "n": "int64", "p50": "float64", "p99": "float64"}

TIME = Unit("us", "int64", units.format_duration, units.parse_time_ns, "_ns", 10**3)
RATE = Unit("Mbit/s", "int64", units.format_rate, units.parse_rate_bps, "_bps", 10**6)
COUNT = Unit("", "int64", _count, adds_up=True)
PACKETS = dataclasses.replace(COUNT, name="packets")
BYTES = dataclasses.replace(COUNT, name="B")
RATIO = Unit("", "float64", lambda ratio: f"{ratio:,.2f}")
SHARE = Unit("", "float64", lambda share: f"{100 * share:.1f} %")
NUMBER = Unit("", "float64", lambda number: f"{number:,.6g}")
TRUTH = Unit("", "bool")
WORDS = Unit("", "list<string>")
WORD = Unit("", "string")
BY_SIZE = Unit("", CLASSES)


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """The values of one run that a percentile is taken of."""

    values: Callable[[Any], Any]  # of a `WorkloadRun`: an array
    key: str = ""  # the figure with their number; "": a percentile of few is not marked
    shows_number: bool = True  # behind a mark

    def count(self, row: Row) -> int | None:
        """How many a row has; None: not known."""
        found = row.get(self.key)
        return sum(each["n"] for each in found) if isinstance(found, list) else found


def _repair_times(run: Any) -> npt.NDArray[np.int64]:
    """None of them if some losses were not recorded."""
    if run.repairs is None or run.facts.get("repairs_not_recorded", 0):
        return np.zeros(0, np.int64)
    return repair_times_ns(_counted_repairs(run))


def _counted_repairs(run: Any) -> Any:
    """Of the packets that were lost after the warm-up."""
    if run.after_warm_up is None or run.flows is not None:
        return run.repairs
    return run.repairs[run.repairs["dropped_ns"] >= run.begins_ns]


def _times_of_flows(run: Any, above: int, most: int) -> npt.NDArray[np.int64]:
    """Completion times of the open-loop flows of more than `above` and at most `most` bytes."""
    sizes = run.messages["bytes"]
    chosen = run.compared & (sizes > above) & (sizes <= most)
    times: npt.NDArray[np.int64] = run.completion_times_ns()[chosen[run.measured]]
    return times


MESSAGES = Samples(lambda run: run.completion_times_ns(), "measured", shows_number=False)
OPERATIONS = Samples(lambda run: run.operation_times_ns())
STEPS = Samples(lambda run: run.figures.get("step_times_ns", ()), "steps")
FLOWS = Samples(lambda run: run.slowdowns(), "slowdown")
# The three classes of pFabric (Alizadeh et al., SIGCOMM 2013, figure 10).
SMALL = Samples(lambda run: _times_of_flows(run, 0, 10**5))
MEDIUM = Samples(lambda run: _times_of_flows(run, 10**5, 10**7))
LARGE = Samples(lambda run: _times_of_flows(run, 10**7, 1 << 62))
REPAIRS = Samples(_repair_times, "repairs")


class Kinds(NamedTuple):
    name: str
    types: tuple[type[Workload], ...]


COLLECTIVES = Kinds("collectives", (Collective, Exchange))
TRAINING = Kinds("a training", (Training,))
OPEN_LOOP = Kinds("open-loop traffic", (OpenLoop,))


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure. It is None in a run that does not have it."""

    key: str  # in `--json`, in the manifest, and of a sweep's column
    unit: Unit
    title: str = ""  # of its line in the table of `lab run`; "": it has no line
    _: dataclasses.KW_ONLY
    about: str  # what it is, for the reference
    # How it is computed: by one of these three.
    of: Callable[[Any], Any] | None = None  # of a `WorkloadRun`; None: its workload has it
    samples: Samples | None = None  # a percentile of these
    ratio_of: str = ""  # the ratio of this figure to that of `bound` (bounds.py)
    bound: str = ""
    per_mille: int = 0  # of a percentile
    # Which runs have it.
    of_programs: bool = False  # also where programs run, whose messages are not seen
    of_messages: bool = False  # computed from messages only: each job has it, too
    workloads: Kinds | None = None  # only these; None: all
    virtual_only: bool = False
    sweep_only: bool = False
    passed_only: bool = False  # tables leave out the values of runs that failed
    # How it is shown and judged.
    better: Literal["less", "more"] | None = None  # None: `compare` claims nothing about it
    short: str = ""  # the title where the others are not beside it; "": `title`
    always: bool = False  # has its line and column even if no run has a value
    in_jobs: bool = False  # has a line for each job
    unlike: str = ""  # has no line where it equals this figure
    sweep: str = ""  # the title of its column in a sweep's Markdown; "": it has none
    place: int = 99  # of that column, from the left
    crosschecked: bool = False
    signed: bool = False  # a difference: it may be below 0

    @property
    def name(self) -> str:
        """Its title where the others are not beside it."""
        return self.short or self.title or self.key

    @property
    def gate(self) -> str:
        """What `expect` calls it; "": it cannot be a gate."""
        if self.key.startswith(PRINTED):
            return self.key
        has_one = self.unit.is_number or self.unit == TRUTH
        return self.key.removesuffix(self.unit.suffix) if has_one else ""

    @property
    def may_lack(self) -> bool:
        """Whether it is None in some runs that show their messages."""
        return not self.unit.adds_up or self.virtual_only or self.workloads is not None

    def compute(self, run: Any) -> Any:
        """Of a `WorkloadRun`, if it is neither a percentile nor a ratio to another run."""
        return self.of(run) if self.of is not None else run.figures.get(self.key)

    def known(self, rows: Iterable[Row]) -> list[Row]:
        """The rows with a value that tables show."""
        return [
            row for row in rows if row.get(self.key) is not None
            and not (self.passed_only and row["verdict"] != "passed")
        ]  # fmt: skip

    def values(self, rows: Iterable[Row]) -> list[Any]:
        return [row[self.key] for row in self.known(rows)]

    def fewest(self, rows: Iterable[Row]) -> int | None:
        """The number of samples of the run that has fewest, if those are too few; else None."""
        if self.samples is None:
            return None
        counts = [self.samples.count(row) for row in self.known(rows)]
        few = min((each for each in counts if each is not None), default=None)
        return few if few is not None and few < samples_needed(self.per_mille) else None


# --- How figures are computed --------------------------------------------------------------------


def _repairs(run: Any, *, arrived: bool) -> int | None:
    """Packets whose first transmission was lost, and whose payload arrived later, or never."""
    if run.repairs is None:
        return None
    repairs = _counted_repairs(run)
    times = len(repair_times_ns(repairs))
    return times if arrived else len(repairs) - times


def by_size(sizes: npt.NDArray[Any], slowdowns: npt.NDArray[Any]) -> list[dict[str, Any]]:
    """Slowdowns of all classes, with or without flows."""
    number = np.searchsorted(list(SIZE_CLASSES.values()), sizes)
    classes = [(name, slowdowns[number == at]) for at, name in enumerate(SIZE_CLASSES)]
    return [
        {"size_class": name, "n": len(own), "p50": quantile(own, 500), "p99": quantile(own, 990)}
        for name, own in classes
    ]


def _by_size(run: Any) -> list[dict[str, Any]] | None:
    """None if nothing was delivered."""
    if run.flows is None or not len(run.done):
        return None
    return by_size(run.messages["bytes"][run.compared], run.slowdowns())


def _on_links(key: str) -> Callable[[Any], int]:
    return lambda run: sum(link[key] for link in run.links)


def _on_wires(key: str) -> Callable[[Any], int]:
    return lambda run: sum(link["wire"][key] for link in run.links if link.get("wire"))


def _injected(run: Any) -> int:
    """On links; on the real clock, frames without a route in the wire stage, too."""
    return _on_links("injected_drops")(run) + int(run.facts.get("stage", {}).get("no_route", 0))


def _lost_by_machine(run: Any) -> int:
    sockets = sum(port["emulator_drops"] for port in run.facts.get("ports", ()))
    stage = int(run.facts.get("stage", {}).get("lost", 0))
    return _on_links("emulator_drops")(run) + stage + sockets


def _data_packets(run: Any) -> int:
    return sum(map(data_packets, run.counters.values()))


def _parity_share(run: Any) -> float | None:
    data = _data_packets(run)
    return run.count(_PARITY) / data if data else None


def _counted(*names: str) -> Callable[[Any], int]:
    return lambda run: run.count(names)


# --- The table, in the order of its lines ------------------------------------------------------

FIGURES: dict[str, Figure] = {each.key: each for each in (
    Figure("messages", COUNT,
           about="messages of the workload",
           of=lambda run: len(run.messages), of_messages=True),
    Figure("delivered", COUNT, "messages delivered",
           about="messages that were delivered and acknowledged",
           of=lambda run: len(run.done),
           of_messages=True, always=True),
    Figure("verified", TRUTH, "verified, every byte",
           about="whether every byte was right; null: bytes were not compared",
           of=lambda run: run.verified,
           of_programs=True),
    Figure("measured", COUNT,
           about="messages that percentiles are of: the delivered ones, without those of a warm-up",
           of=lambda run: int(run.measured.sum()), of_messages=True),
    Figure("bytes", BYTES,
           about="bytes of the delivered messages",
           of=lambda run: int(run.done["bytes"].sum()), of_messages=True),
    Figure("makespan_ns", TIME, "makespan",
           about="from the first post to the last completion; with the key `warm_up` from the "
                 "first post behind the warm-up, and not before the warm-up is over",
           of=lambda run: run.makespan_ns, better="less",
           of_messages=True, passed_only=True, always=True, in_jobs=True),
    Figure("operation_p50_ns", TIME, "p50 operation",
           about="median time of an operation, from its first post to its last completion at a "
                 "sender",
           samples=OPERATIONS, per_mille=500,
           of_messages=True, passed_only=True, always=True, unlike="makespan_ns"),
    Figure("operation_p99_ns", TIME,
           about="99th percentile of the times of operations",
           samples=OPERATIONS, per_mille=990, of_messages=True,
           passed_only=True),
    Figure("goodput_bps", RATE, "goodput, all hosts",
           about="bytes of the delivered messages, divided by the makespan; those of the key "
                 "`warm_up` are left out",
           short="goodput",
           of=lambda run: run.goodput_bps, better="more", of_messages=True, passed_only=True,
           always=True, in_jobs=True, sweep="goodput", place=5),
    Figure("algbw_bps", RATE, "algbw",
           about="bytes of a collective, divided by the time of the median operation",
           workloads=COLLECTIVES, better="more", of_messages=True,
           passed_only=True),
    Figure("busbw_bps", RATE, "busbw",
           about="`algbw_bps` times the share of the vector that must leave a host",
           workloads=COLLECTIVES, better="more", of_messages=True,
           passed_only=True),
    Figure("steps", COUNT,
           about="steps of a training, without those of the warm-up",
           workloads=TRAINING, of_messages=True),
    Figure("step_mean_ns", TIME, "mean step",
           about="mean time of a step of a training",
           workloads=TRAINING, better="less", of_messages=True, passed_only=True,
           sweep="step", place=4),
    Figure("step_p50_ns", TIME, "p50 step",
           about="median time of a step of a training",
           samples=STEPS, per_mille=500, workloads=TRAINING,
           of_messages=True, passed_only=True, in_jobs=True),
    Figure("step_p99_ns", TIME, "p99 step",
           about="99th percentile of the times of steps",
           samples=STEPS, per_mille=990, workloads=TRAINING,
           better="less", of_messages=True, passed_only=True),
    Figure("step_waiting", SHARE, "waiting, share of a step",
           about="share of the steps that is not computation of the busiest host",
           workloads=TRAINING,
           of_messages=True, passed_only=True, signed=True),
    Figure("fct_p50_ns", TIME, "p50 message completion",
           about="median time from the post of a send to its completion at the sender; of "
                 "`open-loop` from the arrival of the flow",
           short="p50 completion",
           samples=MESSAGES, per_mille=500, better="less", of_messages=True, always=True,
           sweep="p50", place=1, crosschecked=True),
    Figure("fct_p99_ns", TIME, "p99 message completion",
           about="99th percentile of the completion times of messages",
           short="p99 completion",
           samples=MESSAGES, per_mille=990, better="less", of_messages=True, always=True,
           in_jobs=True, sweep="p99", place=2, crosschecked=True),
    Figure("fct_p999_ns", TIME, "p99.9 message completion",
           about="99.9th percentile of the completion times of messages",
           short="p99.9 completion",
           samples=MESSAGES, per_mille=999, better="less", of_messages=True, always=True),
    Figure("offered_load", SHARE, "offered load",
           about="load of `open-loop` traffic, as it was drawn before the run",
           workloads=OPEN_LOOP, of_messages=True,
           passed_only=True),
    Figure("measured_load", SHARE, "load of the flows measured",
           about="load of `open-loop` traffic after the warm-up",
           workloads=OPEN_LOOP,
           of_messages=True, passed_only=True),
    Figure("slowdown_p50", RATIO, "p50 slowdown",
           about="median of a flow's time over its time alone on the empty fabric",
           samples=FLOWS, per_mille=500,
           workloads=OPEN_LOOP, of_messages=True, sweep="p50 slowdown", place=3),
    Figure("slowdown_p99", RATIO, "p99 slowdown",
           about="99th percentile of the slowdowns of flows",
           samples=FLOWS, per_mille=990,
           workloads=OPEN_LOOP, better="less", of_messages=True, in_jobs=True,
           sweep="p99 slowdown", place=4),
    Figure("slowdown", BY_SIZE,
           about="slowdowns by class of sizes: `size_class`, `n`, `p50`, `p99`",
           of=_by_size, workloads=OPEN_LOOP, of_messages=True),
    Figure("fct_small_p99_ns", TIME, "p99 completion of flows up to 100 kB",
           about="`fct_p99_ns` of flows of at most 100 kB",
           samples=SMALL,
           per_mille=990, workloads=OPEN_LOOP, better="less", of_messages=True,
           sweep="p99 FCT <=100kB", place=4),
    Figure("fct_medium_p99_ns", TIME, "p99 completion of flows up to 10 MB",
           about="`fct_p99_ns` of flows of more than 100 kB and at most 10 MB",
           samples=MEDIUM,
           per_mille=990, workloads=OPEN_LOOP, better="less", of_messages=True,
           sweep="p99 FCT <=10MB", place=4),
    Figure("fct_large_p99_ns", TIME, "p99 completion of larger flows",
           about="`fct_p99_ns` of flows of more than 10 MB",
           samples=LARGE,
           per_mille=990, workloads=OPEN_LOOP, better="less", of_messages=True,
           sweep="p99 FCT >10MB", place=4),
    Figure("repairs", COUNT,
           about="packets whose first transmission was lost, and whose payload arrived later",
           of=lambda run: _repairs(run, arrived=True), virtual_only=True),
    Figure("unrepaired", COUNT,
           about="packets whose first transmission was lost, and whose payload never arrived",
           of=lambda run: _repairs(run, arrived=False), virtual_only=True),
    Figure("repair_p50_ns", TIME, "p50 repair",
           about="median time from the drop of a packet's first transmission to the arrival of "
                 "its payload; null if some losses were not recorded",
           samples=REPAIRS, per_mille=500,
           virtual_only=True, sweep="p50 repair", place=8),
    Figure("repair_p99_ns", TIME, "p99 repair",
           about="99th percentile of the times of repairs",
           samples=REPAIRS, per_mille=990, better="less",
           virtual_only=True, sweep="p99 repair", place=9),
    Figure("repair_p50_over_oracle", RATIO, "p50 repair, over the oracle's",
           about="`repair_p50_ns` over that of `oracle` with the same seed",
           virtual_only=True, bound=ORACLE, ratio_of="repair_p50_ns",
           sweep="p50 repair / oracle", place=10),
    Figure("repair_p99_over_oracle", RATIO, "p99 repair, over the oracle's",
           about="`repair_p99_ns` over that of `oracle` with the same seed",
           virtual_only=True, bound=ORACLE, ratio_of="repair_p99_ns",
           sweep="p99 repair / oracle", place=11),
    Figure("time_over_oracle", RATIO, "makespan, over the oracle's",
           about="`makespan_ns` over that of `oracle` with the same seed",
           bound=ORACLE, ratio_of="makespan_ns",
           sweep="time / oracle", place=12),
    Figure("fct_p99_over_oracle", RATIO, "p99 completion, over the oracle's",
           about="`fct_p99_ns` over that of `oracle` with the same seed",
           bound=ORACLE, ratio_of="fct_p99_ns",
           sweep="p99 / oracle", place=12),
    Figure("fct_p999_over_oracle", RATIO, "p99.9 completion, over the oracle's",
           about="`fct_p999_ns` over that of `oracle` with the same seed",
           bound=ORACLE, ratio_of="fct_p999_ns",
           sweep="p99.9 / oracle", place=12),
    Figure("time_over_lossless", RATIO, "makespan, over lossless",
           about="`makespan_ns` over that of `lossless` with the same seed",
           bound=LOSSLESS, ratio_of="makespan_ns",
           sweep="time / lossless", place=13),
    Figure("fct_p50_over_lossless", RATIO, "p50 completion, over lossless",
           about="`fct_p50_ns` over that of `lossless` with the same seed",
           bound=LOSSLESS, ratio_of="fct_p50_ns",
           sweep="p50 / lossless", place=13),
    Figure("fct_p99_over_lossless", RATIO, "p99 completion, over lossless",
           about="`fct_p99_ns` over that of `lossless` with the same seed",
           bound=LOSSLESS, ratio_of="fct_p99_ns",
           sweep="p99 / lossless", place=13),
    Figure("step_mean_over_lossless", RATIO, "mean step, over lossless",
           about="`step_mean_ns` over that of `lossless` with the same seed",
           workloads=TRAINING, bound=LOSSLESS, ratio_of="step_mean_ns",
           sweep="step / lossless", place=13),
    Figure("excess_p99", RATIO,
           about="`fct_p99_ns`, compared with `oracle` and `lossless`",
           bound=ORACLE, ratio_of="fct_p99_ns", sweep_only=True,
           sweep="excess of p99", place=14),
    Figure("base_rtt_ns", TIME,
           about="round trip of a packet on the empty fabric",
           of=lambda run: run.facts.get("base_rtt_ns"), virtual_only=True),
    Figure("held_back", WORDS, "held back by",
           about="what stopped hosts with packets to send while their uplinks were idle",
           virtual_only=True,
           of=lambda run: None if run.held_back is None else [*run.held_back]),
    Figure("packets_sent", PACKETS, "data packets sent",
           about="transmissions of packets with message data, retransmissions included",
           always=True,
           of=_data_packets),
    Figure("parity_packets", PACKETS, "parity packets",
           about="packets of parity, which are neither data nor control packets",
           of=_counted(*_PARITY)),
    Figure("parity_share", SHARE,
           about="`parity_packets` over `packets_sent`; null if no data was sent",
           of=_parity_share, sweep="parity", place=7),
    Figure("control_packets", PACKETS, "control packets",
           about="all other packets: acknowledgements, NAKs, NACKs, reports, CNPs",
           of=_counted(*CONTROL), better="less"),
    Figure("control_bytes", BYTES,
           about="bytes of control packets, headers included; 0 with `rc`",
           of=_counted("tx_control_bytes")),
    Figure("injected_drops", PACKETS, "injected drops",
           about="packets dropped by rules, by links that were down, and by full queues",
           of=_injected, of_programs=True,
           always=True, crosschecked=True),
    Figure("queue_drops", PACKETS, "of these, full queues",
           about="packets dropped by full queues",
           of=_on_wires("dropped_by_queue"),
           of_programs=True),
    Figure("marked", PACKETS, "ECN marks",
           about="packets that a queue marked with CE",
           of=_on_wires("marked"), of_programs=True),
    Figure("trimmed", PACKETS, "trimmed",
           about="packets whose payload a queue or a rule cut off",
           of=_on_wires("trimmed"), of_programs=True),
    Figure("emulator_drops", PACKETS, "emulator drops",
           about="packets that the machine lost, on the real clock",
           of=_lost_by_machine, of_programs=True,
           signed=True),
    Figure("retransmitted", PACKETS, "retransmitted",
           about="retransmissions of packets with message data",
           of=_counted(*RETRANSMITTED), better="less",
           always=True, sweep="retransmitted", place=6, crosschecked=True),
    Figure("restored", PACKETS, "restored from parity",
           about="data packets that receivers restored from parity before they arrived",
           of=_counted("rx_restored")),
    Figure("needless_retransmissions", PACKETS, "needless",
           about="retransmissions of packets that the receiver had restored from parity when "
                 "they arrived; not among the spurious ones. Over the framing `uc_immediate` "
                 "late first transmissions are among them",
           of=_counted("rx_needless")),
    Figure("spurious_retransmissions", PACKETS, "spurious",
           about="arrivals of data packets that had arrived before; duplicates of the network "
                 "are among them, parity and needless retransmissions are not",
           of=_counted(*SPURIOUS), always=True,
           sweep="spurious", place=7),
    Figure("contexts_missed", COUNT, "QP contexts missed",
           about="misses of the RNIC's context cache",
           of=_counted("contexts_missed"),
           of_programs=True),
    Figure("end_ns", TIME,
           about="when the run was over, on its clock",
           of=lambda run: run.end_ns, of_programs=True),
    Figure("fidelity", WORD, "fidelity",
           about="whether the times of a run on the real clock are valid",
           of=lambda run: run.fidelity, of_programs=True),
)}  # fmt: skip


def _printed_unit(base: Unit, name: str, factor: float) -> Unit:
    """Values stay as they were printed."""
    return Unit(name, "float64", lambda value: base.show(round(value * factor)),
                lambda text: base.parse(text) / factor, suffix=f"_{name}")  # fmt: skip


PRINTED_UNITS: dict[str, tuple[Unit, Literal["less", "more"] | None]] = {
    "_per_s": (NUMBER, "more"),
    "_iops": (NUMBER, "more"),
    **{f"_{name}": (_printed_unit(TIME, name, factor), "less")
       for name, factor in (("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9))},
    **{f"_{name}": (_printed_unit(RATE, name, factor), "more")
       for name, factor in (("gbps", 1e9), ("mbps", 1e6), ("bps", 1.0))},
    "": (NUMBER, None),
}  # fmt: skip
"""Units by the end of a printed figure's name, and which values are better. The first counts."""


@functools.cache
def printed(key: str) -> Figure:
    """The figure of this key, which begins with PRINTED."""
    unit, better = next(PRINTED_UNITS[end] for end in PRINTED_UNITS if key.endswith(end))
    name = key.removeprefix(PRINTED)
    return Figure(key, unit, name, about="what a program printed", better=better, sweep=name,
                  of_programs=True, passed_only=True)  # fmt: skip


def figure_of(key: str) -> Figure:
    """Of the table, or printed."""
    return printed(key) if key.startswith(PRINTED) else FIGURES[key]


def all_figures(rows: Iterable[Row]) -> dict[str, Figure]:
    """By key: the table, and what programs printed in these rows."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith(PRINTED))
    return FIGURES | {key: printed(key) for key in keys}


CLASS_P99 = Figure("p99", RATIO, "p99 slowdown", about="99th percentile of slowdowns",
                   samples=Samples(lambda _: (), "n"), per_mille=990)  # fmt: skip
"""Of the slowdowns of one class of sizes, each of which has `n` flows."""


def computed(run: Any) -> dict[str, Any]:
    """The figures of a `WorkloadRun`, without those that compare it with other runs."""
    seen = "programs" not in run.facts
    found: dict[str, Any] = {}
    samples: dict[Samples, Any] = {}
    for figure in FIGURES.values():
        if figure.bound:
            continue
        if not (seen or figure.of_programs):
            found[figure.key] = None
        elif figure.samples is not None:
            if figure.samples not in samples:
                samples[figure.samples] = figure.samples.values(run)
            found[figure.key] = quantile(samples[figure.samples], figure.per_mille)
        else:
            found[figure.key] = figure.compute(run)
    return found


def few_samples(row: Row) -> list[str]:
    """The percentiles of a run that have fewer samples than they need.

    Those of classes of sizes are left out: each class has its number of samples.
    """
    return [key for key, figure in FIGURES.items() if figure.fewest([row]) is not None]


def percentiles(samples: Samples) -> list[Figure]:
    return [figure for figure in FIGURES.values() if figure.samples == samples]


def claimed(rows: Iterable[Row] = ()) -> dict[str, Figure]:
    """The figures of which less or more is better, by key; of these rows the printed ones, too."""
    return {key: figure for key, figure in all_figures(rows).items() if figure.better}


def gates() -> dict[str, Figure]:
    return {figure.gate: figure for figure in FIGURES.values() if figure.gate}


def flows(rows: Sequence[Row], size_class: str) -> list[Row]:
    """The slowdowns of a class, of the rows that have flows in it: `n`, `p50`, `p99`."""
    return [
        each for row in rows for each in row.get("slowdown") or ()
        if each["size_class"] == size_class and each["n"]
    ]  # fmt: skip
