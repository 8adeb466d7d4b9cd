# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab compare`: what is shown to differ, and how often that would be chance."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.report import comparison
from softroce_lab.report.recorded import Recorded


def drawn(folder, generator, factor=1.0, seeds=10, noise=0.03):
    """A run directory's manifest with figures of so many seeds; times of ours vary by `noise`."""
    folder.mkdir()
    runs = []
    for seed in range(1, seeds + 1):
        for transport, base in (("csa_ud", 1e5), ("irn", 3e5)):
            times = {
                key: int(
                    base * (1 + seed / 50) * factor * (1 + noise * generator.standard_normal())
                )
                for key in ("makespan_ns", "fct_p50_ns", "fct_p99_ns")
            }
            runs.append({"transport": transport, "seed": seed, "verdict": "passed", **times})
    (folder / "manifest.json").write_text(json.dumps({"schema_version": 1, "runs": runs}))
    return Recorded(folder)


def drawn_sweep(folder, generator, factor=1.0, seeds=10):
    """A sweep over two losses; its times vary by the seed, and by 3 % of chance."""
    folder.mkdir()
    about = {"schema_version": 1, "state": "done", "axes": {"loss": ["none", "one"]}}
    (folder / "manifest.json").write_text(json.dumps(about))
    rows = [
        {"loss": loss, "transport": transport, "seed": seed, "verdict": "passed"}
        | {
            figure: int(base * (1 + seed / 50) * factor * (1 + 0.03 * generator.standard_normal()))
            for figure in ("makespan_ns", "fct_p50_ns", "fct_p99_ns")
        }
        for loss, base in (("none", 1e5), ("one", 3e5))
        for transport in ("csa_ud", "irn")
        for seed in range(1, seeds + 1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "runs.parquet")
    return Recorded(folder)


def test_equal_sweeps_show_no_difference_in_95_of_100_trials(tmp_path):
    generator = np.random.default_rng(11)
    wrong = 0
    for trial in range(200):
        one, other = (drawn_sweep(tmp_path / f"{trial}{side}", generator) for side in "ab")
        found = comparison.compared(one, other)
        assert len(found) == 12
        wrong += any(line.verdict != "no difference shown" for line in found)
    assert wrong <= 10


def test_a_sweep_whose_messages_take_five_percent_longer_is_worse(tmp_path):
    """The same seeds on both sides, so that nothing but the 5 % differs."""
    sides = [drawn_sweep(tmp_path / name, np.random.default_rng(3), factor)
             for name, factor in (("a", 1), ("b", 1.05))]  # fmt: skip
    found = comparison.compared(*sides)
    assert [line.verdict for line in found] == 12 * ["worse"]
    assert all(abs(line.ratio.median - 1.05) < 1e-3 for line in found)


def test_equal_ones_show_no_difference_in_95_of_100_trials(tmp_path):
    generator = np.random.default_rng(7)
    wrong = 0
    for trial in range(200):
        one, other = (drawn(tmp_path / f"{trial}{side}", generator) for side in "ab")
        found = comparison.compared(one, other)
        wrong += any(line.verdict != "no difference shown" for line in found)
    assert wrong <= 10


def test_five_percent_longer_is_shown_with_ten_seeds(tmp_path):
    generator = np.random.default_rng(8)
    one = drawn(tmp_path / "a", generator, noise=0)
    other = drawn(tmp_path / "b", generator, factor=1.05, noise=0.005)
    found = comparison.compared(one, other)
    assert {line.verdict for line in found} == {"worse"}
    for line in found:
        assert line.ratio.low <= 1.05 * 1.01
        assert line.ratio.high >= 1.05 * 0.99
    assert {line.verdict for line in comparison.compared(other, one)} == {"better"}


def test_few_seeds_show_nothing(tmp_path):
    generator = np.random.default_rng(9)
    one = drawn(tmp_path / "a", generator, seeds=3, noise=0)
    other = drawn(tmp_path / "b", generator, seeds=3, factor=3, noise=0)
    assert {line.verdict for line in comparison.compared(one, other)} == {"no difference shown"}
    assert comparison.seeds_needed(6) == 8


def test_a_directory_equals_itself(ring_run):
    found = comparison.compared(Recorded(ring_run), Recorded(ring_run))
    assert {line.ratio.median for line in found} == {1.0}
    assert {line.transport for line in found} == {"csa_ud", "irn", "rc"}


def test_nothing_in_common(ring_run, tmp_path):
    copy = shutil.copytree(ring_run, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    for each in manifest["runs"]:
        each["transport"] = f"my-{each['transport']}"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="have no run in common"):
        comparison.compared(Recorded(ring_run), Recorded(copy))


def test_one_transport_each(tmp_path):
    sides = []
    for name in ("csa_ud", "irn"):
        side = drawn(tmp_path / name, np.random.default_rng(1), noise=0)
        side.manifest["runs"] = [run for run in side.runs if run["transport"] == name]
        sides.append(side)
    found = comparison.compared(*sides)
    assert {line.transport for line in found} == {"csa_ud, irn"}
    assert {line.verdict for line in found} == {"worse"}


def test_on_the_command_line(tmp_path):
    generator = np.random.default_rng(8)
    drawn(tmp_path / "a", generator, noise=0)
    drawn(tmp_path / "b", generator, factor=1.05, noise=0)
    arguments = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0
    assert "1.050 [1.050, 1.050]" in found.output
    assert CliRunner().invoke(app, [*arguments, "--fail-on-worse"]).exit_code == ExitCode.FAILED
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert len(document["comparisons"][0]["figures"]) == 6
    alone = CliRunner().invoke(app, arguments[:2])
    assert alone.exit_code == ExitCode.USAGE


def test_who_means_transports_is_told_how_they_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["latest"], ["csa_ud", "irn"]):
        found = CliRunner().invoke(app, ["compare", *words])
        assert found.exit_code == ExitCode.USAGE
        assert "run each alone" in found.output
    found = CliRunner().invoke(app, ["compare", "nowhere", "irn"])
    assert "no run or sweep is called 'nowhere'" in found.output


def test_nothing_changed_is_a_line(ring_run):
    found = CliRunner().invoke(app, ["compare", str(ring_run), str(ring_run), "--changed"])
    assert "no difference shown in any of" in found.output
    assert "verdict" not in found.output
