# SPDX-License-Identifier: GPL-2.0-or-later
"""Distributions of completion times."""

import numpy as np
import pytest

from softroce_lab.transports.model.selective_repeat import Completion

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
