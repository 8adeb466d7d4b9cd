# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench recovery`: its cells, its judgements, and its short form."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from softroce_lab.bench.recovery import cells as recovery_cells
from softroce_lab.bench.recovery import run as bench_recovery
from softroce_lab.bench.recovery import verdicts
from softroce_lab.cli.app import app
from softroce_lab.recovery import registry
from softroce_lab.sweep import spec as sweep_spec
from tests.bench.recovery_rows import rows


@pytest.fixture(scope="module")
def sweep():
    return sweep_spec.load(bench_recovery.TUNING)


@pytest.fixture(scope="module")
def full():
    return sweep_spec.load(bench_recovery.FULL)


@pytest.fixture
def judged(sweep):
    """Judges rows; gives the judgements by criterion, of the cells with loss."""

    def judged(*of):
        found = verdicts.judged(recovery_cells.cells(sweep, [row for each in of for row in each]))
        return {each.criterion: each for each in found if each.cell.loss != "none"}

    return judged


def test_a_cell_is_named_by_its_workload_messages_and_loss(sweep):
    both = rows("rc") + rows("rc", workload="web-search")
    first, second = recovery_cells.cells(sweep, both)
    assert (first.workload, first.message_bytes, first.loss) == ("ring", 65536, "random-1%")
    assert (second.workload, second.message_bytes) == ("web-search", None)
    assert [first.name, second.name] == ["ring-64KiB/random-1%", "web-search/random-1%"]


def test_a_cell_without_the_same_seeds_of_all_transports_is_left_out(sweep):
    assert recovery_cells.cells(sweep, rows("rc") + rows("irn")[:-1]) == []


def test_the_best_baseline_is_what_counts(judged):
    found = judged(rows("csa_ud"), rows("rc", scale=3), rows("irn", scale=1.01))
    assert (found["p99"].against, found["time"].against) == ("irn", "irn")
    assert found["p99"].value == pytest.approx(1 / 1.01, rel=1e-3)
    assert not any(each.missed for each in found.values())


def test_what_is_slower_than_the_best_is_missed(judged):
    found = judged(rows("csa_ud", scale=1.1), rows("rc"), rows("irn", scale=2))
    assert [name for name, each in found.items() if each.missed] == ["p99", "p999", "time"]
    assert found["time"].interval == pytest.approx((1.1, 1.1), rel=1e-3)
    assert found["p99"].text == "p99 1.1 [1.100, 1.100] of rc's, limit 1.02"


def test_our_header_is_allowed_for_without_loss(sweep):
    both = rows("csa_ud", "none", scale=1.04) + rows("rc", "none")
    limits = {each.criterion: each for each in verdicts.judged(recovery_cells.cells(sweep, both))}
    assert limits["time"].limit == 1.05
    assert not limits["time"].missed


def test_chance_is_not_missed(judged):
    """One seed of ten is slow: the interval reaches below the limit."""
    ours = rows("csa_ud")
    ours[3]["makespan_ns"] *= 5
    found = judged(ours, rows("rc"))
    assert found["time"].value > 1.1
    assert not found["time"].missed


def test_few_seeds_cannot_be_significant_and_the_interval_alone_decides(sweep):
    """Two seeds agree by chance in a quarter of all cases, so Holm's correction never passes."""
    few = [row for row in rows("csa_ud", scale=1.1) + rows("rc") if row["seed"] <= 2]
    found = verdicts.judged(recovery_cells.cells(sweep, few))
    time = next(each for each in found if each.criterion == "time")
    assert (time.p_value, time.reachable, time.missed) == (0.25, False, True)
    assert verdicts.unreachable(found) == [
        "2 seeds cannot be significant among 1 tests by Holm's correction (least p 0.25, 0.05 is "
        "wanted; 5 seeds can): the interval alone decides there"
    ]
    many = verdicts.judged(recovery_cells.cells(sweep, rows("csa_ud", scale=1.1) + rows("rc")))
    assert verdicts.unreachable(many) == []


def test_ten_seeds_are_too_few_for_all_cells(full, judged):
    cells = len(full.combinations)
    one = judged(rows("csa_ud", scale=1.1), rows("rc"))["time"]
    among_all = dataclasses.replace(one, tests=cells, adjusted=min(1, one.p_value * cells))
    assert one.p_value == 0.5 ** len(full.seeds)
    assert not among_all.reachable
    (note,) = verdicts.unreachable([among_all])
    assert "10 seeds cannot be significant among 78 tests" in note
    assert "11 seeds can" in note


def test_repair_times_have_their_number_of_samples(judged, sweep):
    slow = {"repair_p50_ns": 160, "repair_p99_ns": 160}
    ours = rows("csa_ud", **slow)
    found = judged(ours, rows("oracle", repair_p50_ns=100, repair_p99_ns=100))
    assert found["repair_p99_over_oracle"].text.endswith(", limit 1.5, n 300")
    assert found["time_over_oracle"].count is None


