# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare --figure`: geometric means of paired ratios, and their intervals."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results import comparison, ratios
from softroce_lab.results.comparison import RunFigures
from tests.results.test_comparison import drawn, drawn_sweep


def of_times(times):
    """`Values` of one figure: by cell, transport and seed; None: the run failed."""
    return {
        key: {
            seed: None if time is None else RunFigures({"makespan_ns": time})
            for seed, time in seeds.items()
        }
        for key, seeds in times.items()
    }


def printed(values, compared, figure="makespan_ns"):
    return {
        (row.compared, row.cell): row.ratios[figure]
        for row in ratios.rows(values, values, compared, [figure])
    }


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


def test_one_pair_has_no_interval():
    assert str(ratios.ratio_of([math.log(0.5)])) == "0.500"
    with pytest.raises(ValueError, match="no mean"):
        ratios.ratio_of([])


def test_intervals_hold_the_true_ratio_in_95_of_100_trials():
    generator = np.random.default_rng(5)
    trials = [ratios.ratio_of(list(generator.normal(0.3, 0.2, 5))) for _ in range(2000)]
    held = sum(found.low <= math.exp(0.3) <= found.high for found in trials)
    assert 1870 <= held <= 1930


def test_pairing_takes_out_what_seeds_have_in_common():
    values = of_times({
        ("all", "csa_ud"): {seed: 10.0**seed for seed in range(1, 6)},
        ("all", "irn"): {seed: 1.5 * 10.0**seed for seed in range(1, 6)},
    })  # fmt: skip
    found = printed(values, ratios.over_baseline(values, "csa_ud"))["irn / csa_ud", "all"]
    assert (found.low, found.mean, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_every_cell_counts_the_same_in_the_mean_of_all():
    values = of_times({
        ("a", "irn"): {1: 1, 2: 1, 3: 1}, ("a", "csa_ud"): {1: 2, 2: 2, 3: 2},
        ("b", "irn"): {1: 1, 2: 1, 3: 1}, ("b", "csa_ud"): {1: 8, 2: 8, 3: None},
        ("c", "irn"): {1: None, 2: None, 3: 1}, ("c", "csa_ud"): {1: 5, 2: 5, 3: None},
    })  # fmt: skip
    found = printed(values, ratios.over_others(values, "csa_ud"))
    name = "csa_ud / irn"
    assert {cell: ratio and (ratio.mean, ratio.pairs) for (_, cell), ratio in found.items()} == {
        "a": (2, 3),
        "b": (pytest.approx(8), 2),
        "c": None,  # no seed passed on both sides
        ratios.ALL_CELLS: (pytest.approx(4), 2),  # seeds that cells a and b have
    }
    assert {compared for compared, _ in found} == {name}
    assert "b, csa_ud, seed 3" in ratios.failed(values)


def test_a_product_of_figures():
    before = RunFigures({"makespan_ns": 2, "fct_p99_ns": 3})
    after = RunFigures({"makespan_ns": 4, "fct_p99_ns": 9})
    values = {("all", "irn"): {1: before}, ("all", "csa_ud"): {1: after}}
    figure = "makespan_ns*fct_p99_ns"
    found = printed(values, ratios.over_others(values, "csa_ud"), figure)
    assert found["csa_ud / irn", "all"].mean == pytest.approx(6)
    ratios.check_figures([figure, "slowdown_p99<=10kB"])
    with pytest.raises(UserError, match="'fct_p99' is no figure"):
        ratios.check_figures(["makespan_ns*fct_p99"])


def test_a_ladder_has_the_order_of_the_sweep():
    values = of_times({("all", name): {1: at} for at, name in enumerate("cab", 1)})
    assert list(ratios.ladder(values)) == ["a / c", "b / a"]


def test_on_the_command_line(tmp_path):
    for name, factor in (("old", 1.0), ("new", 0.9)):
        drawn_sweep(tmp_path / name, np.random.default_rng(3), factor)

    def compare(*arguments):
        return CliRunner().invoke(app, ["results", "compare", *arguments])

    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    document = json.loads(compare(old, new, "--figure", "fct_p99_ns", "--json").output)
    rows = document["ratios"]
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


def test_two_runs_are_compared_too(tmp_path):
    sides = [drawn(tmp_path / name, np.random.default_rng(8), factor, noise=0)
             for name, factor in (("a", 1), ("b", 2))]  # fmt: skip
    one, other = map(comparison.values, sides)
    rows = ratios.rows(one, other, ratios.of_two(one, other), ["makespan_ns"])
    assert all(abs(row.ratios["makespan_ns"].mean - 2) < 1e-3 for row in rows)
