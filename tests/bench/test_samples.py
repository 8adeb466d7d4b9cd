# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples: what is taken again, and what follows from many."""

import pytest

from softroce_lab.bench import samples
from softroce_lab.bench.samples import MOST_ATTEMPTS, Sample, undisturbed
from softroce_lab.errors import RunError


def stealing(monkeypatch, shares):
    """The hypervisor takes these shares, one a sample."""
    left = iter(shares)

    class Watch:
        def share(self):
            return next(left)

    monkeypatch.setattr(samples, "StolenTime", Watch)


def measured(counts):
    left = iter(counts)
    return lambda: Sample.of(next(left), 1_000_000_000, 100)


def test_a_rate_is_frames_a_second_and_bits_of_payload():
    sample = Sample.of(500, 250_000_000, 1000)
    assert sample == Sample(2000, 16_000_000)


def test_a_disturbed_sample_is_taken_again(monkeypatch):
    stealing(monkeypatch, [0.5, 0.02, 0.0, 0.0])
    assert undisturbed(measured([1, 2, 3, 4])).frames_per_second == 3


def test_of_disturbed_samples_the_least_disturbed_counts(monkeypatch):
    shares = [0.9, 0.3, *[0.5] * MOST_ATTEMPTS]
    stealing(monkeypatch, shares)
    sample = undisturbed(measured(range(1, MOST_ATTEMPTS + 1)))
    assert (sample.frames_per_second, sample.stolen) == (2, 0.3)


def test_a_sample_without_a_frame_is_taken_again(monkeypatch):
    stealing(monkeypatch, [0.0, 0.0, 0.0])
    assert undisturbed(measured([0, 0, 7])).frames_per_second == 7


def test_frames_that_never_get_through_are_an_error(monkeypatch):
    stealing(monkeypatch, [0.0] * MOST_ATTEMPTS)
    with pytest.raises(RunError, match="no frame"):
        undisturbed(measured([0] * MOST_ATTEMPTS))


def test_ratios_are_taken_within_rounds():
    above = [Sample(rate, 0) for rate in (10, 300, 20)]
    below = [Sample(rate, 0) for rate in (20, 100, 40)]
    assert samples.ratio(above, below, "frames_per_second").median == 0.5
    with pytest.raises(ValueError, match="shorter"):
        samples.ratio(above, below[:2], "frames_per_second")


def test_disturbed_samples_are_counted_by_name():
    taken = {"calm": [Sample(1, 1)], "not": [Sample(1, 1, 0.5), Sample(1, 1, 0.0)]}
    assert samples.disturbed(taken) == {"calm": 0, "not": 1}
