# SPDX-License-Identifier: GPL-2.0-or-later
"""Distributions of completion times."""

import numpy as np
import pytest

from softroce_lab.transports.model.completion import Completion

DICE = Completion(np.array([6.0, 2, 3, 4, 5, 1]), np.full(6, 1 / 6))


def test_mean_quantiles_and_tail_of_a_die():
    assert DICE.mean_ns == pytest.approx(3.5)
    assert DICE.least_ns == 1
    assert [DICE.quantile_ns(share) for share in (0.1, 1 / 6, 0.17, 0.5, 0.51, 0.999)] == [
        1, 1, 2, 3, 4, 6,
    ]  # fmt: skip
    assert DICE.exceeds(4) == pytest.approx(1 / 3)
    assert DICE.exceeds(6) == 0
    assert DICE.exceeds(0) == pytest.approx(1)


def test_a_tail_keeps_its_digits():
    rare = Completion(np.array([1.0, 2, 3]), np.array([1.0, 1e-9, 1e-18]))
    assert rare.exceeds(2) == pytest.approx(1e-18, rel=1e-12)
    assert rare.quantile_ns(1 - 1e-10) == 2


def test_the_slowest_of_some():
    pair = DICE.slowest_of(2)
    assert pair.mean_ns == pytest.approx(161 / 36)
    assert pair.exceeds(5) == pytest.approx(11 / 36)
    assert DICE.slowest_of(1).mean_ns == pytest.approx(3.5)
    assert Completion.certain(7).slowest_of(9).mean_ns == 7


def test_a_mixture():
    both = Completion.mixture([(0.25, Completion.certain(10)), (0.75, DICE), (0, DICE)])
    assert both.mean_ns == pytest.approx(0.25 * 10 + 0.75 * 3.5)
    assert both.exceeds(6) == pytest.approx(0.25)
    assert both.later_by(3).mean_ns == pytest.approx(both.mean_ns + 3)


def test_draws_have_the_distribution():
    drawn = DICE.draw(np.random.default_rng(1), (60_000,))
    counts = np.bincount(drawn.astype(int), minlength=7)[1:]
    assert abs(counts - 10_000).max() < 5 * (60_000 * 5 / 36) ** 0.5
