# SPDX-License-Identifier: GPL-2.0-or-later
import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.workloads.streams import (
    Stream,
    exponentials,
    jumps,
    random_bytes,
    words,
)
from tests.workloads.distances import assert_exponential


def test_it_is_splitmix64():
    # The first numbers of Vigna's splitmix64.c with x = 1234567.
    stream = Stream(1234567)
    assert [stream.next64() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 40), st.integers(0, 40))
def test_numbers_made_at_once_are_the_same(key, first, count):
    stream = Stream(key)
    singly = [stream.next64() for _ in range(first + count)]
    assert words(key, first, count).tolist() == singly[first:]


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 100), st.integers(0, 100))
def test_any_part_of_the_bytes(key, first, count):
    part = random_bytes(key, first, count)
    assert part.tolist() == random_bytes(key, 0, 200)[first : first + count].tolist()


def test_all_derangements_are_equally_likely():
    stream = Stream(1)
    found = collections.Counter(tuple(stream.derangement(4)) for _ in range(9000))
    assert len(found) == 9  # of four
    assert min(found.values()) > 850
    assert max(found.values()) < 1150


def test_exponentials_are_logarithms():
    numbers = np.concatenate([words(5, 0, 100_000), np.array([0, (1 << 64) - 1], dtype=np.uint64)])
    even = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    np.testing.assert_allclose(exponentials(numbers), -np.log(even), rtol=4e-16, atol=1e-17)
    assert_exponential(exponentials(numbers), 1)


def test_a_further_bucket_takes_its_part_of_each_and_moves_nothing_else():
    keys = words(6, 0, 30_000)
    for buckets in (1, 2, 9):
        before, after = jumps(keys, buckets), jumps(keys, buckets + 1)
        moved = before != after
        assert (after[moved] == buckets).all()
        counts = np.bincount(after, minlength=buckets + 1)
        expected = len(keys) / (buckets + 1)
        assert abs(counts - expected).max() < 4 * expected**0.5
    with pytest.raises(ValueError, match="0 buckets"):
        jumps(keys, 0)
