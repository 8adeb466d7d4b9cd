# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench tails`: ratios within a seed, and a short form on the real clock."""

import json

import pytest

from softroce_lab.bench.tails import CASES, Outcome
from tests.bench.test_engine_and_path import bench

FIRST, SECOND = CASES


def outcome(ours, baseline):
    return Outcome({FIRST: {"csa_ud": ours, "ud_rto": baseline}}, 3, 4)


def test_a_ratio_is_of_one_seed_and_the_median_of_them_counts():
    found = outcome([6_000_000, 1_000_000, 70_000_000], [10_000_000, 2_000_000, 10_000_000])
    assert found.ratios()[FIRST].median == pytest.approx(0.6)
    assert found.missed == []
    assert found.lines() == [
        "1 % of packets    0.600 [0.500, 7.000] of ud_rto's p99, limit 0.7 "
        "(csa_ud 6.0 ms, ud_rto 10.0 ms)",
        "3 of 4 runs were faithful",
    ]


def test_a_median_above_its_limit_is_missed():
    found = outcome([8], [10])
    assert found.missed == [FIRST]
    assert found.document()["missed"] == [FIRST]
    assert ", missed (" in found.lines()[0]


def test_tails(tmp_path, nothing_left):
    result = bench(tmp_path, "tails", "--seeds", "1", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == bool(found["missed"])
    assert set(found["ratios"]) == {FIRST, SECOND}
    assert found["runs"] == 4
    assert all(len(of["csa_ud"]) == 1 for of in found["p99_ns"].values())
    assert list(tmp_path.iterdir()) == []
