# SPDX-License-Identifier: GPL-2.0-or-later
"""Distributions of flow sizes."""

from fractions import Fraction

import numpy as np
import pytest

from softroce_lab.workloads.sizes import PUBLISHED, Part, Sizes
from softroce_lab.workloads.streams import words
from tests.workloads.distances import assert_drawn_from, cumulative

KINDS = {name: Sizes.published(name) for name in PUBLISHED} | {
    "list": Sizes.of_list([64, 4096, 4096, 1 << 20]),
    "range": Sizes.of_range(1000, 9000),
    "step": Sizes.of_points([(0, 0), (10, Fraction(1, 2)), (10, Fraction(3, 4)), (99, 1)]),
}
ENDS = np.array([0, (1 << 64) - 1], dtype=np.uint64)


@pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
def test_sizes_are_distributed_as_written(sizes):
    assert_drawn_from(sizes, sizes.drawn(words(1, 0, 100_000)))


@pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
def test_the_ends_of_the_numbers_are_the_ends_of_the_sizes(sizes):
    least = min(part.least for part in sizes.parts)
    assert sizes.drawn(ENDS).tolist() == [least, sizes.largest]


@pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
def test_the_mean_is_exact(sizes):
    every = sum(
        part.share * Fraction(sum(range(part.least, part.most + 1)), part.most - part.least + 1)
        for part in sizes.parts
        if part.most - part.least < 1_000_000
    )
    wide = sum(
        part.share * Fraction(part.least + part.most, 2)
        for part in sizes.parts
        if part.most - part.least >= 1_000_000
    )
    assert sizes.mean_bytes == every + wide
    drawn = sizes.drawn(words(2, 0, 1_000_000))
    error = drawn.std() / 1000
    assert abs(drawn.mean() - float(sizes.mean_bytes)) < 4 * error


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_points_are_met(name):
    """P(size <= x) at each published x is the published percentage."""
    at, percent = np.array(PUBLISHED[name]).T
    assert cumulative(KINDS[name])(at) == pytest.approx(percent / 100)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Sizes(()), "no sizes"),
        (lambda: Sizes.of_list([]), "no sizes"),
        (lambda: Sizes.of_list([1, 0]), "1 or more"),
        (lambda: Sizes.of_range(9, 3), "rising"),
        (lambda: Sizes.of_points([]), "no points"),
        (lambda: Sizes.of_points([(0, Fraction(1, 9)), (1, Fraction(1))]), "not at 0 %"),
        (lambda: Sizes.of_points([(0, Fraction(0)), (1, Fraction(1, 2))]), "not at 100 %"),
        (lambda: Sizes.of_points([(0, 0), (1, 0), (2, 1)]), "do not rise"),
        (lambda: Sizes.of_points([(0, 0), (9, Fraction(1, 2)), (8, 1)]), "sizes fall"),
        (lambda: Sizes.of_points([(0, 0), (0, 1)]), "1 or more"),
        (lambda: Sizes((Part(1, 1, Fraction(1, 2)),)), "do not add up"),
        (lambda: Sizes.of_points([(0, 0), (1, Fraction(1, 1 << 70)), (2, 1)]), "too small"),
    ],
)
def test_what_is_no_distribution_is_refused(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_a_list_of_many_sizes_has_an_exact_mean_and_a_number_for_each_size():
    count = 50_000
    sizes = Sizes.of_list([*range(1, count), 1 << 40])
    assert sizes.mean_bytes == Fraction(count * (count - 1) // 2 + (1 << 40), count)
    firsts = np.array([round(Fraction(n * 2**64, count)) for n in range(count)], dtype=np.uint64)
    assert sizes.drawn(firsts).tolist() == [*range(1, count), 1 << 40]
    assert sizes.drawn(firsts[1:] - np.uint64(1)).tolist() == [*range(1, count)]
