# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of the crossover map, simulated: two hosts, a long haul, one message after the other.

Each cell is a size of messages, a loss of chunks and a distance; each scheme is a transport of the
virtual clock. A message's time is that of the paper's T: until the sender could know, half a round
trip after its last byte arrived. The acknowledgement itself waits for others (docs/protocols.md),
which the model does not have.

A round is one seed over the whole grid. Rounds are added up, so that a map that took long goes on
where it was interrupted, and becomes more precise with each round.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from softroce_lab import units
from softroce_lab.erasure.code import Scheme
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.model import partial_repeat, sdr, selective_repeat
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

TAIL = 0.999
NEAR = 0.01
"""Of a time: what a queue or a timer may move it by, when it is compared with a quantile."""

_LATER_RTT = 0.5  # a message that is later than decoded by so much fell back


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The grid, and how much of it a round simulates."""

    distances_km: Sequence[float] = (75, 750, 3750, 6000)
    sizes: Sequence[int] = (128 << 10, 8 << 20, 128 << 20)
    losses: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)  # of chunks
    schemes: Sequence[str] = tuple(SCHEMES)
    bytes_a_cell: int = 512 << 20
    least_messages: int = 2
    most_messages: int = 100
    rounds: int = 1

    def messages(self, size: int) -> int:
        """Of a cell in a round."""
        return max(min(self.bytes_a_cell // size, self.most_messages), self.least_messages)


SHORT = Options()
FULL = Options(
    distances_km=(3750, 75, 6000, 750),  # the paper's own first, should it take too long
    sizes=(128 << 10, 1 << 20, 8 << 20, 128 << 20, 1 << 30),
    losses=(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1),
    least_messages=16,  # `auto` has to measure the loss first, by two of them
    most_messages=500,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A point of the grid, and a scheme."""

    distance_km: float
    message_bytes: int
    chunk_loss: float
    scheme: str

    @property
    def name(self) -> str:
        """In errors."""
        return f"{self.scheme} over {self.distance_km:g} km"


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What one seed gave in a cell. Times in ns."""

    place: Place
    seed: int
    messages: int
    sum_ns: float
    squares_ns2: float  # sum of them
    most_ns: float
    beyond_tail: int  # messages later than the model's p99.9, by more than `NEAR`
    from_tail: int  # messages no earlier than that, by less than `NEAR`
    fell_back: int  # messages with parity that it was not enough for
    retransmitted: int  # packets
    parity: int | None = None  # packets of it that were sent; None: a state that was written before


Say = Callable[[str], None]


def run(options: Options, say: Say, state: Path | None = None) -> list[Sample]:
    """All cells, round by round, in the order of distance, size, loss and scheme.

    With a `state` file those that it has are taken from it, and others are appended when they are
    done. UserError for a file that is none.
    """
    done = read(state) if state is not None and state.exists() else []
    known = {(each.place, each.seed): each for each in done}
    found: list[Sample] = []
    for seed, (distance_km, size, loss) in itertools.product(
        range(1, options.rounds + 1), _points(options)
    ):
        shown = []
        for scheme in options.schemes:
            place = Place(distance_km, size, loss, scheme)
            sample = known.get((place, seed))
            if sample is None:
                sample = simulate(place, options.messages(size), seed)
                if state is not None:
                    append(sample, state)
            found.append(sample)
            over = sample.sum_ns / sample.messages / predicted(place).mean_ns
            shown.append(f"{scheme} {over:.3f}")
        say(
            f"round {seed}: {distance_km:g} km, {units.format_bytes(size)}, {loss:g}, over the "
            f"model: {', '.join(shown)}"
        )
    return found


def _points(options: Options) -> Iterator[tuple[float, int, float]]:
    return itertools.product(options.distances_km, options.sizes, options.losses)


# ---------------------------------------------------------------- the models


def data_packets(message_bytes: int) -> int:
    """Of a message, without parity."""
    return -(-message_bytes // (PATH_MTU - HEADER_BYTES))


def scenario(place: Place, *, kept_packets: int = CHUNK_PACKETS) -> sdr.Scenario:
    """Of chunks as the simulated packets carry them."""
    chunk = CHUNK_PACKETS * (PATH_MTU - HEADER_BYTES)
    return sdr.Scenario(
        message_bytes=place.message_bytes,
        loss=place.chunk_loss,
        rtt_ns=sdr.rtt_of_ns(place.distance_km),
        # A chunk takes as long as its packets with all their headers.
        bandwidth_bps=RATE_BPS * (PATH_MTU - HEADER_BYTES) / FRAME_BYTES,
        chunk_bytes=min(chunk, place.message_bytes),
        kept_packets=kept_packets,
    )


@functools.lru_cache(maxsize=64)
def predicted(place: Place) -> Completion:
    """By the model of what was built [D]; of `auto` that of the scheme with the least mean.

    Packets of a chunk are kept when others of it are lost, and after a fallback only missing
    chunks are repeated. The paper's model has neither.
    """
    if place.scheme == "auto":
        others = [dataclasses.replace(place, scheme=name) for name in SCHEMES if name != "auto"]
        return min((predicted(each) for each in others), key=lambda each: each.mean_ns)
    of = scenario(place)
    if place.scheme in ("mds", "xor"):
        return partial_repeat.completion(of, cast("Scheme", place.scheme))
    return selective_repeat.completion(
        of.chunks,
        sdr.packet_loss(of.loss, CHUNK_PACKETS),
        of.inject_ns,
        of.rtt_ns * (1 + (of.alpha if place.scheme == "sr_rto" else 0)),
        of.rtt_ns,
        packets=data_packets(place.message_bytes) / of.chunks,  # the last chunk has fewer
    )


@functools.lru_cache(maxsize=64)
def published(place: Place) -> Completion:
    """By the paper's model [S]."""
    model = sdr.predict(scenario(place, kept_packets=1))
    return model.get(place.scheme) or min(model.values(), key=lambda each: each.mean_ns)


