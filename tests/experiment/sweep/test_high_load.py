# SPDX-License-Identifier: GPL-2.0-or-later
"""Short forms of the sweeps of high load: one cell and one seed of each, compared."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app

THREE = [f"transport={name}" for name in ("csa_ud", "irn-best", "oracle")]
CELL = ["workload=permutation-64KiB", "loss=random-1%"]


@pytest.mark.parametrize(
    ("name", "only", "how", "rows"),
    [
        (
            "high-load-k4",
            ["sizes=web-search", "load=50%", "loss=none", *THREE],
            ["--transport", "csa_ud"],
            2,
        ),
        ("decomposition", CELL, ["--ladder"], 6),
        ("equal-control", [*CELL, "control=nscc"], ["--transport", "csa_ud"], 7),
        (
            "rivals-k4",
            [*CELL, "transport=rc-source", "transport=rc+bdp"],
            ["--baseline", "rc-source", "--figure", "makespan_ns", "--figure", "fct_p99_ns"],
            1,
        ),
    ],
)
def test_a_cell_runs_and_is_compared(tmp_path, name, only, how, rows):
    options = [option for each in ("seed=1", *only) for option in ("--only", each)]
    arguments = ["run", name, "-o", str(tmp_path), "-q", "-j", "1", "--json", *options]
    swept = CliRunner().invoke(app, arguments)
    assert json.loads(swept.stdout)["verdict"] == "passed"
    compared = CliRunner().invoke(app, ["results", "compare", str(tmp_path / name), *how, "--json"])
    found = json.loads(compared.stdout)["ratios"]
    assert len(found) == rows
    figures = {"makespan_ns", "fct_p99_ns"} | (
        {"slowdown_p99"} if name == "high-load-k4" else set()
    )
    for row in found:
        assert {key for key, ratio in row["ratios"].items() if ratio} == figures
        assert all(ratio["pairs"] == 1 for ratio in row["ratios"].values() if ratio)
