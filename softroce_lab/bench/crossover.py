# SPDX-License-Identifier: GPL-2.0-or-later
"""Where erasure coding overtakes selective repeat: simulation beside SDR-RDMA's model.

Two hosts, a long haul between them, one message after the other. Each cell is a size of messages, a
loss of chunks and a distance; each scheme is a transport of the virtual clock. A message's time is
that of the paper's T: until the sender could know, half a round trip after its last byte arrived.
The acknowledgement itself waits for others (docs/protocols.md), which the model does not have.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.errors import RunError
from softroce_lab.experiment import spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.model import sdr
from softroce_lab.model.completion import Completion

RATE_BPS = 400_000_000_000
PATH_MTU, CHUNK_PACKETS = 4096, 16
HEADER_BYTES = 40  # of the lab, in each packet of the framing `ud`
FRAME_BYTES = PATH_MTU + 66  # Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8, ICRC 4

SCHEMES: dict[str, dict[str, Any]] = {
    "sr_rto": {"name": "sdr_sr"},
    "sr_nack": {"name": "sdr_sr_nack"},
    "mds": {"name": "sdr_ec"},
    "xor": {"name": "sdr_ec", "options": {"code": "xor"}},
    "auto": {"name": "sdr_auto"},
}
"""The transports, by the model's names. The model has no `auto`: it is the least of the others."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The grid, and how much of it is simulated."""

    distances_km: Sequence[float] = (75, 750, 3750, 6000)
    sizes: Sequence[int] = (128 << 10, 8 << 20, 128 << 20)
    losses: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)  # of chunks
    schemes: Sequence[str] = tuple(SCHEMES)
    bytes_a_cell: int = 512 << 20
    most_messages: int = 100
    seed: int = 1


SHORT = Options()
FULL = Options(
    sizes=(128 << 10, 1 << 20, 8 << 20, 128 << 20, 1 << 30),
    losses=(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1),
    bytes_a_cell=2 << 30,
    most_messages=400,
)


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
    model_ns: float  # mean
    model_error_ns: float  # standard error that the model gives a mean of so many messages
    retransmitted: int

    @property
    def over_model(self) -> float:
        """Mean of the simulation over that of the model."""
        return self.mean_ns / self.model_ns

    @property
    def agrees(self) -> bool:
        """Within 5 %, or within three standard errors of the model's own draw."""
        near = abs(self.mean_ns - self.model_ns)
        return near <= max(0.05 * self.model_ns, 3 * self.model_error_ns)


Say = Callable[[str], None]


def run(options: Options, say: Say) -> list[Cell]:
    """All cells, in the order of distance, size, loss and scheme."""
    found: list[Cell] = []
    grid = itertools.product(options.distances_km, options.sizes, options.losses)
    for distance_km, size, loss in grid:
        predicted = predict(distance_km, size, loss)
        for scheme in options.schemes:
            cell = simulate(options, distance_km, size, loss, scheme, predicted)
            found.append(cell)
        newest = found[-len(options.schemes) :]
        shown = ", ".join(f"{each.scheme} {each.over_model:.3f}" for each in newest)
        say(f"{distance_km:g} km, {units.format_bytes(size)}, {loss:g}, over the model: {shown}")
    return found


def predict(distance_km: float, size: int, loss: float) -> dict[str, Completion]:
    """The model's completion times, of chunks as the simulated packets carry them.

    The paper's, but that packets of a chunk are kept when others of it are lost.
    """
    chunk = CHUNK_PACKETS * (PATH_MTU - HEADER_BYTES)
    scenario = sdr.Scenario(
        message_bytes=size,
        loss=loss,
        rtt_ns=sdr.rtt_of_ns(distance_km),
        # A chunk takes as long as its packets with all their headers.
        bandwidth_bps=RATE_BPS * (PATH_MTU - HEADER_BYTES) / FRAME_BYTES,
        chunk_bytes=min(chunk, size),
        kept_packets=CHUNK_PACKETS,
    )
    return sdr.predict(scenario)


