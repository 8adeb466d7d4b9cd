# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results compare`: what is shown to differ, and how often that would be chance."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results import comparison
from softroce_lab.results.recorded import Recorded
from tests.results import made


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
        found = comparison.compared(one, other).lines
        assert len(found) == 12
        wrong += any(line.verdict != "no difference shown" for line in found)
    assert wrong <= 10


def test_a_sweep_whose_messages_take_five_percent_longer_is_worse(tmp_path):
    """The same seeds on both sides, so that nothing but the 5 % differs."""
    sides = [drawn_sweep(tmp_path / name, np.random.default_rng(3), factor)
             for name, factor in (("a", 1), ("b", 1.05))]  # fmt: skip
    found = comparison.compared(*sides).lines
    assert [line.verdict for line in found] == 12 * ["worse"]
    assert all(abs(line.ratio.median - 1.05) < 1e-3 for line in found)


def test_equal_ones_show_no_difference_in_95_of_100_trials(tmp_path):
    generator = np.random.default_rng(7)
    wrong = 0
    for trial in range(200):
        one, other = (drawn(tmp_path / f"{trial}{side}", generator) for side in "ab")
        found = comparison.compared(one, other).lines
        wrong += any(line.verdict != "no difference shown" for line in found)
    assert wrong <= 10


def test_five_percent_longer_is_shown_with_ten_seeds(tmp_path):
    generator = np.random.default_rng(8)
    one = drawn(tmp_path / "a", generator, noise=0)
    other = drawn(tmp_path / "b", generator, factor=1.05, noise=0.005)
    found = comparison.compared(one, other).lines
    assert {line.verdict for line in found} == {"worse"}
    for line in found:
        assert line.ratio.low <= 1.05 * 1.01
        assert line.ratio.high >= 1.05 * 0.99
    assert {line.verdict for line in comparison.compared(other, one).lines} == {"better"}


def test_few_seeds_show_nothing(tmp_path):
    generator = np.random.default_rng(9)
    one = drawn(tmp_path / "a", generator, seeds=3, noise=0)
    other = drawn(tmp_path / "b", generator, seeds=3, factor=3, noise=0)
    assert {line.verdict for line in comparison.compared(one, other).lines} == {
        "no difference shown"
    }


def made_of(folder, rows):
    """A run directory's manifest with these figures."""
    folder.mkdir()
    runs = [{"transport": "irn", "seed": seed + 1, "verdict": "passed"} | row
            for seed, row in enumerate(rows)]  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"schema_version": 1, "runs": runs}))
    return Recorded(folder)


def of_figure(found, figure):
    (line,) = (line for line in found.lines if line.figure == figure)
    return line


def test_a_figure_of_zero_is_one(tmp_path):
    """Twelve seeds that sent 17 packets again, against 301; seven of them none at first."""
    before = [0, 0, 5, 0, 1, 0, 4, 0, 6, 0, 1, 0]
    after = [20, 35, 25, 31, 29, 30, 24, 10, 36, 20, 21, 20]
    sides = [
        made_of(tmp_path / name, [{"retransmitted": each} for each in counts])
        for name, counts in (("a", before), ("b", after))
    ]
    line = of_figure(comparison.compared(*sides), "retransmitted")
    assert (line.pairs, line.first, line.second, line.verdict) == (12, 0, 24.5, "worse")
    assert line.ratio.median == float("inf")
    assert line.document()["ratio"]["median"] is None
    json.dumps(line.document(), allow_nan=False)
    line = of_figure(comparison.compared(*reversed(sides)), "retransmitted")
    assert (line.verdict, line.ratio.median) == ("better", 0)


def test_zeros_on_both_sides_are_equal(tmp_path):
    sides = [made_of(tmp_path / name, 12 * [{"retransmitted": 0}]) for name in "ab"]
    line = of_figure(comparison.compared(*sides), "retransmitted")
    assert (line.pairs, line.ratio.median, line.verdict) == (12, 1, "no difference shown")


def test_zeros_on_either_side_have_no_direction(tmp_path):
    one, other = ([0, 3, 0, 3], [3, 0, 3, 0])
    sides = [
        made_of(tmp_path / name, [{"retransmitted": each} for each in counts])
        for name, counts in (("a", one), ("b", other))
    ]
    line = of_figure(comparison.compared(*sides), "retransmitted")
    assert (line.ratio.median, line.verdict) == (1, "no difference shown")


