# SPDX-License-Identifier: GPL-2.0-or-later
"""The loss jumps a hundredfold in the middle of a run: fixed schemes, and the one that chooses.

One message after the other, as in the grid. The loss changes when erasure coding has sent half of
the messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from softroce_lab import units
from softroce_lab.bench.crossover.grid import (
    CHUNK_PACKETS,
    SCHEMES,
    Place,
    completed,
    one_by_one,
    predicted,
    random_loss,
)
from softroce_lab.bench.crossover.points import Point, auto_over, by_scheme
from softroce_lab.experiment import spec
from softroce_lab.model import sdr

JUMP = 100
WITHIN = 1.10
"""Of the best fixed scheme: what `sdr_auto` may take."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is simulated."""

    distances_km: Sequence[float] = (75, 3750)
    sizes: Sequence[int] = (1 << 20, 8 << 20, 128 << 20)
    losses: Sequence[float] = (1e-5, 1e-4, 1e-3)  # of chunks, before it jumps
    schemes: Sequence[str] = tuple(SCHEMES)
    messages: int = 60
    seed: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A scheme's mean time of a message, in ns."""

    distance_km: float
    message_bytes: int
    chunk_loss: float  # before
    scheme: str
    mean_ns: float


def run(options: Options, say: Callable[[str], None]) -> list[Cell]:
    """All cells, in the order of distance, size, loss and scheme."""
    found = []
    for distance_km in options.distances_km:
        for size in options.sizes:
            for loss in options.losses:
                places = [Place(distance_km, size, loss, name) for name in options.schemes]
                found += [simulate(place, options) for place in places]
                say(f"{distance_km:g} km, {units.format_bytes(size)}, {loss:g} to {loss * JUMP:g}")
    return found


def simulate(place: Place, options: Options) -> Cell:
    """One scheme in one cell. RunError if a message fails."""
    done = completed(experiment(place, options), place.name)
    took = done.messages["received_ns"] - done.messages["posted_ns"]
    mean_ns = float(took.mean()) + sdr.rtt_of_ns(place.distance_km) / 2
    return Cell(place.distance_km, place.message_bytes, place.chunk_loss, place.scheme, mean_ns)


def experiment(place: Place, options: Options) -> spec.Experiment:
    """A message after the other over a long haul whose loss jumps."""
    coded = predicted(dataclasses.replace(place, scheme="mds"))
    jump_ns = round(options.messages / 2 * coded.least_ns)
    before, after = (
        random_loss(sdr.packet_loss(place.chunk_loss * by, CHUNK_PACKETS)) for by in (1, JUMP)
    )
    losses = [
        {"name": "before", "loss": before, "at": "0ns", "for": f"{jump_ns}ns"},
        {"name": "after", "loss": after, "at": f"{jump_ns}ns"},
    ]
    return one_by_one(place, options.messages, options.seed, losses)


def _by_point(cells: Sequence[Cell]) -> dict[Point, dict[str, Cell]]:
    return by_scheme(cells, lambda each: (each.distance_km, each.message_bytes, each.chunk_loss))


def auto_over_best(cells: Sequence[Cell]) -> dict[Point, float]:
    """By distance, size and loss before: the mean of `auto` over the least of the others."""
    return auto_over(_by_point(cells))


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: means in ms, and `auto` over the best fixed scheme."""
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    lines = [
        f"| distance | message | chunk loss | {' | '.join(schemes)} | auto / best |",
        "|---|---|---|" + "---:|" * (len(schemes) + 1),
    ]
    over = auto_over_best(cells)
    for where, here in _by_point(cells).items():
        km, size, loss = where
        shown = " | ".join(f"{here[name].mean_ns / 1e6:.3f}" for name in schemes)
        lines.append(
            f"| {km:g} km | {units.format_bytes(size)} | {loss:g} to {loss * JUMP:g} | {shown} "
            f"| {over[where]:.3f} |"
        )
    return lines
