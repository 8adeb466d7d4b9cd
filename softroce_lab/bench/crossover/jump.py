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
    long_haul,
    predicted,
)
from softroce_lab.errors import RunError
from softroce_lab.experiment import spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs.yaml_source import Source
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
    case = experiment(place, options)
    made = VirtualRun(case, case.transports[0], options.seed, lambda _: None)
    done = made.go()
    if done.verdict != "passed":
        raise RunError(f"{place.scheme} over {place.distance_km:g} km: {done.reasons[0]}")
    took = done.messages["received_ns"] - done.messages["posted_ns"]
    mean_ns = float(took.mean()) + sdr.rtt_of_ns(place.distance_km) / 2
    return Cell(place.distance_km, place.message_bytes, place.chunk_loss, place.scheme, mean_ns)


def experiment(place: Place, options: Options) -> spec.Experiment:
    """A message after the other over a long haul whose loss jumps."""
    coded = predicted(dataclasses.replace(place, scheme="mds"))
    jump_ns = round(options.messages / 2 * coded.least_ns)
    before, after = (sdr.packet_loss(place.chunk_loss * by, CHUNK_PACKETS) for by in (1, JUMP))
    rule = {"links": "s1->s2", "only": "data"}
    size = place.message_bytes
    case = long_haul(place.distance_km, SCHEMES[place.scheme], options.seed) | {
        "workload": {
            "kind": "point-to-point",
            "bytes": f"{options.messages * size}B",
            "message": f"{size}B",
        },
        "faults": [
            {"name": "before", "loss": f"random {before:.12%}", "at": "0ns", "for": f"{jump_ns}ns"}
            | rule,
            {"name": "after", "loss": f"random {after:.12%}", "at": f"{jump_ns}ns"} | rule,
        ],
    }
    return spec.of(Source(None, case, {}, {}))


def auto_over_best(cells: Sequence[Cell]) -> dict[tuple[float, int, float], float]:
    """By distance, size and loss before: the mean of `auto` over the least of the others."""
    by_point: dict[tuple[float, int, float], dict[str, float]] = {}
    for each in cells:
        where = each.distance_km, each.message_bytes, each.chunk_loss
        by_point.setdefault(where, {})[each.scheme] = each.mean_ns
    return {
        where: here["auto"] / min(time for name, time in here.items() if name != "auto")
        for where, here in by_point.items()
    }


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: means in ms, and `auto` over the best fixed scheme."""
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    lines = [
        f"| distance | message | chunk loss | {' | '.join(schemes)} | auto / best |",
        "|---|---|---|" + "---:|" * (len(schemes) + 1),
    ]
    for where, ratio in auto_over_best(cells).items():
        km, size, loss = where
        here = {
            each.scheme: each.mean_ns / 1e6
            for each in cells
            if (each.distance_km, each.message_bytes, each.chunk_loss) == where
        }
        shown = " | ".join(f"{here[name]:.3f}" for name in schemes)
        lines.append(
            f"| {km:g} km | {units.format_bytes(size)} | {loss:g} to {loss * JUMP:g} | {shown} "
            f"| {ratio:.3f} |"
        )
    return lines
