# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeded streams of numbers: SplitMix64, the same on every machine and in every version.

Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), with the
constants of Vigna's splitmix64.c. The n-th number is a function of key and n alone, so that arrays
of them are made at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1

_HALF_ROOT, _LN_2 = 0.7071067811865476, 0.6931471805599453
_LAST_TERM = 23  # 0.1716**24 / 25 is less than the last bit


class Stream:
    """A stream of 64-bit numbers."""

    def __init__(self, key: int) -> None:
        self._state = key & _MASK

    def next64(self) -> int:
        """The next number."""
        self._state = (self._state + _GAMMA) & _MASK
        z = self._state
        z = (z ^ (z >> 30)) * _FIRST & _MASK
        z = (z ^ (z >> 27)) * _SECOND & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1, all equally likely. ValueError if there is none."""
        if not 0 < bound <= 1 << 64:
            raise ValueError(f"no number is below {bound}")
        most = (1 << 64) - (1 << 64) % bound  # beyond it the last, incomplete round begins
        while (drawn := self.next64()) >= most:
            pass
        return drawn % bound

    def permutation(self, count: int) -> list[int]:
        """0 to `count` - 1 in any order, all orders equally likely (Fisher and Yates)."""
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order

    def derangement(self, count: int) -> list[int]:
        """A permutation in which nothing keeps its place; all of these equally likely.

        It is drawn anew until it fits, e times on average. ValueError for fewer than two.
        """
        if count < 2:
            raise ValueError("nothing to exchange")
        while True:
            order = self.permutation(count)
            if all(place != number for place, number in enumerate(order)):
                return order


def words(key: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """`count` numbers of the stream with this key, from the one numbered `first` on."""
    with np.errstate(over="ignore"):
        steps = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
        z = np.uint64(key & _MASK) + steps * np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
        return z ^ (z >> np.uint64(31))


def exponentials(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One exponentially distributed number of mean 1 for each 64-bit number: -ln u.

    The logarithm is a series of additions, multiplications and divisions, which IEEE 754 rounds in
    one way: those of mathematical libraries differ in the last bit. ln m = 2 artanh((m-1)/(m+1)),
    for m from sqrt(1/2) to sqrt(2).
    """
    even = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # between 0 and 1
    mantissa, exponent = np.frexp(even)
    low = mantissa < _HALF_ROOT
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    z = (mantissa - 1) / (mantissa + 1)
    square = z * z
    series = np.zeros_like(z)
    for odd in range(_LAST_TERM, 0, -2):
        series = series * square + 1 / odd
    found: npt.NDArray[np.float64] = -(2 * z * series + exponent * _LN_2)
    return found


def jumps(keys: npt.NDArray[np.uint64], buckets: int) -> npt.NDArray[np.int64]:
    """A bucket from 0 on for each key, all equally likely; of N + 1 buckets, the last one takes
    1/(N + 1) of the keys from the others, and no other key moves.

    Lamping, Veach: A Fast, Minimal Memory, Consistent Hash Algorithm (2014). ValueError for no
    buckets.
    """
    if buckets < 1:
        raise ValueError(f"{buckets} buckets")
    found = np.zeros(len(keys), dtype=np.int64)
    moving, key = np.arange(len(keys)), keys.copy()
    with np.errstate(over="ignore"):
        while len(moving):
            key = key * np.uint64(2862933555777941757) + np.uint64(1)
            below = ((key >> np.uint64(33)) + np.uint64(1)).astype(np.float64)
            further = (found[moving] + 1) * (2.0**31 / below)
            stays = further >= buckets
            moving, key = moving[~stays], key[~stays]
            found[moving] = further[~stays].astype(np.int64)
    return found


def random_bytes(key: int, first: int, count: int) -> npt.NDArray[np.uint8]:
    """`count` bytes of the stream from byte `first` on, the low byte of each number first."""
    begin, end = first // 8, -(-(first + count) // 8)
    raw = words(key, begin, end - begin).astype("<u8").view(np.uint8)
    return raw[first - 8 * begin :][:count]


def elements(key: int, count: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """`count` elements of `int32` or `float32`.

    Integers of all values. Floats from -1 to 1 in steps of 2**-23, exact; their sums are rounded,
    so that the order in which they are added shows.
    """
    if dtype == np.float32:
        whole = (words(key, 0, count) >> np.uint64(40)).astype(np.int64) - (1 << 23)
        return (whole.astype(np.float64) / (1 << 23)).astype(np.float32)
    return random_bytes(key, 0, count * dtype.itemsize).view(dtype)