def test_more_of_a_good_figure_is_better(tmp_path):
    """A figure of each kind: of a time less is better, of a rate more."""
    for figure, verdict in (("goodput_bps", "better"), ("busbw_bps", "better"),
                            ("algbw_bps", "better"), ("control_packets", "worse")):  # fmt: skip
        sides = [
            made_of(tmp_path / f"{figure}{name}", [{figure: each * factor} for each in range(1, 9)])
            for name, factor in (("a", 10), ("b", 11))
        ]
        assert of_figure(comparison.compared(*sides), figure).verdict == verdict


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_runs_that_failed_are_told_and_worse(tmp_path, verdict):
    """Six of twelve failed in the second; the six others took as long as before."""
    rows = [{"makespan_ns": 1000 + each} for each in range(12)]
    made_of(tmp_path / "a", rows)
    failed = [row | ({"verdict": verdict} if at < 6 else {}) for at, row in enumerate(rows)]
    made_of(tmp_path / "b", failed)
    arguments = ["results", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    found = CliRunner().invoke(app, arguments)
    assert f"passed in {tmp_path / 'a'} and failed in {tmp_path / 'b'}: seeds 1, 2, 3, 4, 5, 6" in (
        found.output
    )
    assert "irn: worse, by the runs that passed" in found.output
    assert CliRunner().invoke(app, [*arguments, "--fail-on-worse"]).exit_code == ExitCode.FAILED
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    (passed,) = document["comparisons"][0]["passed"]
    assert (passed["first_only"], passed["verdict"]) == ([1, 2, 3, 4, 5, 6], "worse")
    assert [line["pairs"] for line in document["comparisons"][0]["figures"]] == [6]
    back = ["results", "compare", str(tmp_path / "b"), str(tmp_path / "a"), "--fail-on-worse"]
    assert CliRunner().invoke(app, back).exit_code == 0


@pytest.mark.parametrize(
    ("first_only", "second_only", "both", "verdict"),
    [
        (5, 0, 7, "no difference shown"),  # 5 heads of 5 tosses: p = 0.06
        (6, 0, 6, "worse"),
        (7, 1, 4, "no difference shown"),
        (0, 6, 1, "better"),
        (1, 0, 0, "worse"),  # it works nowhere any more
    ],
)
def test_whether_runs_pass_is_tested(tmp_path, first_only, second_only, both, verdict):
    fails = ["b"] * first_only + ["a"] * second_only + [""] * both
    sides = [
        made_of(
            tmp_path / side,
            [{"makespan_ns": 9, "verdict": "failed" if at == side else "passed"} for at in fails],
        )
        for side in "ab"
    ]
    (passed,) = comparison.compared(*sides).passed
    assert passed.verdict == verdict


def test_all_runs_failed(tmp_path):
    rows = [{"makespan_ns": 1000 + each} for each in range(3)]
    one = made_of(tmp_path / "a", rows)
    other = made_of(tmp_path / "b", [row | {"verdict": "failed"} for row in rows])
    found = comparison.compared(one, other)
    assert found.worse
    assert not found.lines
    with pytest.raises(UserError, match="no run passed in"):
        comparison.compared(other, other)
    arguments = ["results", "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-on-worse"]
    assert CliRunner().invoke(app, arguments).exit_code == ExitCode.FAILED


def test_seeds_of_one_side_alone_are_told(tmp_path):
    rows = [{"makespan_ns": 1000 + each} for each in range(4)]
    made_of(tmp_path / "a", rows)
    made_of(tmp_path / "b", rows[:3])
    found = CliRunner().invoke(
        app, ["results", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    )
    assert "irn: in one of the two alone: seed 4" in found.output
    assert "1 of 1 figures have fewer than 6 pairs" in found.output


def longer(recorded, folder, factor):
    """The same runs, as if every message had taken `factor` as long."""
    runs = []
    for run in recorded.runs:
        times = {key: round(run[key] * factor) for key in run
                 if key.endswith("_ns") and isinstance(run[key], int)}  # fmt: skip
        rates = {key: round(run[key] / factor) for key in run
                 if key.endswith("_bps") and isinstance(run[key], int)}  # fmt: skip
        runs.append({**run, **times, **rates})
    folder.mkdir()
    manifest = recorded.manifest | {"runs": runs}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Recorded(folder)


def test_five_percent_are_shown_for_a_real_run_with_ten_seeds(tmp_path):
    """30 figures of three transports, of which Holm's correction would show none."""
    one = Recorded(made.ring(tmp_path / "runs", "seeds=10"))
    found = comparison.compared(one, longer(one, tmp_path / "longer", 1.05)).lines
    assert len(found) >= 30
    assert {line.transport for line in found} == {"csa_ud", "irn", "rc"}
    of_time = [line for line in found if line.figure.endswith(("_ns", "_bps"))]
    few = {line.figure for line in of_time if line.pairs < 10}
    assert few <= {"repair_p99_ns"}  # a seed without a loss has none
    assert {line.verdict for line in of_time if line.pairs == 10} == {"worse"}
    others = {line.verdict for line in found if line not in of_time}
    assert others == {"no difference shown"}


def test_a_directory_equals_itself(ring_run):
    found = comparison.compared(Recorded(ring_run), Recorded(ring_run)).lines
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
    found = comparison.compared(*sides).lines
    assert {line.transport for line in found} == {"csa_ud, irn"}
    assert {line.verdict for line in found} == {"worse"}


def test_on_the_command_line(tmp_path):
    generator = np.random.default_rng(8)
    drawn(tmp_path / "a", generator, noise=0)
    drawn(tmp_path / "b", generator, factor=1.05, noise=0)
    arguments = ["results", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0
    assert "1.050 [1.050, 1.050]" in found.output
    assert CliRunner().invoke(app, [*arguments, "--fail-on-worse"]).exit_code == ExitCode.FAILED
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert len(document["comparisons"][0]["figures"]) == 6
    alone = CliRunner().invoke(app, arguments[:2])
    assert alone.exit_code == ExitCode.USAGE


def test_runs_that_were_not_faithful_are_named_beside_the_verdict(tmp_path):
    """On either side; runs without a verdict on that are of the virtual clock."""
    verdicts = ("faithful", "not faithful", None, "faithful"), ("faithful",) * 3 + ("not faithful",)
    for folder, of_side in zip("ab", verdicts, strict=True):
        made_of(tmp_path / folder, [
            {"transport": "csa_ud", "seed": seed, "verdict": "passed", "fct_p99_ns": 10**6 * seed,
             "fidelity": verdict and {"verdict": verdict, "reasons": []}}
            for seed, verdict in enumerate(of_side, 1)
        ])  # fmt: skip
    sides = [str(tmp_path / folder) for folder in "ab"]
    printed = CliRunner().invoke(app, ["results", "compare", *sides]).stdout
    assert "no difference shown; not faithful: seeds 2, 4\n" in printed
    document = json.loads(CliRunner().invoke(app, ["results", "compare", *sides, "--json"]).stdout)
    assert document["comparisons"][0]["figures"][0]["unfaithful"] == [2, 4]


def test_who_means_transports_is_told_how_they_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["latest"], ["csa_ud", "irn"]):
        found = CliRunner().invoke(app, ["results", "compare", *words])
        assert found.exit_code == ExitCode.USAGE
        assert "--baseline" in found.output
    found = CliRunner().invoke(app, ["results", "compare", "nowhere", "irn"])
    assert "no run or sweep is called 'nowhere'" in found.output


def test_nothing_changed_is_a_line(ring_run):
    found = CliRunner().invoke(
        app, ["results", "compare", str(ring_run), str(ring_run), "--changed"]
    )
    assert "no difference shown in any of" in found.output
    assert "verdict" not in found.output


def test_transports_of_one_run_are_compared_with_a_baseline(tmp_path):
    """`irn` takes three times as long with each seed, so ten of them agree."""
    run = drawn(tmp_path / "a", np.random.default_rng(8), noise=0)
    found = comparison.with_baseline(run, "csa_ud")
    assert list(found) == ["irn"]
    assert {line.verdict for line in found["irn"].lines} == {"worse"}
    assert all(abs(line.ratio.median - 3) < 1e-3 for line in found["irn"].lines)
    back = comparison.with_baseline(run, "irn")["csa_ud"]
    assert {line.verdict for line in back.lines} == {"better"}


def test_a_baseline_has_each_cell_of_a_sweep(tmp_path):
    sweep = drawn_sweep(tmp_path / "a", np.random.default_rng(3))
    lines = comparison.with_baseline(sweep, "irn")["csa_ud"].lines
    assert [(line.cell, line.transport) for line in lines] == (
        3 * [("loss=none", "irn, csa_ud")] + 3 * [("loss=one", "irn, csa_ud")]
    )
    assert all(line.pairs == 10 for line in lines)


def test_a_baseline_on_the_command_line(tmp_path):
    drawn(tmp_path / "a", np.random.default_rng(8), noise=0)
    arguments = ["results", "compare", str(tmp_path / "a"), "--baseline"]
    found = CliRunner().invoke(app, [*arguments, "csa_ud"])
    assert found.exit_code == 0
    assert found.output.startswith("irn, compared with csa_ud\n")
    failed = CliRunner().invoke(app, [*arguments, "csa_ud", "--fail-on-worse"])
    assert failed.exit_code == ExitCode.FAILED
    assert CliRunner().invoke(app, [*arguments, "irn", "--fail-on-worse"]).exit_code == 0
    document = json.loads(CliRunner().invoke(app, [*arguments, "irn", "--json"]).output)
    assert document["baseline"] == "irn"
    (compared,) = document["comparisons"]
    assert (compared["with"], len(compared["figures"])) == ("csa_ud", 3)


def test_baselines_that_are_refused(tmp_path):
    run = drawn(tmp_path / "a", np.random.default_rng(8))
    with pytest.raises(UserError, match="no transport 'srnic'"):
        comparison.with_baseline(run, "srnic")
    run.manifest["runs"] = [each for each in run.runs if each["transport"] == "irn"]
    with pytest.raises(UserError, match="no other transport than irn"):
        comparison.with_baseline(run, "irn")
    where = str(tmp_path / "a")
    found = CliRunner().invoke(app, ["results", "compare", where, where, "--baseline", "irn"])
    assert found.exit_code == ExitCode.USAGE
    assert "transports of one directory" in found.output
