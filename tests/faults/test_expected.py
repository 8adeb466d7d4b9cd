# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates and runs that are promised are those of each model's chain, and of the decision code."""

from __future__ import annotations

import pytest

from softroce_lab.faults import expected
from softroce_lab.plan.effects import (
    CERTAIN,
    Burst,
    Corrupt,
    Duplicate,
    Effect,
    Gemodel,
    Periodic,
    RandomLoss,
    Reorder,
)
from tests.xdp.chains import Model

PERCENT = 2**64 // 100

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


@pytest.mark.parametrize("effect", MODELS, ids=repr)
def test_closed_forms_are_those_of_the_chain(effect: Effect):
    model = Model(effect)
    hits, runs = model.share("hits"), model.share("runs")
    assert expected.rate(effect) == pytest.approx(hits, rel=1e-9)
    assert expected.mean_run(effect) == pytest.approx(hits / runs, rel=1e-9)


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
