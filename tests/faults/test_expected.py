# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates and runs that are promised are those of each model's chain, and of the decision code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native
from softroce_lab.faults import expected
from softroce_lab.faults.layout import link_rules, rule_hits
from softroce_lab.plan.effects import (
    CERTAIN,
    Blackout,
    Burst,
    Corrupt,
    Delay,
    Down,
    Drop,
    Duplicate,
    Effect,
    Fault,
    Gemodel,
    NamedDrop,
    Periodic,
    Queue,
    RandomLoss,
    Reorder,
)
from tests.xdp.chains import Model

PERCENT = 2**64 // 100
PACKETS = 1_000_000

MODELS: list[Effect] = [
    RandomLoss(5 * PERCENT),
    Corrupt(5 * PERCENT),
    Duplicate(30 * PERCENT),
    Gemodel(2 * PERCENT, 25 * PERCENT, CERTAIN, 0),
    Gemodel(2 * PERCENT, 25 * PERCENT, 70 * PERCENT, PERCENT),
    Gemodel(5 * PERCENT, 90 * PERCENT, CERTAIN, 20 * PERCENT),
    Burst(PERCENT, 7),
    Burst(30 * PERCENT, 3),
    Reorder(20 * PERCENT, 0, 0),
    Reorder(20 * PERCENT, 5, 0),
]


@pytest.mark.parametrize("effect", [*MODELS, Periodic(10, 3, 4)], ids=repr)
def test_what_is_promised_is_what_happens(effect: Effect):
    """To within some percent: tests/xdp/test_statistics.py is as strict as it can be."""
    link = _native.LinkFaults(link_rules([Fault("r", 0, 0, "index", 1234, effect)]).value)
    link.run(PACKETS)
    (hits,) = rule_hits(link.state, [0])
    assert hits.seen == PACKETS
    assert hits.rate == pytest.approx(expected.rate(effect), rel=0.04)
    assert hits.mean_run == pytest.approx(expected.mean_run(effect), rel=0.04)


@pytest.mark.parametrize("effect", MODELS, ids=repr)
def test_closed_forms_are_those_of_the_chain(effect: Effect):
    model = Model(effect)
    hits, runs = model.share("hits"), model.share("runs")
    assert expected.rate(effect) == pytest.approx(hits, rel=1e-9)
    assert expected.mean_run(effect) == pytest.approx(hits / runs, rel=1e-9)


thresholds = st.integers(2**50, CERTAIN - 2**50)


@given(thresholds, thresholds, thresholds, thresholds)
def test_closed_forms_of_any_gemodel(p: int, r: int, bad: int, good: int):
    effect = Gemodel(p, r, bad, good)
    model = Model(effect)
    hits, runs = model.share("hits"), model.share("runs")
    assert expected.rate(effect) == pytest.approx(hits, rel=1e-6)
    assert expected.mean_run(effect) == pytest.approx(hits / runs, rel=1e-6)


@pytest.mark.parametrize("effect", [Down(), Blackout(), Drop()])
def test_what_takes_all(effect: Effect):
    assert expected.rate(effect) == 1.0
    assert expected.mean_run(effect) is None  # nothing ends the run


@pytest.mark.parametrize(
    "effect",
    [
        NamedDrop(1, 2, None, None, False, ()),
        Delay(1000, 0, "uniform", True),
        Queue(10**9, None, None, None, None, False),
    ],
)
def test_what_chooses_no_packets(effect: Effect):
    assert expected.rate(effect) is None
    assert expected.mean_run(effect) is None


@pytest.mark.parametrize(
    ("effect", "rate"),
    [
        (RandomLoss(CERTAIN), 1.0),
        (RandomLoss(0), 0.0),
        (Gemodel(0, 0, CERTAIN, 0), 0.0),  # it never leaves the good state
        (Periodic(3, 3, 0), 1.0),
    ],
)
def test_the_ends_of_rates(effect: Effect, rate: float):
    assert expected.rate(effect) == rate
    assert expected.mean_run(effect) is None
