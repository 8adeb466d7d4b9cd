# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare --figure`, and sign tests: means of paired ratios, p of many claims."""

import itertools
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results import ratios, sign_tests
from softroce_lab.results.comparison import RunFigures
from softroce_lab.statistics import holm
from tests.results.test_comparison import drawn_sweep


@pytest.mark.parametrize(
    ("logs", "half"),
    [
        ([0.0, 0.2], 12.706 * 0.1),  # the standard error of two values is half their distance
        ([-1.0, 0.0, 1.0], 4.303 / math.sqrt(3)),
        ([-1.0, 1.0] * 5, 2.262 * math.sqrt(10 / 9 / 10)),
        ([-1.0, 1.0] * 60, 1.980 * math.sqrt(120 / 119 / 120)),
    ],
)
def test_intervals_of_known_samples(logs, half):
    found = ratios.ratio_of(logs)
    middle = sum(logs) / len(logs)
    assert found.pairs == len(logs)
    assert math.log(found.mean) == pytest.approx(middle)
    assert math.log(found.low) == pytest.approx(middle - half, rel=1e-3)
    assert math.log(found.high) == pytest.approx(middle + half, rel=1e-3)
    assert str(ratios.ratio_of([math.log(0.5)])) == "0.500"  # one pair has no interval


def of_times(times):
    """`Values` of one figure: by cell, transport and seed; None: the run failed."""
    return {
        key: {
            seed: None if time is None else RunFigures({"makespan_ns": time})
            for seed, time in seeds.items()
        }
        for key, seeds in times.items()
    }


def test_every_cell_counts_the_same_in_the_mean_of_all():
    values = of_times({
        ("a", "irn"): {1: 1, 2: 1, 3: 1}, ("a", "csa_ud"): {1: 2, 2: 2, 3: 2},
        ("b", "irn"): {1: 1, 2: 1, 3: 1}, ("b", "csa_ud"): {1: 8, 2: 8, 3: None},
        ("c", "irn"): {1: None, 2: None, 3: 1}, ("c", "csa_ud"): {1: 5, 2: 5, 3: None},
    })  # fmt: skip
    compared = ratios.over_others(values, "csa_ud")
    assert list(compared) == ["csa_ud / irn"]
    found = {
        row.cell: row.ratios["makespan_ns"]
        for row in ratios.rows(values, values, compared, ["makespan_ns"])
    }
    assert {cell: ratio and (ratio.mean, ratio.pairs) for cell, ratio in found.items()} == {
        "a": (2, 3),
        "b": (pytest.approx(8), 2),
        "c": None,  # no seed passed on both sides
        ratios.ALL_CELLS: (pytest.approx(4), 2),  # seeds that cells a and b have
    }
    assert "b, csa_ud, seed 3" in ratios.failed(values)


def test_products_of_figures_and_ladders():
    before = RunFigures({"makespan_ns": 2, "fct_p99_ns": 3})
    after = RunFigures({"makespan_ns": 4, "fct_p99_ns": 9})
    values = {("all", "irn"): {1: before}, ("all", "csa_ud"): {1: after}}
    figure = "makespan_ns*fct_p99_ns"
    (row,) = ratios.rows(values, values, ratios.over_others(values, "csa_ud"), [figure])
    assert row.ratios[figure].mean == pytest.approx(6)
    ratios.check_figures([figure, "slowdown_p99<=10kB"])
    with pytest.raises(UserError, match="'fct_p99' is no figure"):
        ratios.check_figures(["makespan_ns*fct_p99"])
    values = of_times({("all", name): {1: at} for at, name in enumerate("cab", 1)})
    assert list(ratios.ladder(values)) == ["a / c", "b / a"]


def test_on_the_command_line(tmp_path):
    for name, factor in (("old", 1.0), ("new", 0.9)):
        drawn_sweep(tmp_path / name, np.random.default_rng(3), factor)

    def compare(*arguments):
        return CliRunner().invoke(app, ["results", "compare", *arguments])

    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    rows = json.loads(compare(old, new, "--figure", "fct_p99_ns", "--json").output)["ratios"]
    assert [(row["compared"], row["cell"]) for row in rows] == [
        ("csa_ud", "loss=none"), ("csa_ud", "loss=one"), ("csa_ud", "all cells"),
        ("irn", "loss=none"), ("irn", "loss=one"), ("irn", "all cells"),
    ]  # fmt: skip
    assert all(abs(row["ratios"]["fct_p99_ns"]["mean"] - 0.9) < 1e-3 for row in rows)
    text = compare(old, "--transport", "csa_ud", "--only", "loss=one", "--only", "seed=3").output
    assert "csa_ud / irn" in text
    assert "loss=none" not in text
    assert compare(old, "--ladder").output.count("irn / csa_ud") == 3
    for wrong in (
        [old, new, "--ladder"], [old, "--figure", "fct_p99_ns"], [old, "--only", "seed=1"],
        [old, "--transport", "rc"], [old, "--ladder", "--only", "seed=99"],
        [old, "--ladder", "--fail-on-worse"], [old, new, new, "--figure", "fct_p99_ns"],
    ):  # fmt: skip
        assert compare(*wrong).exit_code == ExitCode.USAGE


# --- Sign tests ----------------------------------------------------------------------------------


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
    exchanges = list(itertools.product((1, -1), repeat=len(signs[0])))
    for rank, place in enumerate(order):
        beaten = 0
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
    for _ in range(5):
        signs = generator.integers(-1, 2, (5, 7)).tolist()
        signs[0] = [1] * 7
        assert sign_tests.adjusted(claims(signs)) == pytest.approx(by_hand(signs))


def test_claims_of_some_seeds_of_one_measurement_and_of_many_seeds():
    """30 names of one measurement are one claim, of which Holm makes thirty."""
    assert sign_tests.adjusted(claims([[1] * 10] * 30)) == [2 / 1024] * 30
    assert min(holm([2 / 1024] * 30)) > 0.05
    whole, part = (dict.fromkeys(range(seeds), 1.0) for seeds in (6, 5))
    assert sign_tests.adjusted([whole, part, {}]) == [2 / 64, 2 / 32, 1.0]
    # With 20 seeds not every exchange is tried; p is no smaller than that of the claim.
    found = sign_tests.adjusted(claims([[1] * 20, [1] * 14 + [-1] * 6]))
    assert 2 / 2**20 <= found[0] < 0.001
    assert found[1] == pytest.approx(sign_test([1] * 14 + [-1] * 6), abs=0.03)
    assert sign_tests.adjusted([]) == []
    assert sign_tests.fewest_pairs(0.05) == 6


def test_chance_makes_a_claim_in_at_most_5_of_100():
    """Of 24 figures, in families that go together, without any difference."""
    generator = np.random.default_rng(6)
    wrong = 0
    for _ in range(100):
        common = generator.standard_normal((6, 1, 10))
        own = generator.standard_normal((6, 4, 10))
        drawn = (common + 0.3 * own).reshape(24, 10)
        wrong += min(sign_tests.adjusted(claims(drawn))) <= 0.05
    assert wrong <= 5 + 5  # 5 % of 100, and twice the deviation of such a count
