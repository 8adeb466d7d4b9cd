# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun` and `lab results pack` of a sweep: the same, or which rows differ."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.results import artifact, rerun
from softroce_lab.results.recorded import Recorded
from tests.results.page.test_assemble import swept  # noqa: F401 - a fixture
from tests.results.test_artifact import reproduce, unzipped


def with_rows(directory, path, change):
    """A copy whose rows a function has changed."""
    copy = shutil.copytree(directory, path)
    table = pq.read_table(copy / "runs.parquet")
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), copy / "runs.parquet")
    return Recorded(copy)


def test_what_differs_is_named(swept, tmp_path):  # noqa: F811
    def change(rows):
        rows[1]["fct_p99_ns"] += 1
        rows[5]["retransmitted"] += 1
        rows[5]["wall_s"] += 1

    found = rerun.compare_sweeps(Recorded(swept), with_rows(swept, tmp_path / "copy", change))
    assert {each.what: each.detail for each in found.differences if not each.same} == {
        "loss=none, csa_ud: 2 runs": "fct_p99_ns of run 1",
        "loss=one, csa_ud: 2 runs": "retransmitted of run 5",
    }
    shorter = with_rows(swept, tmp_path / "shorter", lambda rows: rows.pop())
    assert not rerun.compare_sweeps(Recorded(swept), shorter).same


def test_times_of_the_real_clock_lie_in_intervals(swept, tmp_path):  # noqa: F811
    def real(factor):
        def change(rows):
            alone = [row for row in rows if row["transport"] == "rc" and row["loss"] == "one"][:1]
            rows[:] = [
                {**row, "clock": "real", "seed": seed, "run": seed,
                 "makespan_ns": int((1000 + seed) * factor)}
                for row in alone
                for seed in range(1, 8)
            ]  # fmt: skip

        return change

    one, other, slower = (
        with_rows(swept, tmp_path / name, real(factor))
        for name, factor in (("one", 1), ("other", 1.001), ("slower", 2))
    )
    assert rerun.compare_sweeps(one, other).same
    found = rerun.compare_sweeps(one, slower)
    wrong = [each.what for each in found.differences if each.same is False]
    assert wrong == ["loss=one, rc: makespan_ns"]


def test_a_sweep_is_reproduced_from_the_unzipped_folder(swept, tmp_path):  # noqa: F811
    made = artifact.write(Recorded(swept), tmp_path / "small.zip")
    folder = unzipped(made, tmp_path / "here")
    assert {each.name for each in (folder / "run").iterdir()} == {
        "manifest.json", "runs.parquet", "sweep.json",
    }  # fmt: skip
    done = reproduce(folder, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "same: again/small"
    assert len(done.stdout.splitlines()) == 5
    changed = with_rows(folder / "run", tmp_path / "changed", lambda rows: rows[0].update(bytes=1))
    shutil.copy(changed.path / "runs.parquet", folder / "run")
    done = reproduce(folder, tmp_path)
    assert done.returncode == 1
    assert "different  loss=none, csa_ud: 2 runs: bytes of run 0" in done.stdout


def test_what_cannot_be_repeated(swept, tmp_path):  # noqa: F811
    copy = shutil.copytree(swept, tmp_path / "small")
    found = CliRunner().invoke(app, ["results", "rerun", str(copy), "-o", str(tmp_path)])
    assert found.exit_code == 2
    assert "is the sweep itself" in found.stderr
    (copy / "sweep.json").unlink()
    for act in (
        lambda: rerun.sweep_again(Recorded(copy), None, under=tmp_path),
        lambda: artifact.write(Recorded(copy), tmp_path / "zip"),
    ):
        with pytest.raises(UserError, match=r"sweep\.json is missing"):
            act()
