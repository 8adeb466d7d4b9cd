# SPDX-License-Identifier: GPL-2.0-or-later
"""The grids on which parity is tuned and judged, and the table of training steps under loss."""

import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.sweep import spec

TUNED = ("parity-k4", "parity-leaf-spine")
JUDGED = ("recovery-sizes", "recovery-sizes-leaf-spine", "recovery-last")


def experiments(name):
    return [each.experiment for each in spec.load(name).combinations]


@pytest.mark.parametrize("name", [*TUNED, *JUDGED])
def test_every_cell_warms_up_under_its_own_loss(name):
    cells = experiments(name)
    for each in cells:
        work = each.raw.workload
        assert work.warm_up >= 1
        assert work.every >= 20_000_000  # longer than an operation: it begins on a quiet fabric
        assert {transport.name for transport in each.transports} == {"csa_ud", "oracle"}
    clean = [each for each in cells if not each.raw.faults]
    assert clean, "the bound without loss"


def test_what_is_judged_is_not_what_was_tuned_on():
    tuned, judged = ({name: spec.load(name) for name in names} for names in (TUNED, JUDGED))
    seeds = {seed for sweep in tuned.values() for seed in sweep.seeds}
    assert not any(seeds & {*sweep.seeds} for sweep in judged.values())

    def cells(sweep):
        return [each.experiment for each in sweep.combinations]

    def sizes(sweeps):
        return {each.raw.workload.message for sweep in sweeps for each in cells(sweep)}

    before = [*tuned.values(), judged["recovery-sizes"], judged["recovery-sizes-leaf-spine"]]
    last = judged["recovery-last"]
    assert not sizes(before) & sizes([last])
    links = {json.dumps(str(each.raw.topology.generator.access)) for each in cells(last)}
    known = {json.dumps(str(e.raw.topology.generator.access)) for s in before for e in cells(s)}
    assert len(links) == 2
    assert not links & known


def swept(tmp_path, name, *only):
    options = [option for each in only for option in ("--only", each)]
    line = ["run", name, "-o", str(tmp_path), "-q", "--jobs", "1", *options]
    done = CliRunner().invoke(app, line)
    assert done.exit_code in (0, 1), done.output
    return pq.read_table(tmp_path / name / "runs.parquet").to_pylist()


def test_a_cell_has_its_ratios_to_both_bounds(tmp_path):
    rows = swept(tmp_path, "parity-k4", "workload=tree-16KiB", "loss=[nt]*", "seed=1")
    time_ns = {(row["transport"], row["loss"]): row["makespan_ns"] for row in rows}
    assert len(time_ns) == len(rows) == 6
    for row in rows:
        assert row["verdict"] == "passed"
        assert row["measured"] * 17 == row["messages"]
        assert row["time_over_oracle"] == row["makespan_ns"] / time_ns["oracle", row["loss"]]
        assert row["time_over_lossless"] == row["makespan_ns"] / time_ns["oracle", "none"]
    assert time_ns["oracle", "tail"] > 1.5 * time_ns["oracle", "none"]


LOSSES = ("loss=none", "loss=random-1%")


def test_a_step_of_a_training_is_compared_with_the_lossless_one(tmp_path):
    rows = swept(tmp_path, "training-loss", "hosts=16", "seed=1", "transport=[co][sr]a*", *LOSSES)
    steps = {(row["transport"], row["loss"]): row for row in rows}
    lossless = steps["oracle", "none"]["step_mean_ns"]
    for row in rows:
        assert row["steps"] == 6
        assert row["step_mean_over_lossless"] == row["step_mean_ns"] / lossless
    for name in ("csa_ud", "oracle"):
        ratios = [steps[name, loss]["step_mean_over_lossless"]
                  for loss in ("none", "random-1%")]  # fmt: skip
        assert ratios == sorted(ratios)
