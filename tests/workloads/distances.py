# SPDX-License-Identifier: GPL-2.0-or-later
"""Kolmogorov's and Smirnov's test, for samples of hundreds and more."""

import math

import numpy as np


def ks_distance(samples, below, up_to):
    """The largest distance between a sample's cumulative distribution and another one.

    `below` and `up_to` are P(X < x) and P(X <= x) of an array: they differ where x has a
    probability of its own.
    """
    values, counts = np.unique(samples, return_counts=True)
    upper = np.cumsum(counts) / len(samples)
    lower = upper - counts / len(samples)
    return max(np.abs(upper - up_to(values)).max(), np.abs(lower - below(values)).max())


def ks_limit(count, significance=0.01):
    """The distance that so many samples exceed with this probability, or a lower one.

    Kolmogorov's asymptotic distribution; of one with steps it is an upper bound.
    """
    return math.sqrt(-math.log(significance / 2) / (2 * count))


def cumulative(sizes):
    """P(X <= x) of a `Sizes`, for arrays of whole x."""

    def up_to(values):
        total = np.zeros(len(values))
        for part in sizes.parts:
            within = np.clip((values - part.least + 1) / (part.most - part.least + 1), 0, 1)
            total += float(part.share) * within
        return total

    return up_to


def assert_drawn_from(sizes, samples):
    """The samples pass the test for this distribution."""
    up_to = cumulative(sizes)
    distance = ks_distance(samples, lambda x: up_to(x - 1), up_to)
    assert distance < ks_limit(len(samples))


def assert_exponential(samples, mean):
    """The samples pass the test for an exponential distribution of this mean."""

    def up_to(values):
        return -np.expm1(-values / mean)

    assert ks_distance(samples, up_to, up_to) < ks_limit(len(samples))
