# SPDX-License-Identifier: GPL-2.0-or-later
import random

import pytest

from softroce_lab import statistics
from softroce_lab.statistics import footnotes, holm, marked, median_interval, samples_needed


def test_ranks_for_fifteen():
    """The 4th and the 12th of 15 values hold the median with 96.5 %."""
    interval = median_interval(range(15))
    assert (interval.median, interval.low, interval.high) == (7, 3, 11)


def test_few_values_give_their_extremes():
    interval = median_interval([3, 1, 2])
    assert (interval.low, interval.median, interval.high) == (1, 2, 3)
    assert median_interval([4]).median == 4


def test_coverage():
    """At least 95 % of the intervals hold the true median (0), whatever the distribution."""
    chance = random.Random(1)
    held = 0
    for _ in range(4000):
        interval = median_interval([chance.expovariate(1) - 0.6931 for _ in range(15)])
        held += interval.low <= 0 <= interval.high
    assert held / 4000 > 0.945


def test_nothing_has_no_median():
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])


@pytest.mark.parametrize(("per_mille", "needed"), [(500, 2), (990, 100), (999, 1000)])
def test_a_percentile_of_too_few_samples_is_marked(per_mille, needed):
    assert samples_needed(per_mille) == needed
    assert marked("5 ms", per_mille, needed) == "5 ms"
    assert marked("5 ms", per_mille, needed - 1) == "5 ms*"


def test_a_mark_has_a_footnote():
    assert footnotes(["5 ms", "7 ms"]) == []
    [line] = footnotes(["5 ms", "7 ms*"])
    needed = {"p50": 500, "p99": 990, "p99.9": 999}
    for name, per_mille in needed.items():
        assert f"{name} {samples_needed(per_mille):,}" in line


def test_holm_is_that_of_the_paper():
    """Holm 1979, by hand: the least p times their number, the next times one less, never less."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


def test_it_is_said_where_an_interval_is_a_range():
    assert statistics.spread_name([2, 5]) == "range"
    assert statistics.spread_name([6, 30]) == "95 % interval"
    assert statistics.spread_name([5, 6]) == "95 % interval, below 6 seeds range"
    for count in range(2, 9):  # from FEWEST values on, the extremes lie outside of 95 % of draws
        beyond = 2 / 2**count
        assert (beyond <= 0.05) == (count >= statistics.FEWEST)
