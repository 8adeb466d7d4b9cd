# SPDX-License-Identifier: GPL-2.0-or-later
"""Sign tests of many claims: against counts by hand, and how often chance alone makes a claim."""

import itertools
import math

import numpy as np
import pytest

from softroce_lab.results import sign_tests
from softroce_lab.statistics import holm


def claims(signs):
    return [dict(enumerate(map(float, each))) for each in signs]


def sign_test(differences):
    """Two-sided p of the hypothesis that their median is 0; equal pairs do not count."""
    above, below = (sum(sign * each > 0 for each in differences) for sign in (1, -1))
    pairs = above + below
    tail = sum(math.comb(pairs, each) for each in range(max(above, below), pairs + 1))
    return min(1.0, 2 * tail / 2**pairs)


def by_hand(signs):
    """Every exchange of seeds, one after the other, without arrays."""
    found = [sign_test(each) for each in signs]
    order = sorted(range(len(signs)), key=found.__getitem__)
    adjusted, most = [0.0] * len(signs), 0.0
    for rank, place in enumerate(order):
        beaten = 0
        exchanges = list(itertools.product((1, -1), repeat=len(signs[0])))
        for flips in exchanges:
            least = min(
                sign_test([a * b for a, b in zip(signs[other], flips, strict=True)])
                for other in order[rank:]
            )
            beaten += least <= found[place]
        most = max(most, beaten / len(exchanges))
        adjusted[place] = most
    return adjusted


def test_the_procedure_by_hand():
    generator = np.random.default_rng(2)
    for _ in range(20):
        signs = generator.integers(-1, 2, (5, 7)).tolist()
        signs[0] = [1] * 7
        assert sign_tests.adjusted(claims(signs)) == pytest.approx(by_hand(signs))


def test_one_claim_is_not_corrected():
    signs = [1, 1, 1, 1, 1, 1, 1, -1]
    assert sign_tests.adjusted(claims([signs])) == [sign_test(signs)]


def test_one_measurement_counts_once_whatever_its_names():
    """Ten seeds: 30 names of one measurement are one claim, of which Holm makes thirty."""
    found = sign_tests.adjusted(claims([[1] * 10] * 30))
    assert found == [2 / 1024] * 30
    assert min(holm([2 / 1024] * 30)) > 0.05


def test_independent_claims_count_each():
    """As many as 60 of ten seeds: chance alone would let one of them agree in 11 of 100."""
    generator = np.random.default_rng(4)
    signs = [[1] * 10, *(generator.choice((-1, 1), (59, 10)).tolist())]
    assert sign_tests.adjusted(claims(signs))[0] == pytest.approx(0.11, abs=0.02)


def test_a_seed_that_a_claim_lacks_is_no_pair():
    whole = dict.fromkeys(range(6), 1.0)
    part = dict.fromkeys(range(5), 1.0)
    found = sign_tests.adjusted([whole, part, {}])
    assert found == [2 / 64, 2 / 32, 1.0]


def test_many_seeds_are_drawn():
    """With 20 seeds not every exchange is tried; p is no smaller than that of the claim."""
    found = sign_tests.adjusted(claims([[1] * 20, [1] * 14 + [-1] * 6]))
    assert 2 / 2**20 <= found[0] < 0.001
    assert found[1] == pytest.approx(sign_test([1] * 14 + [-1] * 6), abs=0.03)


@pytest.mark.parametrize("seeds", [8, 10, 14])
def test_chance_makes_a_claim_in_at_most_5_of_100(seeds):
    """Of 24 figures, in families that go together, without any difference."""
    generator = np.random.default_rng(6)
    wrong = 0
    for _ in range(200):
        common = generator.standard_normal((6, 1, seeds))
        own = generator.standard_normal((6, 4, seeds))
        drawn = (common + 0.3 * own).reshape(24, seeds)
        wrong += min(sign_tests.adjusted(claims(drawn))) <= 0.05
    assert wrong <= 10 + 6  # 5 % of 200, and twice the deviation of such a count


def test_no_claim():
    assert sign_tests.adjusted([]) == []
    assert sign_tests.fewest_pairs(0.05) == 6
