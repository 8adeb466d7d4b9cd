# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic: flows arrive at their times, whether those before them are over or not.

Each host's flows are a Poisson process with sizes of a distribution, as in HPCC's traffic
generator, and are drawn from the host's own streams. A sample of few large flows is far from its
mean, so a host's process is drawn anew until the bytes of all hosts up to this one are within half
a percent of what they are to be, those behind the warm-up and all together. What hosts draw depends
on no later host.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import UINT8, Message
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.sizes import Sizes
from softroce_lab.workloads.streams import exponentials, jumps, words
from softroce_lab.workloads.work import Copying

FLOW = np.dtype([("at_ns", "i8"), ("source", "u4"), ("destination", "u4"), ("bytes", "i8")])
"""A flow: when it arrives, from which rank to which, and its size."""

TOLERANCE = Fraction(1, 100)  # of the load that was drawn
WARM_UP = Fraction(1, 5)  # of the duration: flows that arrive before it is over have no figures

_CLOSE = 0.005
_CLOSEST = (1.0, 1.0)  # all bytes, and those with figures: within the tolerance
_TRIES = 1024
_MOST_TRIED = 64  # at once

_Process = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""When something arrives, ascending, and its bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class IncastMix:
    """Events in which `degree` hosts send `size_bytes` each to one host at the same moment."""

    degree: int
    share: Fraction  # of all bytes
    size_bytes: int


class _Bytes(NamedTuple):
    """Of flows: all of them, and those that arrive behind the warm-up, which have figures."""

    all: float
    warm: float


class _Drawn(NamedTuple):
    """What a workload has drawn."""

    flows: npt.NDArray[np.void]
    incast_bytes: int  # of them, those of incasts


