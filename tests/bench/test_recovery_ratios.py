# SPDX-License-Identifier: GPL-2.0-or-later
"""The statistics of `lab bench recovery`, against answers that are known otherwise."""

import math

import numpy as np
import pytest

from softroce_lab.bench.recovery import ratios
from softroce_lab.bench.recovery.ratios import Resampled
from softroce_lab.experiment.figure_table import quantile
from softroce_lab.statistics import holm


def runs_of(sizes, seed=1):
    chance = np.random.default_rng(seed)
    return [chance.integers(10_000, 90_000, size) for size in sizes]


def pooled(times, per_mille, drawn):
    return ratios.percentile([ratios.tail(each) for each in times],
                             [len(each) for each in times], per_mille, drawn)  # fmt: skip


@pytest.mark.parametrize("per_mille", [990, 999])
@pytest.mark.parametrize("sizes", [[1000] * 10, [1000, 1200, 950], [20, 30], [1]])
def test_a_percentile_is_that_of_all_messages_together(per_mille, sizes):
    times = runs_of(sizes)
    drawn = ratios.draws(len(sizes))
    found = pooled(times, per_mille, drawn)
    assert found.value == quantile(np.concatenate(times), per_mille)
    for resample in range(0, 200, 20):
        again = np.concatenate(
            [np.repeat(t, n) for t, n in zip(times, drawn[resample], strict=True)]
        )
        assert found.resamples[resample] == quantile(again, per_mille)


def test_one_seed_with_all_slow_messages_is_within_the_tails():
    times = [np.arange(1000) + 10**6, *(np.arange(1000) for _ in range(9))]
    drawn = ratios.draws(10)
    found = pooled(times, 990, drawn)
    for resample in range(50):
        again = np.concatenate(
            [np.repeat(t, n) for t, n in zip(times, drawn[resample], strict=True)]
        )
        assert found.resamples[resample] == quantile(again, 990)


def test_a_tail_is_the_largest_eighth():
    assert ratios.tail(np.arange(17)) == [16, 15, 14]
    assert ratios.tail(np.arange(0)) == []


@pytest.mark.parametrize(("per_mille", "counts"), [(500, [8]), (990, [0])])
def test_what_tails_do_not_hold_is_refused(per_mille, counts):
    with pytest.raises(ValueError, match="last hundredth"):
        ratios.percentile([[3]], counts, per_mille, ratios.draws(1))


def test_each_resample_draws_as_many_seeds_as_there_are_and_all_alike():
    drawn = ratios.draws(10)
    assert drawn.shape == (ratios.RESAMPLES, 10)
    assert (drawn.sum(axis=1) == 10).all()
    assert np.abs(drawn.mean(axis=0) - 1).max() < 0.05
    assert (drawn == ratios.draws(10)).all()


def test_a_ratio_is_paired_by_seed():
    """Seeds that differ tenfold, and a ratio that does not: the interval has no width."""
    drawn = ratios.draws(5)
    base = ratios.geometric_mean([1, 3, 10, 2, 7], drawn)
    ratio = ratios.geometric_mean([1.1, 3.3, 11, 2.2, 7.7], drawn).over(base)
    assert ratio.value == pytest.approx(1.1)
    assert ratio.interval == pytest.approx((1.1, 1.1))
    assert base.interval[1] / base.interval[0] > 2


def test_geometric_mean():
    found = ratios.geometric_mean([2, 8], np.array([[1, 1], [2, 0]]))
    assert found.value == pytest.approx(4)
    assert list(found.resamples) == pytest.approx([4, 2])
    with pytest.raises(ValueError, match="above 0"):
        ratios.geometric_mean([1, 0], ratios.draws(2))


def test_the_interval_leaves_out_a_fortieth_at_each_end():
    found = Resampled(50, np.arange(1001, dtype=float))
    assert found.interval == (25, 975)


def test_the_interval_holds_the_true_mean_in_most_samples():
    """Ten seeds: the bootstrap's intervals are a little narrow, which is known (Efron, 1987)."""
    chance = np.random.default_rng(3)
    drawn = ratios.draws(10)
    held = 0
    for _ in range(300):
        low, high = ratios.geometric_mean(list(np.exp(chance.normal(0, 0.3, 10))), drawn).interval
        held += low <= 1 <= high
    assert 0.85 < held / 300 <= 0.97


def test_p_values():
    found = Resampled(1.5, np.linspace(1, 2, 999))
    assert found.p_above(0.5, 20) == 1 / 1000
    assert found.p_above(3, 20) == 1
    assert found.p_above(1.5, 20) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("seeds", [1, 2, 5, 10])
def test_no_p_value_is_below_that_of_a_sign_test_in_which_all_seeds_agree(seeds):
    """By chance all of n signs are the same way in 1 of 2^n cases, however often one resamples."""
    base = ratios.geometric_mean([1.0] * seeds, ratios.draws(seeds))
    twice = ratios.geometric_mean([2.0] * seeds, ratios.draws(seeds))
    assert twice.over(base).p_above(1.0, seeds) == 0.5**seeds


@pytest.mark.parametrize("tests", [1, 4, 12, 78])
def test_the_fewest_seeds_that_can_be_significant(tests):
    needed = ratios.seeds_needed(0.05, tests)
    assert holm([ratios.least_p(needed)] * tests)[0] < 0.05
    assert holm([ratios.least_p(needed - 1)] * tests)[0] >= 0.05


def test_the_least_p_value_is_significant_among_all_cells():
    assert 78 / (ratios.RESAMPLES + 1) < 0.05
    assert math.ceil(0.05 * (ratios.RESAMPLES + 1)) > 78