# ---------------------------------------------------------------- the simulation


def simulate(place: Place, messages: int, seed: int) -> Sample:
    """One scheme in one cell. RunError if a message fails."""
    done = completed(experiment(place, messages, seed), place.name)
    rtt_ns = sdr.rtt_of_ns(place.distance_km)
    took: npt.NDArray[np.float64] = (
        done.messages["received_ns"] - done.messages["posted_ns"] + rtt_ns / 2
    )
    tail_ns = predicted(place).quantile_ns(TAIL)
    of = scenario(place)
    decoded_ns = (of.chunks + of.parity) * of.inject_ns + rtt_ns
    coded = place.scheme in ("mds", "xor")
    return Sample(
        place,
        seed,
        messages,
        float(took.sum()),
        float((took**2).sum()),
        float(took.max()),
        int((took > tail_ns * (1 + NEAR)).sum()),
        int((took >= tail_ns * (1 - NEAR)).sum()),
        int((took > decoded_ns + _LATER_RTT * rtt_ns).sum()) if coded else 0,
        int(done.messages["retransmitted"].sum()),
        done.count(["tx_parity"]),
    )


def completed(case: spec.Experiment, name: str) -> WorkloadRun:
    """Its first transport and seed, run. RunError that begins with `name` if a message fails."""
    done = VirtualRun(case, case.transports[0], case.seeds[0], lambda _: None).go()
    if done.verdict != "passed":
        raise RunError(f"{name}: {done.reasons[0]}")
    return done


def experiment(place: Place, messages: int, seed: int) -> spec.Experiment:
    """A message after the other over a long haul that loses chunks at random."""
    loss = random_loss(sdr.packet_loss(place.chunk_loss, CHUNK_PACKETS))
    return one_by_one(place, messages, seed, [{"name": "loss", "loss": loss}])


def one_by_one(
    place: Place, messages: int, seed: int, losses: Sequence[dict[str, str]]
) -> spec.Experiment:
    """A message after the other; `losses` are rules for data on the way there."""
    size = place.message_bytes
    case = long_haul(place.distance_km, SCHEMES[place.scheme], seed) | {
        "workload": {
            "kind": "point-to-point", "bytes": f"{messages * size}B", "message": f"{size}B"
        },
        "faults": [each | {"links": "s1->s2", "only": "data"} for each in losses],
    }  # fmt: skip
    return spec.of(Source(None, case, {}, {}))


def random_loss(packet_loss: float) -> str:
    """As a rule has it."""
    return f"random {packet_loss:.12%}"


def long_haul(distance_km: float, transport: dict[str, Any], seed: int) -> dict[str, Any]:
    """Two hosts with a distance between them, and a transport; without workload and faults."""
    one_way_ns = round(sdr.rtt_of_ns(distance_km) / 2) - 2
    return {
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
        "transports": [{"framing": "ud", **transport}],
        "depth": 1,
        "seeds": [seed],
        "deadline": "3600s",
    }


# ---------------------------------------------------------------- the state of a long map


def append(sample: Sample, state: Path) -> None:
    """Add a line of JSON to the file."""
    with state.open("a") as file:
        print(json.dumps(dataclasses.asdict(sample)), file=file)


def read(state: Path) -> list[Sample]:
    """The samples of a file; a last line that was cut is taken out of it. UserError."""
    found: list[Sample] = []
    text = state.read_text()
    whole = text[: text.rfind("\n") + 1]
    for number, line in enumerate((whole or text).splitlines(), 1):
        try:
            fields = json.loads(line)
            found.append(Sample(**fields | {"place": Place(**fields["place"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{state}:{number}: no cell of a crossover map",
                hint="a file that --state wrote, or one that does not exist yet",
            ) from error
    if len(whole) < len(text):  # the process was ended while it wrote
        state.write_text(whole)
    return found
