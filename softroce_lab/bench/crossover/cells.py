# SPDX-License-Identifier: GPL-2.0-or-later
"""Cells of the crossover map: all rounds of a scheme at a point, beside both models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from softroce_lab.bench.crossover.grid import (
    CHUNK_PACKETS,
    NEAR,
    TAIL,
    Place,
    Sample,
    data_packets,
    predicted,
    published,
    scenario,
)

MEAN_WITHIN = 0.05
ERRORS = 3  # standard errors
DOUBT = 0.005  # at either end of the interval of a quantile: 99 %


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A scheme in a cell of the grid. Times in ns."""

    distance_km: float
    message_bytes: int
    chunk_loss: float
    scheme: str
    messages: int
    mean_ns: float
    error_ns: float  # standard error of the mean
    most_ns: float
    model_ns: float  # mean of the model of what was built
    model_error_ns: float  # standard error that this model gives a mean of so many messages
    model_tail_ns: float  # its p99.9
    paper_ns: float  # mean of the paper's model
    beyond_tail: int
    from_tail: int
    tail_agrees: bool
    fell_back: int
    retransmitted: int
    parity: int | None  # packets; None: not known

    @property
    def overhead(self) -> float | None:
        """Packets of parity and retransmissions over those of the data; None: not known."""
        if self.parity is None:
            return None
        data = self.messages * data_packets(self.message_bytes)
        return (self.parity + self.retransmitted) / data

    @property
    def over_model(self) -> float:
        """Mean of the simulation over that of the model of what was built."""
        return self.mean_ns / self.model_ns

    @property
    def over_paper(self) -> float:
        """Mean of the simulation over that of the paper's model."""
        return self.mean_ns / self.paper_ns

    @property
    def agrees(self) -> bool:
        """Within 5 %, or within three standard errors of the model's own draw."""
        near = abs(self.mean_ns - self.model_ns)
        return near <= max(MEAN_WITHIN * self.model_ns, ERRORS * self.model_error_ns)


def of(samples: Iterable[Sample]) -> list[Cell]:
    """The samples of each place together, in the order of their first ones."""
    by_place: dict[Place, list[Sample]] = {}
    for each in samples:
        by_place.setdefault(each.place, []).append(each)
    return [_cell(place, each) for place, each in by_place.items()]


def _cell(place: Place, samples: Sequence[Sample]) -> Cell:
    count = sum(each.messages for each in samples)
    mean_ns = sum(each.sum_ns for each in samples) / count
    squares = sum(each.squares_ns2 for each in samples)
    variance = max(squares - count * mean_ns**2, 0.0) / (count - 1)
    model = predicted(place)
    beyond = sum(each.beyond_tail for each in samples)
    from_tail = sum(each.from_tail for each in samples)
    tail_ns = model.quantile_ns(TAIL)
    return Cell(
        place.distance_km,
        place.message_bytes,
        place.chunk_loss,
        place.scheme,
        count,
        mean_ns,
        math.sqrt(variance / count),
        max(each.most_ns for each in samples),
        model.mean_ns,
        model.deviation_ns / math.sqrt(count),
        tail_ns,
        published(place).mean_ns,
        beyond,
        from_tail,
        within_tail(
            count,
            beyond,
            from_tail,
            model.exceeds(tail_ns * (1 + NEAR)),
            model.exceeds(tail_ns * (1 - NEAR)),
        ),
        sum(each.fell_back for each in samples),
        sum(each.retransmitted for each in samples),
        _parity(place, samples),
    )


def _parity(place: Place, samples: Sequence[Sample]) -> int | None:
    """Packets that were sent. In states of before they are not: parity is sent once, by all codes.

    Which code `auto` took is not known then.
    """
    counted = [each.parity for each in samples]
    if None not in counted:
        return sum(filter(None, counted))
    if place.scheme == "auto":
        return None
    coded = place.scheme in ("mds", "xor")
    messages = sum(each.messages for each in samples)
    return messages * scenario(place).parity * CHUNK_PACKETS if coded else 0


def within_tail(
    messages: int, beyond: int, from_tail: int, later: float, no_earlier: float
) -> bool:
    """Whether the model's p99.9 lies in the 99 % confidence interval of the simulation's.

    That interval lies between two order statistics, whose ranks are quantiles of a binomial
    distribution. So it holds the model's p99.9 unless too many messages are later than that, or
    too few are as late: `later` and `no_earlier` are the probabilities that the model gives both.
    Of few messages the interval has no upper end: they can refute a tail, not prove one.
    """
    too_many = 1 - _at_most(beyond - 1, messages, later) < DOUBT
    too_few = _at_most(from_tail, messages, no_earlier) < DOUBT
    return not too_many and not too_few


def _at_most(most: int, count: int, probability: float) -> float:
    """P(X <= most) of a binomial distribution."""
    if most < 0:
        return 0.0
    if most >= count or probability <= 0:
        return 1.0
    if probability >= 1:
        return 0.0
    log_no, log_yes = math.log1p(-probability), math.log(probability)
    first = math.lgamma(count + 1)
    return math.fsum(
        math.exp(
            first - math.lgamma(k + 1) - math.lgamma(count - k + 1)
            + k * log_yes + (count - k) * log_no
        )
        for k in range(most + 1)
    )  # fmt: skip


def save(cells: Sequence[Cell], path: Path) -> None:
    """Write the cells as a Parquet table, the models' figures beside the simulation's."""
    save_rows([row(each) for each in cells], path)


def save_rows(rows: Sequence[dict[str, object]], path: Path) -> None:
    """Write rows as a Parquet table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def row(cell: Cell) -> dict[str, object]:
    """Its fields, and what follows from them."""
    return {
        **dataclasses.asdict(cell),
        "over_model": cell.over_model,
        "over_paper": cell.over_paper,
        "agrees": cell.agrees,
        "overhead": cell.overhead,
    }
