# SPDX-License-Identifier: GPL-2.0-or-later
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.perftest.figures import MOST_PEAK, Bandwidth, Latency, peak_rate
from softroce_lab.perftest.options import Options, PerfTest


def test_the_peak_is_the_best_interval_between_a_post_and_an_end():
    posted = np.array([0, 10, 1000, 1010])
    completed = np.array([500, 510, 1100, 1110])
    assert peak_rate(posted, completed) == pytest.approx(2e9 / 110)  # the last two


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_the_peak_is_that_of_all_pairs(gaps, moderation):
    posted = np.cumsum([gap for gap, _ in gaps])
    ends = np.maximum.accumulate(posted + [length for _, length in gaps])
    completed = np.array([ends[min(i - i % moderation + moderation, len(ends)) - 1]
                          for i in range(len(ends))])  # fmt: skip
    best = max(
        (j - i + 1) * 1e9 / (completed[j] - posted[i])
        for i in range(len(posted))
        for j in range(i, len(posted))
    )
    assert peak_rate(posted, completed) == pytest.approx(best)


def test_no_peak_of_too_many():
    times = np.arange(MOST_PEAK + 1)
    assert peak_rate(times, times + 1) == 0
    assert peak_rate(times[:0], times[:0]) == 0


def result(**values):
    values = {"completed": 100, "began_ns": 0, "ended_ns": 10**6, "posted": 100,
              "posted_ns": np.arange(100) * 10**4, "completed_ns": np.arange(1, 101) * 10**4
              } | values  # fmt: skip
    return types.SimpleNamespace(**values)


def test_both_directions_add_up():
    test = PerfTest.of(Options("write_bw", iterations=100, bidirectional=True), 2048)
    one = Bandwidth.of([result()], test, 1000, 0)
    both = Bandwidth.of([result(), result()], test, 1000, 0)
    assert one.messages_per_second == pytest.approx(1e5)
    assert one.average == pytest.approx(1e8)
    assert (both.average, both.peak) == (2 * one.average, 2 * one.peak)
    assert both.iterations == one.iterations == 100


def test_half_of_a_round_trip():
    times = np.concatenate(([0], np.cumsum([2000.0] * 997 + [4000, 9000])))
    trips = result(posted_ns=times, posted=1000)
    found = Latency.of(trips, PerfTest.of(Options("send_lat"), 2048), 64)
    assert (found.least, found.median, found.p99, found.most) == (1.0, 1.0, 1.0, 4.5)
    assert found.p99_9 == 4.5
    assert found.average == pytest.approx((997 + 2 + 4.5) / 999)
    whole = Latency.of(trips, PerfTest.of(Options("read_lat"), 2048), 64)
    assert whole.median == 2.0


def test_of_a_duration_only_the_average_is_known():
    test = PerfTest.of(Options("send_lat", duration_s=1.0), 2048)
    found = Latency.of(result(posted=500), test, 64)
    assert found.least is None
    assert found.average == pytest.approx(1.0)
    assert found.transactions_per_second == pytest.approx(1e6)
