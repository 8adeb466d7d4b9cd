# SPDX-License-Identifier: GPL-2.0-or-later
"""Statistics of the crosscheck: they find what was planted, and claim no more than that."""

import math

import numpy as np
import pytest

from softroce_lab.experiment.crosscheck.agreement import (
    ALPHA,
    agreement,
    distance,
    fewest_seeds,
    judged,
)

ROUNDS = 500
# Of so many rounds, at a true rate of ALPHA: more are met once in a million times.
MOST = ROUNDS * ALPHA + 4.75 * math.sqrt(ROUNDS * ALPHA * (1 - ALPHA))


def stream(seed):
    return np.random.Generator(np.random.PCG64(seed))


def verdict(differences):
    return judged([agreement(list(differences))])[0].verdict


def rounds(seed, seeds, median, spread=0.5):
    """Verdicts on skewed differences with this median: exponential ones, as delays are."""
    drawn = stream(seed).exponential(spread, size=(ROUNDS, seeds))
    for row in drawn - spread * math.log(2) + median:
        yield verdict(row)


@pytest.mark.parametrize(
    ("said", "seeds"), [("same", 5), ("same", 10), ("same", 23), ("differs", 6), ("differs", 23)]
)
def test_at_the_margin_neither_is_said_more_often_than_promised(said, seeds):
    for median in (1, -1):
        assert sum(each == said for each in rounds(seeds, seeds, median)) <= MOST


def test_it_finds_what_was_planted():
    """The median three margins away; and the same, where it is a tenth of one."""
    assert sum(each == "differs" for each in rounds(1, 10, 3)) == ROUNDS
    assert sum(each == "differs" for each in rounds(2, 10, -3)) > 0.95 * ROUNDS
    assert sum(each == "same" for each in rounds(3, 10, 0.1, spread=0.3)) > 0.95 * ROUNDS


def test_one_in_ten_may_be_an_accident():
    assert verdict([0.1] * 9 + [math.inf]) == "same"
    assert verdict([0.1] * 8 + [math.inf] * 2) == "undecided"
    assert verdict([5.0] * 9 + [0.1]) == "differs"


def test_too_few_decide_nothing():
    assert [verdict([0.0] * count) for count in (1, 4, 5)] == ["undecided", "undecided", "same"]
    assert [verdict([9.0] * count) for count in (5, 6)] == ["undecided", "differs"]
    assert fewest_seeds(1) == 6
    many = fewest_seeds(16)
    assert {each.verdict for each in judged([agreement([9.0] * many)] * 16)} == {"differs"}
    assert {each.verdict for each in judged([agreement([9.0] * (many - 1))] * 16)} == {"undecided"}


def test_what_touches_the_margin_is_not_within():
    assert verdict([1.0] * 10) == "undecided"
    assert verdict([np.nextafter(1.0, 0)] * 10) == "same"


@pytest.mark.parametrize("seeds", [5, 10, 23])
def test_the_interval_holds_the_median(seeds):
    """And the verdict `same` is that it lies within the margin."""
    drawn = stream(seeds).exponential(1.0, size=(ROUNDS, seeds)) - math.log(2)
    found = [agreement(list(row)) for row in drawn]
    missed = sum(not each.low <= 0 <= each.high for each in found)
    assert missed <= 2 * MOST
    assert all((each.p_same <= ALPHA) == (each.low > -1 and each.high < 1) for each in found)


def test_what_never_ended_on_both_clocks_is_no_difference():
    found = agreement([0.0, -math.inf, math.inf, math.inf, math.inf])
    assert (found.median, found.low, found.high) == (math.inf, -math.inf, math.inf)


def test_nothing_is_nothing():
    with pytest.raises(ValueError, match="nothing was compared"):
        agreement([])
    with pytest.raises(ValueError, match="in pairs"):
        distance([], stream(1))
    with pytest.raises(ValueError, match="in pairs"):
        distance([(np.zeros(2), np.zeros(3))], stream(1))


def test_of_many_that_agree_hardly_ever_is_one_said_to_differ():
    """Sixteen comparisons at the margin, each its own; the claim is about all of them."""
    drawn = stream(7).normal(1.0, 0.5, size=(ROUNDS, 16, 12))
    wrong = sum(
        any(each.verdict == "differs" for each in judged([agreement(list(d)) for d in sixteen]))
        for sixteen in drawn
    )
    assert wrong <= MOST


# ---------------------------------------------------------------- distributions


def samples(generator, seeds, shift):
    """Pairs of runs, whose messages share what befell their run."""
    for _ in range(seeds):
        befell = generator.normal(0, 1, size=2)
        yield tuple(generator.normal(size=(2, 20)) + befell[:, None] + [[0], [shift]])


def test_distances_that_are_chance_are_said_to_be_chance():
    generator = stream(11)
    found = [distance(list(samples(generator, 8, 0.0)), generator).p for _ in range(ROUNDS)]
    assert sum(p <= ALPHA for p in found) <= MOST
    assert min(found) >= 1 / 128


def test_distances_that_were_planted_are_found():
    generator = stream(12)
    found = [distance(list(samples(generator, 8, 4.0)), generator) for _ in range(50)]
    assert sum(each.p <= ALPHA for each in found) == 50
    assert all(0.5 < each.largest <= 1 for each in found)


def test_many_pairs_are_exchanged_at_random_and_the_seed_says_how():
    pairs = list(samples(stream(13), 20, 0.3))
    assert distance(pairs, stream(1)) == distance(pairs, stream(1))
    assert distance(pairs, stream(1)) != distance(pairs, stream(2))
    assert distance(pairs, stream(1)).largest == distance(pairs, stream(2)).largest


def test_a_distance_is_the_largest_between_the_distribution_functions():
    """Those that never ended count as more than all others."""
    pairs = [(np.array([1.0, 2.0, 3.0, math.inf]), np.array([2.0, 3.0, 3.5, 4.0]))]
    assert distance(pairs, stream(1)).largest == 0.25
    assert distance([(np.ones(3),) * 2], stream(1)).largest == 0