def test_shares_have_no_interval(judged):
    much = {"spurious_retransmissions": 51, "control_packets": 1501, "control_bytes": 800_001}
    found = judged(rows("csa_ud", **much), rows("rc"))
    shares = ("spurious", "control_share", "control_bytes_share")
    assert all(found[each].missed for each in shares)
    few = {each: value - 1 for each, value in much.items()}
    found = judged(rows("csa_ud", **few), rows("rc"))
    assert not any(found[each].missed for each in shares)


def test_beside_the_oracle(judged):
    repairs = {"repair_p50_ns": 100, "repair_p99_ns": 100}
    slow = {"repair_p50_ns": 120, "repair_p99_ns": 160}
    found = judged(
        rows("csa_ud", scale=1.5, **slow), rows("rc", scale=9),
        rows("oracle", scale=1.4, **repairs), rows("oracle", "none"),
    )  # fmt: skip
    assert found["repair_p50_over_oracle"].value == pytest.approx(1.2)
    assert not found["repair_p50_over_oracle"].missed
    assert found["repair_p99_over_oracle"].missed
    assert found["time_over_oracle"].missed
    assert found["excess_p99"].value == pytest.approx(0.5 / 0.4, rel=0.01)
    assert found["p99"].against == "rc"  # the oracle is no baseline


def test_excess_is_not_defined_where_queues_hide_the_loss(judged):
    found = judged(rows("csa_ud"), rows("oracle", scale=1.02), rows("oracle", "none"), rows("rc"))
    assert "excess_p99" not in found


def test_a_run_that_failed_is_told_and_its_transport_is_no_baseline(sweep):
    broken = rows("rc", scale=0.5)
    broken[2] |= {"verdict": "failed", "reasons": ["9 of 10 messages: not delivered"]}
    found = recovery_cells.cells(sweep, rows("csa_ud") + broken + rows("irn"))
    assert verdicts.failures(found) == [
        "ring-64KiB/random-1%: 1 of 10 runs of rc failed: 9 of 10 messages: not delivered"
    ]
    assert {each.against for each in verdicts.judged(found)} == {"irn", None}


def test_baselines_far_from_the_oracle_are_counted(sweep):
    found = recovery_cells.cells(
        sweep,
        rows("csa_ud", scale=1.2) + rows("oracle") + rows("rc", scale=2)
        + rows("irn", scale=1.65) + rows("srnic", scale=1.5),
    )  # fmt: skip
    assert verdicts.far_baselines(found) == (1, 2)


# --- The sweeps ------------------------------------------------------------------------------


def test_both_sweeps_differ_in_size_and_seeds_alone(sweep, full):
    assert [axis.name for axis in full.axes] == [axis.name for axis in sweep.axes]
    for ours, tuned in zip(full.combinations, sweep.combinations, strict=True):
        assert [point.label for point in ours.points] == [point.label for point in tuned.points]
        one, other = ours.experiment.document(), tuned.experiment.document()
        assert one["faults"] == other["faults"]
        assert one["transports"] == other["transports"]
        message, of_other = (each["workload"].get("message") for each in (one, other))
        assert message == of_other
    assert set(full.seeds).isdisjoint(sweep.seeds)
    assert (len(full.seeds), len(sweep.seeds)) == (10, 10)


def test_a_cell_has_ten_thousand_messages_of_all_seeds(full):
    for each in full.combinations:
        if each.points[1].label == recovery_cells.NO_LOSS:
            one = each.experiment.workload(full.seeds[0])
            if each.points[0].label == "web-search":  # so many arrive after the warm-up
                count = sum(int(each.experiment.workload(s).warm.sum()) for s in full.seeds)
            else:  # what the seed draws differs by little
                count = one.message_count * len(full.seeds)
            assert count >= 10_000, each.title


def test_rows_that_name_paths_have_as_many_as_csa_ud(sweep):
    def paths(name):
        return next(k.default for k in registry.find(name).knobs if k.name == "paths")

    for transport in sweep.combinations[0].experiment.transports:
        if transport.label.endswith("-paths"):
            assert dict(transport.set_knobs) == {"paths": paths("csa_ud")}


BLIND = """\
name: blind
experiment:
  topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
  workload: {kind: permutation, bytes: 64KiB, message: 64KiB}
over:
  workload: {small-64KiB: {}}
  loss: {none: {}, tail: {faults: [{name: tails, links: "*->*", drop: {tail: 1, iter: 1}}]}}
transports: [csa_ud, rc, sdr_sr]
seeds: [1, 2]
"""


class Recorded(list):
    def say(self, text):
        self.append(text)

    def begin(self, runs):
        self.append(runs)

    def done(self, task, row):
        pass