@dataclasses.dataclass(frozen=True)
class OpenLoop(Copying):
    """Flows of one message each. `rates_bps` are of the ranks' links, and load is payload."""

    ranks: tuple[int, ...]
    rates_bps: tuple[int, ...]
    load: Fraction
    duration_ns: int
    sizes: Sizes
    incast: IncastMix | None = None
    seed: int = 0
    dtype: np.dtype[np.generic] = UINT8

    name: ClassVar = "open-loop"

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if len(set(self.ranks)) < max(2, len(self.ranks)):
            raise ValueError("a workload has two hosts at least, and each once")
        if len(self.rates_bps) != len(self.ranks) or min(self.rates_bps) < 1:
            raise ValueError("each host's link has a rate")
        if not 0 < self.load <= 1 or self.duration_ns < 1:
            raise ValueError("a load is above 0 and at most 100 %, of a time above 0")
        if self.incast and not 1 <= self.incast.degree < self.hosts:
            raise ValueError("an incast has 1 sender at least, and all others at most")
        if self.incast and not (0 < self.incast.share < 1 and self.incast.size_bytes > 0):
            raise ValueError("an incast has a share between 0 and 100 %, and bytes")

    # ---------------------------------------------------------------- who sends what when

    @property
    def flows(self) -> npt.NDArray[np.void]:
        """All flows, of dtype `FLOW`, in the order in which they arrive.

        ValueError if the load that was drawn is not within `TOLERANCE`: the duration is too short.
        """
        return self._drawn.flows

    @functools.cached_property
    def _drawn(self) -> _Drawn:
        incast_bytes = 0
        if self.incast:
            single, incasts = self._single_flows(1 - self.incast.share), self._incasts(self.incast)
            incast_bytes = int(incasts["bytes"].sum())
            flows = np.concatenate([single, incasts])
        else:
            flows = self._single_flows(Fraction(1))
        off = float(self._offered(flows) / self.load) - 1
        if abs(off) > TOLERANCE:
            raise ValueError(f"the flows drawn have {100 * off:+.3g} % of the load asked for")
        order = np.lexsort((flows["destination"], flows["source"], flows["at_ns"]))
        return _Drawn(flows[order], incast_bytes)

    @property
    def offered_load(self) -> Fraction:
        """The load that was drawn: bytes of the flows over what the hosts' links carry."""
        return self._offered(self.flows)

    @property
    def measured_load(self) -> Fraction:
        """The same of the flows that have figures, in the time in which they arrive.

        It is offered, not carried: it was drawn before the run.
        """
        return self._offered(self.flows[self.warm]) / (1 - WARM_UP)

    @property
    def incast_share(self) -> Fraction:
        """Of all bytes that were drawn, those of incasts."""
        return Fraction(self._drawn.incast_bytes, int(self.flows["bytes"].sum()))

    def _offered(self, flows: npt.NDArray[np.void]) -> Fraction:
        capacity = Fraction(sum(self.rates_bps) * self.duration_ns, 8 * 10**9)
        return int(flows["bytes"].sum()) / capacity

    @functools.cached_property
    def warm(self) -> npt.NDArray[np.bool_]:
        """Which flows have figures: those that arrive after the warm-up."""
        late: npt.NDArray[np.bool_] = self.flows["at_ns"] >= self._warm_ns
        return late

    @property
    def _warm_ns(self) -> int:
        """When the warm-up is over."""
        return math.ceil(WARM_UP * self.duration_ns)

    def _single_flows(self, share: Fraction) -> npt.NDArray[np.void]:
        found = []
        for rank, (at_ns, sizes) in enumerate(self._processes("flows", share, self.sizes)):
            flows = np.zeros(len(at_ns), dtype=FLOW)
            flows["at_ns"], flows["source"], flows["bytes"] = at_ns, rank, sizes
            drawn = words(self._key("destinations", rank), 0, len(at_ns))
            flows["destination"] = _other(rank, jumps(drawn, self.hosts - 1))
            found.append(flows)
        return np.concatenate(found)

    def _incasts(self, incast: IncastMix) -> npt.NDArray[np.void]:
        event = Sizes.of_list([incast.degree * incast.size_bytes])
        found = [np.zeros(0, dtype=FLOW)]
        for rank, (at_ns, _) in enumerate(self._processes("incasts", incast.share, event)):
            events = words(self._key("senders", rank), 0, len(at_ns)).tolist()
            for time_ns, number in zip(at_ns.tolist(), events, strict=True):
                drawn = words(number, 0, self.hosts - 1)  # one for each other host: the least send
                senders = _other(rank, np.argsort(drawn, kind="stable")[: incast.degree])
                flows = np.zeros(incast.degree, dtype=FLOW)
                flows["at_ns"], flows["source"], flows["destination"] = time_ns, senders, rank
                flows["bytes"] = incast.size_bytes
                found.append(flows)
        return np.concatenate(found)

    # ---------------------------------------------------------------- Poisson processes

    def _processes(self, what: str, share: Fraction, sizes: Sizes) -> Iterator[_Process]:
        """A process for each rank, with this share of the load."""
        due, drawn = 0.0, _Bytes(0.0, 0.0)
        for rank, rate_bps in enumerate(self.rates_bps):
            budget = float(self.load * share * rate_bps * self.duration_ns / (8 * 10**9))
            due += budget
            warm = due * (1 - self._warm_ns / self.duration_ns)
            wanted = _Bytes(due - drawn.all, warm - drawn.warm)
            process = self._process(what, rank, sizes, budget, wanted, _CLOSE * due)
            late = process[1][process[0] >= self._warm_ns]
            drawn = _Bytes(drawn.all + float(process[1].sum()), drawn.warm + float(late.sum()))
            yield process

    def _process(
        self, what: str, rank: int, sizes: Sizes, budget: float, wanted: _Bytes, tolerance: float
    ) -> _Process:
        """The first one whose bytes are so close to those wanted, all and those with figures.

        If no try is that, the one closest to those with figures, of those close to all; if none of
        them is close to all, the closest. `budget` are the bytes of the mean process.
        """
        count = budget / float(sizes.mean_bytes)
        block = math.ceil(count + 10 * math.sqrt(count) + 20)  # of more there is no chance
        closest, best = (math.inf, math.inf), (np.zeros(0, dtype=np.int64),) * 2
        for first, tries in _batches(block):
            drawn = [
                words(self._key(what, part, rank), first * block, tries * block)
                for part in ("gaps", "sizes")
            ]
            gaps = exponentials(drawn[0]).reshape(tries, block)
            at_ns = np.cumsum(gaps * (self.duration_ns / count), axis=1).astype(np.int64)
            inside = at_ns < self.duration_ns
            lengths = sizes.drawn(drawn[1]).reshape(tries, block)
            warm = inside & (at_ns >= self._warm_ns)
            found, off = _closest(
                np.abs((lengths * inside).sum(axis=1) - wanted.all) / tolerance,
                np.abs((lengths * warm).sum(axis=1) - wanted.warm) / tolerance,
            )
            if off < closest:
                closest = off
                best = at_ns[found][inside[found]], lengths[found][inside[found]]
            if closest == _CLOSEST:
                break
        return best

    def _key(self, *what: str | int) -> int:
        """Of a stream of a host, which comes last: its rank stands for it."""
        *kind, rank = what
        return stream_key(self.seed, self.name, *kind, self.ranks[int(rank)])

    # ---------------------------------------------------------------- the workload

    @property
    def message_count(self) -> int:
        return len(self.flows)

    @property
    def longest_message_bytes(self) -> int:
        return int(self.flows["bytes"].max())

    @functools.cached_property
    def areas(self) -> Mapping[int, tuple[int, int]]:
        """Each in the order of arrival."""
        both = zip(self._sent.tolist(), self._totals("destination").tolist(), strict=True)
        return dict(zip(self.ranks, both, strict=True))

    @functools.cached_property
    def _sent(self) -> npt.NDArray[np.int64]:
        """By rank."""
        return self._totals("source")

    def _totals(self, end: str) -> npt.NDArray[np.int64]:
        """Bytes that ranks are this end of."""
        totals = np.zeros(self.hosts, dtype=np.int64)
        np.add.at(totals, self.flows[end], self.flows["bytes"])
        return totals

    @functools.cached_property
    def _messages(self) -> list[Message]:
        """In the order of the flows."""
        sources, destinations = [0] * self.hosts, self._sent.tolist()
        numbers: dict[tuple[int, int], int] = {}
        found = []
        for _, source, destination, length in self.flows.tolist():
            number = numbers[source, destination] = numbers.get((source, destination), -1) + 1
            found.append(
                Message(
                    (0, 0, number),
                    self.ranks[source],
                    self.ranks[destination],
                    length,
                    sources[source],
                    destinations[destination],
                )
            )
            sources[source] += length
            destinations[destination] += length
        return found

    def messages(self) -> Iterator[Message]:
        return iter(self._messages)

    def schedule(self) -> Schedule:
        """Each message at its time."""
        schedule = Schedule(self.ranks)
        for message, at_ns in zip(self._messages, self.flows["at_ns"].tolist(), strict=True):
            schedule.transfer(message, at_ns=at_ns)
        return schedule


def _closest(
    all_: npt.NDArray[np.float64], warm: npt.NDArray[np.float64]
) -> tuple[int, tuple[float, float]]:
    """The best of some tries, and how far it is off.

    `all_` and `warm`: how far the bytes of each are off, in tolerances. What is close enough to
    all is 1 off, and so is what is close enough to those with figures.
    """
    off = np.maximum(all_, 1)
    found = int(np.lexsort((np.maximum(warm, 1), off))[0])  # the first one of equals
    return found, (float(off[found]), float(max(warm[found], 1)))


def _other(rank: int, among: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ranks, by their places among all but this one."""
    others: npt.NDArray[np.int64] = among + (among >= rank)
    return others


def _batches(block: int) -> Iterator[tuple[int, int]]:
    """(the first try, how many at once): few, then more, of blocks of so many numbers."""
    first, tries = 0, 1
    while first < _TRIES:
        yield first, min(tries, _TRIES - first)
        first += tries
        tries = max(1, min(4 * tries, _MOST_TRIED, (1 << 20) // block))
