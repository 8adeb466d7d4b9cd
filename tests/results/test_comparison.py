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

TIMES = ("makespan_ns", "fct_p50_ns", "fct_p99_ns")
NONE = "no difference shown"


def write(folder, **facts):
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"schema_version": 1, **facts}))
    return Recorded(folder)


def of_rows(folder, rows, transport="irn"):
    """A run directory's manifest with these figures, a seed each."""
    common = {"transport": transport, "verdict": "passed"}
    return write(folder, runs=[common | {"seed": at} | row for at, row in enumerate(rows, 1)])


def times(base, seed, factor, noise):
    """Of one run: they differ by the seed, and by chance."""
    return {key: int(base * (1 + seed / 50) * factor * (1 + noise())) for key in TIMES}


def drawn(folder, generator, factor=1.0, seeds=10, noise=0.03):
    """Runs of csa_ud, and of irn, which takes three times as long."""
    runs = [
        {"transport": transport, "seed": seed, "verdict": "passed"}
        | times(base, seed, factor, lambda: noise * generator.standard_normal())
        for seed in range(1, seeds + 1)
        for transport, base in (("csa_ud", 1e5), ("irn", 3e5))
    ]
    return write(folder, runs=runs)


def drawn_sweep(folder, generator, factor=1.0, seeds=10):
    """A sweep over two losses."""
    found = write(folder, state="done", axes={"loss": ["none", "one"]})
    rows = [
        {"loss": loss, "transport": transport, "seed": seed, "verdict": "passed"}
        | times(base, seed, factor, lambda: 0.03 * generator.standard_normal())
        for loss, base in (("none", 1e5), ("one", 3e5))
        for transport in ("csa_ud", "irn")
        for seed in range(1, seeds + 1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "runs.parquet")
    return found


def compare(*words):
    return CliRunner().invoke(app, ["results", "compare", *map(str, words)])


def document_of(*words):
    return json.loads(compare(*words, "--json").output)


def of_figure(found, figure):
    (line,) = (line for line in found.lines if line.figure == figure)
    return line


def verdicts(found):
    return {line.verdict for line in found.lines}


def test_equal_sweeps_show_no_difference_in_95_of_100_trials(tmp_path):
    generator = np.random.default_rng(11)
    wrong = 0
    for trial in range(60):
        one, other = (drawn_sweep(tmp_path / f"{trial}{side}", generator) for side in "ab")
        found = comparison.compared(one, other)
        assert len(found.lines) == 12
        wrong += verdicts(found) != {NONE}
    assert wrong <= 5


def test_five_percent_longer_is_shown_with_ten_seeds_and_not_with_three(tmp_path):
    generator = np.random.default_rng(8)
    for seeds, shown in ((10, ("worse", "better")), (3, (NONE, NONE))):
        one = drawn(tmp_path / f"{seeds}a", generator, seeds=seeds, noise=0)
        other = drawn(tmp_path / f"{seeds}b", generator, 1.05, seeds=seeds, noise=0.005)
        found = comparison.compared(one, other)
        assert verdicts(found) == {shown[0]}
        assert all(e.ratio.low <= 1.06 and e.ratio.high >= 1.04 for e in found.lines)
        assert verdicts(comparison.compared(other, one)) == {shown[1]}


def test_five_percent_are_shown_for_a_real_run_with_ten_seeds(tmp_path):
    """30 figures of three transports, of which Holm's correction would show none."""
    one = Recorded(made.ring(tmp_path / "runs", "seeds=10"))
    runs = [
        run
        | {key: round(run[key] * 1.05) for key in run if key.endswith("_ns") and _counts(run[key])}
        | {key: round(run[key] / 1.05) for key in run if key.endswith("_bps") and _counts(run[key])}
        for run in one.manifest["runs"]
    ]
    found = comparison.compared(one, write(tmp_path / "b", **one.manifest | {"runs": runs})).lines
    assert len(found) >= 30
    of_time = [line for line in found if line.figure.endswith(("_ns", "_bps"))]
    few = {line.figure for line in of_time if line.pairs < 10}
    assert few <= {"repair_p99_ns"}  # a seed without a loss has none
    assert {line.verdict for line in of_time if line.pairs == 10} == {"worse"}
    assert {line.verdict for line in found if line not in of_time} == {NONE}


def _counts(value):
    return isinstance(value, int)


@pytest.mark.parametrize(
    ("figure", "before", "after", "ratio", "verdict"),
    [  # figures of zero: of twelve seeds seven sent nothing again at first
        ("retransmitted", [0, 0, 5, 0, 1, 0, 4, 0, 6, 0, 1, 0],
         [20, 35, 25, 31, 29, 30, 24, 10, 36, 20, 21, 20], np.inf, "worse"),
        ("retransmitted", [0] * 12, [0] * 12, 1, NONE),
        ("retransmitted", [0, 3, 0, 3], [3, 0, 3, 0], 1, NONE),
        ("goodput_bps", range(10, 90, 10), range(11, 99, 11), 1.1, "better"),
        ("busbw_bps", range(10, 90, 10), range(11, 99, 11), 1.1, "better"),
        ("control_packets", range(10, 90, 10), range(11, 99, 11), 1.1, "worse"),
    ],
)  # fmt: skip
def test_ratios_and_the_direction_of_figures(tmp_path, figure, before, after, ratio, verdict):
    sides = [of_rows(tmp_path / name, [{figure: each} for each in counts])
             for name, counts in (("a", before), ("b", after))]  # fmt: skip
    line = of_figure(comparison.compared(*sides), figure)
    assert (line.pairs, line.verdict) == (len(before), verdict)
    assert line.ratio.median == pytest.approx(ratio)
    assert (line.document()["ratio"]["median"] is None) == (ratio == np.inf)
    json.dumps(line.document(), allow_nan=False)


@pytest.mark.parametrize(
    ("first_only", "second_only", "both", "verdict"),
    [
        (5, 0, 7, NONE),  # 5 heads of 5 tosses: p = 0.06
        (6, 0, 6, "worse"),
        (7, 1, 4, NONE),
        (0, 6, 1, "better"),
        (1, 0, 0, "worse"),  # it works nowhere any more
    ],
)
def test_whether_runs_pass_is_tested(tmp_path, first_only, second_only, both, verdict):
    fails = ["b"] * first_only + ["a"] * second_only + [""] * both
    sides = [
        of_rows(tmp_path / side, [
            {"makespan_ns": 9, "verdict": "failed" if at == side else "passed"} for at in fails
        ])
        for side in "ab"
    ]  # fmt: skip
    (passed,) = comparison.compared(*sides).passed
    assert passed.verdict == verdict


def test_runs_that_failed_are_told_and_worse(tmp_path):
    """Six of twelve failed in the second, which lacks a seed; the others took as long as before."""
    rows = [{"makespan_ns": 1000 + each} for each in range(13)]
    a, b = tmp_path / "a", tmp_path / "b"
    one = of_rows(a, rows)
    of_rows(b, [row | ({"verdict": "error"} if at < 6 else {}) for at, row in enumerate(rows[:12])])
    printed = compare(a, b).output
    assert f"passed in {a} and failed in {b}: seeds 1, 2, 3, 4, 5, 6" in printed
    assert "irn: worse, by the runs that passed" in printed
    for sides in ((a, b), (b, a)):
        assert "irn: in one of the two alone: seed 13" in compare(*sides).output
    (found,) = document_of(a, b)["comparisons"]
    (passed,) = found["passed"]
    assert (passed["first_only"], passed["verdict"]) == ([1, 2, 3, 4, 5, 6], "worse")
    assert [line["pairs"] for line in found["figures"]] == [6]
    assert compare(a, b, "--fail-on-worse").exit_code == ExitCode.FAILED
    assert compare(b, a, "--fail-on-worse").exit_code == 0
    none = of_rows(tmp_path / "c", [row | {"verdict": "failed"} for row in rows])
    found = comparison.compared(one, none)
    assert (found.worse, found.lines) == (True, [])
    with pytest.raises(UserError, match="no run passed in"):
        comparison.compared(none, none)


def test_runs_that_were_not_faithful_are_named_beside_the_verdict(tmp_path):
    """On either side; runs without a verdict on that are of the virtual clock."""
    sides = ("faithful", "not faithful", None, "faithful"), ("faithful",) * 3 + ("not faithful",)
    for folder, of_side in zip("ab", sides, strict=True):
        of_rows(tmp_path / folder, [
            {"fct_p99_ns": 10**6 * seed, "fidelity": each and {"verdict": each, "reasons": []}}
            for seed, each in enumerate(of_side, 1)
        ])  # fmt: skip
    folders = tmp_path / "a", tmp_path / "b"
    printed = compare(*folders).stdout
    assert "no difference shown; not faithful: seeds 2, 4\n" in printed
    assert "1 of 1 figures have fewer than 6 pairs" in printed
    assert document_of(*folders)["comparisons"][0]["figures"][0]["unfaithful"] == [2, 4]


def test_directories_without_a_common_run(ring_run, tmp_path):
    copy = shutil.copytree(ring_run, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    for each in manifest["runs"]:
        each["transport"] = f"my-{each['transport']}"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="have no run in common"):
        comparison.compared(Recorded(ring_run), Recorded(copy))
    rows = [{"makespan_ns": seed} for seed in range(1, 8)]
    slower = [{"makespan_ns": 2 * seed} for seed in range(1, 8)]
    sides = of_rows(tmp_path / "a", rows, "csa_ud"), of_rows(tmp_path / "b", slower)
    (line,) = comparison.compared(*sides).lines  # one transport each
    assert (line.transport, line.verdict) == ("csa_ud, irn", "worse")


def test_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn(tmp_path / "a", np.random.default_rng(8), noise=0)
    drawn(tmp_path / "b", np.random.default_rng(8), factor=1.05, noise=0)
    found = compare("a", "b")
    assert found.exit_code == 0
    assert "1.050 [1.050, 1.050]" in found.output
    assert compare("a", "b", "--fail-on-worse").exit_code == ExitCode.FAILED
    assert len(document_of("a", "b")["comparisons"][0]["figures"]) == 6
    same = compare("a", "a", "--changed").output
    assert "no difference shown in any of 6 figures" in same
    assert "verdict" not in same
    for words in (["a"], ["latest"], ["csa_ud", "irn"]):  # who means transports
        found = compare(*words)
        assert (found.exit_code, "--baseline" in found.output) == (ExitCode.USAGE, True)
    assert "no run or sweep is called 'nowhere'" in compare("nowhere", "irn").output


def test_transports_of_one_directory_are_compared_with_a_baseline(tmp_path):
    """`irn` takes three times as long with each seed, so ten of them agree."""
    run, path = drawn(tmp_path / "a", np.random.default_rng(8), noise=0), tmp_path / "a"
    found = comparison.with_baseline(run, "csa_ud")
    assert list(found) == ["irn"]
    assert verdicts(found["irn"]) == {"worse"}
    assert all(abs(line.ratio.median - 3) < 1e-3 for line in found["irn"].lines)
    assert verdicts(comparison.with_baseline(run, "irn")["csa_ud"]) == {"better"}
    assert compare(path, "--baseline", "csa_ud").output.startswith("irn, compared with csa_ud\n")
    failed = compare(path, "--baseline", "csa_ud", "--fail-on-worse")
    assert failed.exit_code == ExitCode.FAILED
    document = document_of(path, "--baseline", "irn", "--fail-on-worse")
    (compared,) = document["comparisons"]
    assert (document["baseline"], compared["with"]) == ("irn", "csa_ud")
    lines = comparison.with_baseline(drawn_sweep(tmp_path / "s", np.random.default_rng(3)), "irn")[
        "csa_ud"
    ].lines
    assert [(line.cell, line.transport, line.pairs) for line in lines] == (
        3 * [("loss=none", "irn, csa_ud", 10)] + 3 * [("loss=one", "irn, csa_ud", 10)]
    )
    with pytest.raises(UserError, match="no transport 'srnic'"):
        comparison.with_baseline(run, "srnic")
    run.manifest["runs"] = [each for each in run.runs if each["transport"] == "irn"]
    with pytest.raises(UserError, match="no other transport than irn"):
        comparison.with_baseline(run, "irn")
    assert "transports of one directory" in compare(path, path, "--baseline", "irn").output
