# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench tails`: ratios within a seed, and a short form on the real clock."""

import json

import pytest

from softroce_lab.bench.tails import CASES, Outcome, Pair
from tests.bench.test_engine_and_path import bench

FIRST, SECOND = CASES


def outcome(*pairs, failed=()):
    """Of (ours, the baseline's[, whether both are faithful]), ns."""
    found = [Pair(seed, *times, *(() if len(times) > 2 else (True,)))
             for seed, times in enumerate(pairs, 1)]  # fmt: skip
    return Outcome({FIRST: found}, 3, 4, failed)


def test_a_ratio_is_of_one_seed_and_the_median_of_them_counts():
    found = outcome((6_000_000, 10_000_000), (1_000_000, 2_000_000), (70_000_000, 10_000_000))
    assert found.ratios()[FIRST].median == pytest.approx(0.6)
    assert found.missed == []
    assert found.passed
    assert found.lines() == [
        "1 % of packets    0.600 [0.500, 7.000] of ud_rto's p99, limit 0.7 "
        "(csa_ud 6.0 ms, ud_rto 10.0 ms; n 3)",
        "3 of 4 runs were faithful",
    ]


def test_a_median_above_its_limit_is_missed():
    found = outcome((8, 10))
    assert found.missed == [FIRST]
    assert found.document()["missed"] == [FIRST]
    assert found.document()["verdict"] == "failed"
    assert ", missed (" in found.lines()[0]


def test_a_pair_that_is_not_faithful_is_marked_and_not_judged():
    found = outcome((5_000_000, 10_000_000), (90_000_000, 10_000_000, False))
    assert found.ratios()[FIRST].median == 0.5
    assert found.passed
    assert found.lines()[0].endswith("n 1; seeds left out, not faithful: 2*)")
    assert [each["faithful"] for each in found.document()["pairs"][FIRST]] == [True, False]


def test_without_a_faithful_pair_nothing_is_judged_and_nothing_passed():
    found = outcome((5, 10, False))
    assert (found.missed, found.not_judged, found.passed) == ([], [FIRST], False)
    assert "not judged: no seed is faithful" in found.lines()[0]
    assert found.document()["verdict"] == "failed"


def test_a_failed_run_is_told_beside_the_figures_of_the_others():
    found = outcome((5, 10), failed=["every tail, once, ud_rto/2: nothing moved for 15 s"])
    assert not found.passed
    assert "failed: every tail, once, ud_rto/2: nothing moved for 15 s" in found.lines()


def test_tails(tmp_path, nothing_left):
    result = bench(tmp_path, "tails", "--seeds", "1", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == (found["verdict"] == "failed")
    assert set(found["ratios"]) | set(found["not_judged"]) == {FIRST, SECOND}
    assert found["runs"] == 4
    assert all(len(pairs) == 1 for pairs in found["pairs"].values())
    assert list(tmp_path.iterdir()) == []