def simulate(
    options: Options,
    distance_km: float,
    size: int,
    loss: float,
    scheme: str,
    predicted: dict[str, Completion],
) -> Cell:
    """One scheme in one cell. RunError if a message fails."""
    messages = max(min(options.bytes_a_cell // size, options.most_messages), 2)
    case = experiment(distance_km, size, loss, scheme, messages, options.seed)
    made = VirtualRun(case, case.transports[0], options.seed, lambda _: None)
    done = made.go()
    if done.verdict != "passed":
        raise RunError(f"{scheme} over {distance_km:g} km: {done.reasons[0]}")
    took: npt.NDArray[np.float64] = (
        done.messages["received_ns"] - done.messages["posted_ns"] + sdr.rtt_of_ns(distance_km) / 2
    )
    model = predicted.get(scheme) or min(predicted.values(), key=lambda each: each.mean_ns)
    return Cell(
        distance_km,
        size,
        loss,
        scheme,
        messages,
        float(took.mean()),
        float(took.std(ddof=1) / math.sqrt(messages)),
        float(took.max()),
        model.mean_ns,
        model.deviation_ns / math.sqrt(messages),
        int(done.messages["retransmitted"].sum()),
    )


def experiment(
    distance_km: float, size: int, loss: float, scheme: str, messages: int, seed: int
) -> spec.Experiment:
    """A message after the other over a long haul."""
    one_way_ns = round(sdr.rtt_of_ns(distance_km) / 2) - 2
    packet_loss = sdr.packet_loss(loss, CHUNK_PACKETS)
    lossy = {"name": "loss", "links": "s1->s2", "loss": f"random {packet_loss:.12%}"}
    case = {
        "name": "crossover",
        "topology": {
            "generator": {
                "kind": "dumbbell",
                "hosts_per_side": 1,
                "access": {"rate": f"{RATE_BPS}bit", "delay": "1ns"},
                "bottleneck": {"rate": f"{RATE_BPS}bit", "delay": f"{one_way_ns}ns"},
            }
        },
        "mtu": 4300,
        "transports": [{"framing": "ud", **SCHEMES[scheme]}],
        "workload": {
            "kind": "point-to-point", "bytes": f"{messages * size}B", "message": f"{size}B"
        },
        "depth": 1,
        "faults": [lossy | {"only": "data"}],
        "seeds": [seed],
        "deadline": "3600s",
    }  # fmt: skip
    return spec.of(Source(None, case, {}, {}))


def save(cells: Sequence[Cell], path: Path) -> None:
    """Write the cells as a Parquet table, the model's figures beside the simulation's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {**dataclasses.asdict(each), "over_model": each.over_model, "agrees": each.agrees}
        for each in cells
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def fastest(cells: Sequence[Cell]) -> dict[tuple[float, int, float], tuple[str, str]]:
    """By distance, size and loss: the fastest scheme of the simulation, and of the model."""
    of: dict[tuple[float, int, float], list[Cell]] = {}
    for each in cells:
        if each.scheme != "auto":
            of.setdefault((each.distance_km, each.message_bytes, each.chunk_loss), []).append(each)
    return {
        where: (
            min(found, key=lambda cell: cell.mean_ns).scheme,
            min(found, key=lambda cell: cell.model_ns).scheme,
        )
        for where, found in of.items()
    }


def table(cells: Sequence[Cell]) -> list[str]:
    """Lines of Markdown: the time of each scheme, and in brackets that over the model's."""
    schemes = list(dict.fromkeys(each.scheme for each in cells))
    first = fastest(cells)
    lines = [
        f"| distance | message | chunk loss | {' | '.join(schemes)} | fastest | the model's |",
        "|---|---|---|" + "---:|" * len(schemes) + "---|---|",
    ]
    for where, (simulated, modelled) in first.items():
        km, size, loss = where
        here = {
            c.scheme: c for c in cells if (c.distance_km, c.message_bytes, c.chunk_loss) == where
        }
        shown = (
            f"{here[name].mean_ns / 1e6:.3f} ({here[name].over_model:.3f})" for name in schemes
        )
        lines.append(
            f"| {km:g} km | {units.format_bytes(size)} | {loss:g} | {' | '.join(shown)} "
            f"| {simulated} | {modelled} |"
        )
    return lines


def summary(cells: Sequence[Cell]) -> list[str]:
    """How often simulation and model agree, and how far `auto` is from the best fixed scheme."""
    lines = []
    for scheme in dict.fromkeys(each.scheme for each in cells):
        mine = [each for each in cells if each.scheme == scheme]
        near = sum(abs(each.over_model - 1) <= 0.05 for each in mine)
        agree = sum(each.agrees for each in mine)
        lines.append(
            f"{scheme}: {near} of {len(mine)} cells within 5 % of the model's mean, "
            f"{agree} within that or three standard errors"
        )
    best: dict[tuple[float, int, float], float] = {}
    for each in cells:
        where = each.distance_km, each.message_bytes, each.chunk_loss
        if each.scheme != "auto":
            best[where] = min(best.get(where, math.inf), each.mean_ns)
    auto = [
        each.mean_ns / best[each.distance_km, each.message_bytes, each.chunk_loss]
        for each in cells
        if each.scheme == "auto"
    ]
    if auto and best:
        lines.append(
            f"auto over the best fixed scheme: at most {max(auto):.3f}, "
            f"{sum(each <= 1.05 for each in auto)} of {len(auto)} cells within 5 %"
        )
    return lines
