# SPDX-License-Identifier: GPL-2.0-or-later
"""Ring all-reduce over sites: selective repeat and erasure coding, simulated beside the model.

A site is a host; all are equally far from each other. In 2 (N - 1) steps each sends an N-th of the
vector to the next one, and begins a step when the message of the step before has arrived. The model
is that of single messages (`grid.predicted`), less the half round trip until the sender knows: a
site waits for its predecessor's message, not for its own (docs/sdr.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.bench.crossover.grid import (
    CHUNK_PACKETS,
    SCHEMES,
    Place,
    completed,
    long_haul,
    predicted,
    random_loss,
)
from softroce_lab.bench.crossover.points import by_scheme
from softroce_lab.experiment import spec
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.model import ring, sdr

_BURST_PACKETS = 16  # that are lost in a row, in the mean
_CALM = 0.01  # of the loss, that a path has when it is not in trouble
_TROUBLE, _PERIOD = 0.1, 10  # share of the time that it is, and round trips from one to the next
_MODEL_RUNS = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is simulated."""

    sites: Sequence[int] = (2, 4, 8)
    vector_bytes: int = 128 << 20
    distance_km: float = 3750
    losses: Sequence[float] = (1e-3, 1e-2)  # of chunks, in the long run
    kinds: Sequence[str] = ("random", "bursts", "varying")
    schemes: Sequence[str] = tuple(SCHEMES)
    repeat: int = 20
    seed: int = 1


SHORT = Options(sites=(4, 8), losses=(1e-2,), repeat=4)
FULL = Options(losses=(1e-3, 1e-2, 3e-2), repeat=40)


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A scheme over so many sites. Times in ns."""

    sites: int
    kind: str
    chunk_loss: float
    scheme: str
    operations: int
    mean_ns: float
    error_ns: float  # standard error of the mean
    most_ns: float
    model_ns: float | None  # mean, of random losses
    retransmitted: int


def run(options: Options, say: Callable[[str], None]) -> list[Cell]:
    """All cells, in the order of sites, kind of loss, loss and scheme."""
    found = []
    for sites in options.sites:
        for kind in options.kinds:
            for loss in options.losses:
                here = [simulate(options, sites, kind, loss, name) for name in options.schemes]
                found += here
                shown = ", ".join(f"{each.scheme} {each.mean_ns / 1e6:.1f} ms" for each in here)
                say(f"{sites} sites, {kind}, {loss:g}: {shown}")
    return found


def simulate(options: Options, sites: int, kind: str, loss: float, scheme: str) -> Cell:
    """One scheme in one cell. RunError if an operation fails."""
    case = experiment(options, sites, kind, loss, scheme)
    done = completed(case, f"{scheme} over {sites} sites")
    operations = [
        done.messages[done.messages["operation"] == each]
        for each in np.unique(done.messages["operation"])
    ]
    took = np.array([rows["received_ns"].max() - rows["posted_ns"].min() for rows in operations])
    return Cell(
        sites,
        kind,
        loss,
        scheme,
        len(took),
        float(took.mean()),
        float(took.std(ddof=1) / math.sqrt(len(took))),
        float(took.max()),
        model_ns(options, sites, loss, scheme) if kind == "random" else None,
        int(done.messages["retransmitted"].sum()),
    )


def model_ns(options: Options, sites: int, loss: float, scheme: str) -> float:
    """The model's mean; of `auto` that of the scheme whose messages take least."""
    place = Place(options.distance_km, options.vector_bytes // sites, loss, scheme)
    arrival = predicted(place).later_by(-sdr.rtt_of_ns(options.distance_km) / 2)
    stream = np.random.default_rng(options.seed)
    return ring.all_reduce(arrival, sites, _MODEL_RUNS, stream, for_own=False).mean_ns


def experiment(
    options: Options, sites: int, kind: str, loss: float, scheme: str
) -> spec.Experiment:
    """All sites at one switch, as far from each other as asked for; each loses what it sends."""
    half_ns = round(sdr.rtt_of_ns(options.distance_km) / 4)
    case = long_haul(options.distance_km, SCHEMES[scheme], options.seed)
    rate = case["topology"]["generator"]["access"]["rate"]
    del case["depth"]
    case |= {
        "topology": {
            "generator": {
                "kind": "star",
                "hosts": sites,
                "access": {"rate": rate, "delay": f"{half_ns}ns"},
            }
        },
        "workload": {
            "kind": "collective",
            "op": "all-reduce",
            "bytes": f"{options.vector_bytes}B",
            "message": f"{options.vector_bytes // sites}B",
            "repeat": options.repeat,
        },
        "faults": faults(kind, sdr.packet_loss(loss, CHUNK_PACKETS), options.distance_km),
    }
    return spec.of(Source(None, case, {}, {}))


def faults(kind: str, packet_loss: float, distance_km: float) -> list[dict[str, Any]]:
    """Rules with this loss in the long run: random, in bursts, or varying a hundredfold."""
    rule = {"links": "h*->s1", "only": "data"}
    if kind == "random":
        return [{"name": "loss", "loss": random_loss(packet_loss)} | rule]
    if kind == "bursts":
        good_to_bad = packet_loss / (_BURST_PACKETS * (1 - packet_loss))
        words = f"gemodel {good_to_bad:.12%} {1 / _BURST_PACKETS:.12%}"
        return [{"name": "bursts", "loss": words, "key": "index"} | rule]
    worst = packet_loss / (_TROUBLE + (1 - _TROUBLE) * _CALM)
    period_ns = round(_PERIOD * sdr.rtt_of_ns(distance_km))
    trouble_ns = round(_TROUBLE * period_ns)
    return [
        {"name": "trouble", "loss": random_loss(worst), "at": "0ns", "for": f"{trouble_ns}ns"}
        | {"every": f"{period_ns}ns"} | rule,
        {"name": "calm", "loss": random_loss(_CALM * worst), "at": f"{trouble_ns}ns"}
        | {"for": f"{period_ns - trouble_ns}ns", "every": f"{period_ns}ns"} | rule,
    ]  # fmt: skip


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: the mean of each scheme in ms, over the model's, and SR over EC."""
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    lines = [
        f"| sites | loss | of chunks | {' | '.join(schemes)} | sr_rto / mds |",
        "|---:|---|---|" + "---:|" * (len(schemes) + 1),
    ]
    rows = by_scheme(cells, lambda each: (each.sites, each.kind, each.chunk_loss))
    for (sites, kind, loss), here in rows.items():
        shown = [_shown(here[name]) if name in here else "-" for name in schemes]
        ratio = "-"
        if {"sr_rto", "mds"} <= here.keys():
            ratio = f"{here['sr_rto'].mean_ns / here['mds'].mean_ns:.1f}"
        lines.append(f"| {sites} | {kind} | {loss:g} | {' | '.join(shown)} | {ratio} |")
    return lines


def _shown(cell: Cell) -> str:
    over = "" if cell.model_ns is None else f" ({cell.mean_ns / cell.model_ns:.2f})"
    return f"{cell.mean_ns / 1e6:.1f}{over}"


def title(options: Options) -> str:
    """What the table is of."""
    return (
        f"ring all-reduce of {units.format_bytes(options.vector_bytes)}, "
        f"{options.distance_km:g} km between sites, {options.repeat} operations a cell"
    )
