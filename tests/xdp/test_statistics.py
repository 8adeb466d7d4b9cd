# SPDX-License-Identifier: GPL-2.0-or-later
"""Each model of a fault does what its words say: how many packets it hits, and in runs how long.

The decision code itself runs, in its user-space build. A cell is a model at an average rate; it has
20 streams of fixed seeds, and each of them, and all 20 together, must lie within the bounds of the
model's own chain. All bounds together fail a true model with a probability of at most 0.1 %
(Bonferroni). They are worth as much as they would refuse, so each cell also runs a model whose
rate is off by 2.5 times its bounds, and that one must fail.

In full 2 * 10^9 packets pass at a rate of 10^-6. That is 2000 hits: the bounds lie a third off the
rate where losses come in runs of four, and an eighth off where they come alone. At 10^-4 that is
8 % and 3 %, at 10^-2 and above less than 2 %. More packets narrow it with their square root only.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.faults import expected
from softroce_lab.faults.layout import link_rules
from softroce_lab.plan.effects import (
    CERTAIN,
    Burst,
    Corrupt,
    Duplicate,
    Effect,
    Fault,
    FaultKey,
    Gemodel,
    Periodic,
    RandomLoss,
    Reorder,
    stream_key,
)
from tests.xdp.chains import Counts, Model, bounds
from tests.xdp.packets import packet as native_packet

SEEDS = 20
CONFIDENCE = 0.999  # of all cells together
RATES = (1e-6, 1e-4, 1e-2, 0.3)
OFF = 2.5  # half widths of the bounds


@dataclasses.dataclass(frozen=True)
class Size:
    packets: int  # of each stream
    within: float  # the share of the true rate that all streams together lie in, at most


SHORT = {
    1e-6: Size(1_000_000, 12.0),
    1e-4: Size(300_000, 0.8),
    1e-2: Size(100_000, 0.12),
    0.3: Size(100_000, 0.02),
}
FULL = {
    1e-6: Size(100_000_000, 0.40),
    1e-4: Size(20_000_000, 0.08),
    1e-2: Size(5_000_000, 0.02),
    0.3: Size(2_000_000, 0.005),
}


def threshold(q: float) -> int:
    return round(q * 2**64)


# --- Models of a given average rate, in closed form ------------------------------------------

BAD_TO_GOOD = 0.25
LOSS_BAD, LOSS_GOOD = 0.7, 0.25  # the second in shares of the average rate
BURST, GAP = 5, 2


def simple_gilbert(rate: float, r: float = BAD_TO_GOOD) -> Effect:
    return Gemodel(threshold(r * rate / (1 - rate)), threshold(r), CERTAIN, 0)


def gilbert_elliott(rate: float) -> Effect:
    in_good = LOSS_GOOD * rate
    bad = (rate - in_good) / (LOSS_BAD - in_good)
    p = BAD_TO_GOOD * bad / (1 - bad)
    thresholds = (threshold(x) for x in (p, BAD_TO_GOOD, LOSS_BAD, in_good))
    return Gemodel(*thresholds)


def burst(rate: float, length: int = BURST) -> Effect:
    return Burst(threshold(rate / (length - rate * (length - 1))), length)


def spaced(rate: float) -> Effect:
    return Reorder(threshold(rate / (1 - rate * (GAP - 1))), GAP, 0)


MODELS: dict[str, tuple[Callable[[float], Effect], FaultKey]] = {
    "random by identity": (lambda rate: RandomLoss(threshold(rate)), "identity"),
    "random by index": (lambda rate: RandomLoss(threshold(rate)), "index"),
    "gemodel p r": (simple_gilbert, "index"),
    "gemodel p r 1-h 1-k": (gilbert_elliott, "index"),
    "burst": (burst, "index"),
    "corrupt": (lambda rate: Corrupt(threshold(rate)), "identity"),
    "duplicate": (lambda rate: Duplicate(threshold(rate)), "identity"),
    "reorder": (lambda rate: Reorder(threshold(rate), 0, 0), "identity"),
    "reorder with a gap": (spaced, "index"),
}

FIGURES = ("rate", "mean run", "share of runs of one")
SUMS = len(MODELS) * len(RATES) * (SEEDS + 1) * len(FIGURES)
ALPHA = (1 - CONFIDENCE) / SUMS / 2  # of one end of one interval

FIRST = native_packet(src=0x0A000001, dst=0x0A000002, kind=0)


@functools.cache
def weights(effect: Effect) -> dict[str, tuple[float, ...]]:
    """What is summed for each figure: of a quotient its numerator less so many denominators."""
    model = Model(effect)
    hits, runs, lone = (model.share(name) for name in ("hits", "runs", "lone"))
    quotients = ((1.0, 0.0, 0.0), (1.0, -hits / runs, 0.0), (0.0, -lone / runs, 1.0))
    return dict(zip(FIGURES, quotients, strict=True))


@functools.cache
def allowed(effect: Effect, packets: int, streams: int) -> dict[str, tuple[float, float]]:
    model = Model(effect)
    return {
        name: bounds(model, each, packets, streams, ALPHA) for name, each in weights(effect).items()
    }


def outside(effect: Effect, counts: Counts, streams: int) -> list[str]:
    """The figures that a true model would not show."""
    found = (counts.hits, counts.runs, counts.lone)
    sums = {name: float(np.dot(each, found)) for name, each in weights(effect).items()}
    ends = allowed(effect, counts.packets // streams, streams)
    return [
        f"{name}: {sums[name]:g} not in [{low:g}, {high:g}]"
        for name, (low, high) in ends.items()
        if not low <= sums[name] <= high
    ]


def half_width(effect: Effect, packets: int) -> float:
    """How far above the true rate all streams together may come, as a share of it."""
    true = SEEDS * packets * Model(effect).share("hits")
    return allowed(effect, packets, SEEDS)["rate"][1] / true - 1


def watched(effect: Effect, key: FaultKey, packets: int, seed: int) -> Counts:
    """What the decision code makes of one stream."""
    stream = stream_key(seed, f"statistics:{effect.kind}", "a:p1", "b:p2")
    link = _native.LinkFaults(link_rules([Fault("r", 0, 0, key, stream, effect)]).value)
    return Counts.of(packets, link.run(packets, FIRST))


def all_streams(effect: Effect, key: FaultKey, packets: int, threads: int) -> list[Counts]:
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda seed: watched(effect, key, packets, seed), range(SEEDS)))


def total(counts: list[Counts]) -> Counts:
    return functools.reduce(Counts.__add__, counts)


@pytest.mark.full("statistics")
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", MODELS)
def test_rates_and_runs_are_those_of_the_model(full: bool, name: str, rate: float):
    """Every model of a fault at rates from 10^-6 to 0.3: rate and lengths of runs, 20 seeds."""
    make, key = MODELS[name]
    size, threads = (FULL[rate], os.cpu_count() or 1) if full else (SHORT[rate], 1)
    effect = make(rate)
    assert expected.rate(effect) == pytest.approx(rate, rel=1e-9)

    streams = all_streams(effect, key, size.packets, threads)
    failures = {seed: outside(effect, counts, 1) for seed, counts in enumerate(streams)}
    assert {seed: found for seed, found in failures.items() if found} == {}
    together = total(streams)
    assert outside(effect, together, SEEDS) == []

    width = half_width(effect, size.packets)
    print(f"{together.hits / together.packets:.6g}, to within {100 * width:.2g} %")
    assert width < size.within
    off = make(rate * (1 + OFF * width))
    wrong = total(all_streams(off, key, size.packets, threads))
    assert outside(effect, wrong, SEEDS) != []


@pytest.mark.parametrize("rate", RATES)
def test_periodic_hits_what_it_says(rate: float):
    """It draws nothing, so its rate is exact, and so are its runs."""
    length = 3
    every = round(length / rate)
    effect = Periodic(every, length, 2)
    counts = watched(effect, "index", 20 * every, seed=0)
    assert (counts.hits, counts.runs, counts.lone) == (20 * length, 20, 0)
    assert expected.rate(effect) == pytest.approx(rate, rel=1e-6)
