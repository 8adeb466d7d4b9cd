# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of the runs become cells: what each transport came to under one workload and loss."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from softroce_lab.bench.recovery import ratios
from softroce_lab.bench.recovery.ratios import Draws, Resampled
from softroce_lab.experiment import over_oracle
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.sweep.spec import Sweep
from softroce_lab.sweep.work import Row, Work

TAIL = "tail_ns"
"""The key of a row beside a sweep's own: what percentiles of several seeds together need."""
NO_LOSS = "none"
"""The label of the cells in which no rule drops packets."""


class Measured(Work):
    """The work of a sweep; its rows hold `TAIL`, too."""

    kind = "recovery"

    def figures(self, run: WorkloadRun) -> Row:
        return {**super().figures(run), TAIL: ratios.tail(run.completion_times_ns())}


@dataclasses.dataclass(frozen=True)
class Measure:
    """A transport in a cell: its rows, one a seed, in the order of the seeds."""

    rows: tuple[Row, ...]
    drawn: Draws

    @property
    def failed(self) -> list[str]:
        """Why runs failed, one reason each; a transport that failed has no figures."""
        return [row["reasons"][0] for row in self.rows if row["verdict"] != "passed"]

    @functools.cached_property
    def p99_ns(self) -> Resampled:
        """Message completion time, of all seeds together."""
        return self._percentile(990)

    @functools.cached_property
    def p999_ns(self) -> Resampled:
        """The same: one message of a thousand takes longer."""
        return self._percentile(999)

    @functools.cached_property
    def time_ns(self) -> Resampled:
        """From the first post to the last completion; geometric mean of the seeds."""
        return self._mean("makespan_ns")

    def mean_ns(self, key: str) -> Resampled | None:
        """Geometric mean of the seeds; None: a seed has no such figure, or 0."""
        return self._mean(key) if all(row.get(key) for row in self.rows) else None

    @property
    def messages(self) -> int:
        """Of all seeds: the samples of the percentiles."""
        return sum(row["measured"] for row in self.rows)

    @property
    def repairs(self) -> int:
        """Of all seeds: the samples of the repair times."""
        return sum(row["repairs"] or 0 for row in self.rows)

    @property
    def without_repairs(self) -> int:
        """Runs without a repair time: nothing was lost, or not all losses were recorded."""
        return sum(not row.get("repair_p50_ns") for row in self.rows)

    @property
    def spurious(self) -> float:
        """Spurious retransmissions, as a share of data packets."""
        return self._share("spurious_retransmissions")

    @property
    def control_share(self) -> float:
        """Control packets for each data packet."""
        return self._share("control_packets")

    @property
    def control_bytes_share(self) -> float:
        """Bytes of control packets, headers included, for each byte of the messages."""
        control: int = sum(row["control_bytes"] for row in self.rows)
        return float(control / sum(row["bytes"] for row in self.rows))

    @property
    def rtt_ns(self) -> int:
        """Round trip while all queues are empty."""
        return int(self.rows[0]["base_rtt_ns"])

    def _percentile(self, per_mille: int) -> Resampled:
        tails = [row[TAIL] for row in self.rows]
        return ratios.percentile(
            tails, [row["measured"] for row in self.rows], per_mille, self.drawn
        )

    def _mean(self, key: str) -> Resampled:
        return ratios.geometric_mean([row[key] for row in self.rows], self.drawn)

    def _share(self, key: str) -> float:
        packets: int = sum(row["packets_sent"] for row in self.rows)
        return float(sum(row[key] for row in self.rows) / packets)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One workload under one loss, over all transports."""

    workload: str  # without the size of its messages
    message_bytes: int | None  # the largest; None: the workload has sizes of its own
    loss: str
    of: Mapping[str, Measure]  # by the label of the transport

    @property
    def name(self) -> str:
        """As `--cells` takes it."""
        return f"{labelled(self.workload, self.message_bytes)}/{self.loss}"


def labelled(workload: str, message_bytes: int | None) -> str:
    """The label of a workload in the sweep."""
    if message_bytes is None:
        return workload
    return (
        f"{workload}-{message_bytes >> 10}KiB"
        if message_bytes < 1 << 20
        else (f"{workload}-{message_bytes >> 20}MiB")
    )


def cells(sweep: Sweep, rows: Iterable[Row]) -> list[Cell]:
    """Those of which rows are there, in the order of the sweep, whole ones alone.

    A cell is whole if each of its transports has a row of each of the same seeds.
    """
    sizes = {
        combination.points[0].label: getattr(combination.experiment.raw.workload, "message", None)
        for combination in sweep.combinations
    }
    found: dict[tuple[str, str], dict[str, dict[int, Row]]] = {}
    for row in rows:
        cell = found.setdefault((row["workload"], row["loss"]), {})
        cell.setdefault(row["transport"], {})[row["seed"]] = row
    return [
        Cell(_workload(label, sizes[label]), sizes[label], loss, _measures(of))
        for (label, loss), of in found.items()
        if len({tuple(sorted(by_seed)) for by_seed in of.values()}) == 1
    ]


def _workload(label: str, message_bytes: int | None) -> str:
    return label.removesuffix(labelled("", message_bytes) if message_bytes else "")


def _measures(of: Mapping[str, Mapping[int, Row]]) -> dict[str, Measure]:
    return {
        transport: Measure(tuple(by_seed[seed] for seed in sorted(by_seed)), _drawn(len(by_seed)))
        for transport, by_seed in of.items()
    }


@functools.cache
def _drawn(seeds: int) -> Draws:
    return ratios.draws(seeds)


def excess(
    with_loss: Resampled, oracle: Resampled, without: Resampled, rtt_ns: int
) -> Resampled | None:
    """`over_oracle.excess` of percentiles of all seeds together.

    Resamples in which it is not defined are left out.
    """
    value = over_oracle.excess(with_loss.value, oracle.value, without.value, rtt_ns)
    cost_ns = oracle.resamples - without.resamples
    defined = cost_ns >= over_oracle.LEAST_COST_RTTS * rtt_ns
    if value is None or not defined.any():
        return None
    above_ns = with_loss.resamples - without.resamples
    return Resampled(value, above_ns[defined] / cost_ns[defined])


def ends(values: Sequence[float]) -> list[float]:
    """Rounded for a document."""
    return [round(value, 4) for value in values]