def test_a_baseline_that_a_rule_cannot_hit_is_left_out_of_that_cell_visibly(tmp_path):
    """Over UC WRITEs nothing shows which packet is a tail."""
    (tmp_path / "blind.yaml").write_text(BLIND)
    recorded = Recorded()
    options = bench_recovery.Options(str(tmp_path / "blind.yaml"), under=tmp_path, jobs=1)
    outcome = bench_recovery.run(options, recorded)
    clean, tail = outcome.cells
    assert set(clean.of) == {"csa_ud", "rc", "sdr_sr"}
    assert set(tail.of) == {"csa_ud", "rc"}
    assert recorded[0].startswith("sdr_sr left out: rule 'tails' of links ")
    assert recorded[1] == 2 * (3 + 2)  # nothing runs in vain
    assert any(line.startswith("note: small-64KiB/tail: sdr_sr left out")
               for line in bench_recovery.lines(outcome))  # fmt: skip
    document = outcome.document()
    assert document["left_out"]["small-64KiB/tail"][0]["transport"] == "sdr_sr"


def test_cells_that_were_not_chosen_do_not_run(tmp_path):
    (tmp_path / "blind.yaml").write_text(BLIND)
    recorded = Recorded()
    name = str(tmp_path / "blind.yaml")
    options = bench_recovery.Options(name, cells=("*/none",), under=tmp_path, jobs=1)
    outcome = bench_recovery.run(options, recorded)
    assert [cell.name for cell in outcome.cells] == ["small-64KiB/none"]
    assert recorded == [2 * 3]


# --- The command -----------------------------------------------------------------------------


def test_the_short_form(tmp_path):
    arguments = ["bench", "recovery", "--short", "--json", "-q", "--resume", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--cells", "ring-64KiB/*"])
    found = json.loads(result.stdout)
    assert result.exit_code == (found["verdict"] == "failed")
    assert found["failed"] == []
    keys = {
        "workload", "loss", "message_bytes", "transport", "p99_ns", "p999_ns", "time_ns",
        "time_over_oracle", "repair_p50_over_oracle", "repair_p99_over_oracle", "excess_p99",
        "spurious", "control_share",
    }  # fmt: skip
    assert all(row.keys() >= keys for row in found["cells"])
    assert {row["loss"] for row in found["cells"]} >= {"none", "random-1%"}
    assert {each["criterion"] for each in found["judgements"]} >= {"p99", "p999", "time"}
    rows = (tmp_path / bench_recovery.TUNING / "rows.jsonl").read_text()
    again = CliRunner().invoke(app, [*arguments, "--cells", "ring-64KiB/*"])
    assert (tmp_path / bench_recovery.TUNING / "rows.jsonl").read_text() == rows
    assert json.loads(again.stdout)["cells"] == found["cells"]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--tuning", "-j", "3"], {"sweep": bench_recovery.TUNING, "jobs": 3}),
        (["--short", "--cells", "a", "--cells", "b"], {"short": True, "cells": ("a", "b")}),
    ],
)
def test_the_options_reach_the_comparison(sweep, tmp_path, monkeypatch, arguments, options):
    wanted = []
    outcome = bench_recovery.Outcome(sweep, [], [], tmp_path)
    monkeypatch.setattr(bench_recovery, "run", lambda *of: wanted.append(of[0]) or outcome)
    where = ["--resume", str(tmp_path)]
    assert CliRunner().invoke(app, ["bench", "recovery", *arguments, *where]).exit_code == 0
    assert wanted == [bench_recovery.Options(under=tmp_path, **options)]


def test_where_nothing_can_be_kept_the_hint_names_this_commands_option(tmp_path):
    (tmp_path / "file").touch()
    where = ["--resume", str(tmp_path / "file")]
    cell = ["--cells", "ring-64KiB/none"]
    result = CliRunner().invoke(app, ["bench", "recovery", "--short", *cell, *where])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no folder can be made" in result.stderr
    assert "hint: --resume DIR puts it elsewhere" in result.stderr


def test_a_cell_that_there_is_not_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_spec, "load", lambda name: pytest.fail("it makes all experiments"))
    result = CliRunner().invoke(
        app, ["bench", "recovery", "--short", "--cells", "ring/none", "--resume", str(tmp_path)]
    )
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("lab: recovery-k4 has no cell 'ring/none'")
    assert "cells are {ring-64KiB, ring-1MiB, " in result.stderr
    assert "}/{none, random-0.1%, " in result.stderr


def test_lines(sweep):
    found = recovery_cells.cells(sweep, rows("csa_ud", scale=1.1) + rows("rc") + rows("oracle"))
    outcome = bench_recovery.Outcome(sweep, found, verdicts.judged(found), None)
    first, explained, *rest = bench_recovery.lines(outcome)
    assert first.startswith("ring-64KiB/random-1%  p99 1.10 [1.10, 1.10] of rc  p999 1.10")
    assert "MISSED p99 p999 time time_over_oracle" in first
    assert explained.startswith("p99, p999, time: csa_ud's over those of the best baseline")
    assert rest[0].startswith("missed: ring-64KiB/random-1%: p99 1.1 [1.1")
    assert rest[-2].startswith("baselines with a p99 of 1.6 times the oracle's or more: 0; csa_ud")
    assert rest[-1] == "cells that miss a limit: 1 of 1, 1 before Holm's correction"
