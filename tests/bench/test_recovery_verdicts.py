# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab bench recovery` judges: which interval decides, what it is corrected for, and which
figure of which transport stands beside which.
"""

import random

import numpy as np
import pytest

from softroce_lab.bench.recovery import cells as recovery_cells
from softroce_lab.bench.recovery import ratios, verdicts
from softroce_lab.bench.recovery import run as bench_recovery
from softroce_lab.bench.recovery.ratios import Resampled
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.sweep import spec as sweep_spec
from tests.bench.recovery_rows import SEEDS, rows, tail

LOSSES = ("random-0.1%", "random-1%", "bursts", "grey-link", "tail")


@pytest.fixture(scope="module")
def sweep():
    return sweep_spec.load(bench_recovery.TUNING)


@pytest.fixture
def cells(sweep):
    def cells(*of):
        return recovery_cells.cells(sweep, [row for each in of for row in each])

    return cells


@pytest.fixture
def judged(cells):
    """Judges rows; gives the judgements by criterion, of the cells of 64 KiB with loss."""

    def judged(*of):
        return {
            each.criterion: each
            for each in verdicts.judged(cells(*of))
            if each.cell.loss != "none" and each.cell.message_bytes == 65536
        }

    return judged


@pytest.fixture
def outcome(sweep, cells):
    def outcome(*of):
        found = cells(*of)
        return bench_recovery.Outcome(sweep, found, verdicts.judged(found), None)

    return outcome


def some_fast(loss, slow, fast, fast_seeds):
    """csa_ud's runs and rc's: as many of ours are faster, all others slower, by these factors."""
    ours, theirs = rows("csa_ud", loss), rows("rc", loss)
    for row, other in zip(ours, theirs, strict=True):
        by = fast if row["seed"] <= fast_seeds else slow
        row["makespan_ns"] = round(other["makespan_ns"] * by)
    return [*ours, *theirs]


def one_above_before_holm():
    """In one of five cells the whole interval is above: p is 1.3 %, and 6.4 % for five cells."""
    clean = [row for loss in LOSSES[1:] for row in rows("csa_ud", loss) + rows("rc", loss)]
    return [*some_fast(LOSSES[0], 1.3, 0.6, 1), *clean]


# --- Intervals and Holm's correction ---------------------------------------------------------


def test_an_interval_above_the_limit_is_no_miss_if_holm_corrects_it(cells):
    found = verdicts.judged(cells(one_above_before_holm()))
    (one,) = (each for each in found if each.criterion == "time" and each.cell.loss == LOSSES[0])
    assert one.interval[0] > one.limit
    assert 0.01 < one.p_value < 0.025
    assert one.adjusted == pytest.approx(5 * one.p_value)
    assert (one.reachable, one.above, one.missed) == (True, True, False)


def test_what_holm_corrects_fails_nothing(outcome):
    found = outcome(one_above_before_holm())
    assert (found.missed, found.passed) == ([], True)
    assert bench_recovery.lines(found)[-1] == (
        "cells that miss a limit: 0 of 5, 1 before Holm's correction"
    )


def test_a_small_p_value_is_no_miss_if_the_interval_reaches_the_limit(judged):
    """The interval has two ends of 2.5 % each: 3.3 % are not enough."""
    time = judged(some_fast("random-1%", 1.3, 0.756, 2))["time"]
    assert time.value > 1.1
    assert time.interval[0] <= time.limit < time.interval[1]
    assert 0.025 < time.adjusted < 0.05
    assert not time.above
    assert not time.missed


def test_the_p_value_is_of_the_limit_not_of_equality(judged):
    time = judged(rows("csa_ud", scale=1.01), rows("rc"))["time"]
    assert time.value == pytest.approx(1.01, rel=1e-3)
    assert time.p_value == 1


def test_a_resample_at_the_limit_keeps_it():
    assert Resampled(1.0, np.ones(999)).p_above(1.0, seeds=20) == 1


def test_seeds_are_paired_whatever_order_their_runs_ended_in(judged):
    theirs = rows("rc")
    random.Random(1).shuffle(theirs)
    low, high = judged(rows("csa_ud", scale=1.1), theirs)["time"].interval
    assert (low, high) == pytest.approx((1.1, 1.1), rel=1e-3)


# --- Which figure of whom --------------------------------------------------------------------


def test_each_figure_has_its_own_best_baseline(judged):
    found = judged(
        rows("csa_ud", tail_ns=tail(3000, 6000)),
        rows("rc", tail_ns=tail(2000, 9000)),
        rows("irn", tail_ns=tail(4000, 5000)),
        rows("srnic", scale=0.5, tail_ns=tail(4000, 9000)),
    )
    assert [found[each].against for each in ("p99", "p999", "time")] == ["rc", "irn", "srnic"]
    assert [found[each].value for each in ("p99", "p999")] == [1.5, 1.2]


def test_excess_is_of_the_same_percentile_and_the_same_messages(judged):
    found = judged(
        rows("csa_ud", tail_ns=tail(2000, 4000)),
        rows("oracle", tail_ns=tail(1500, 3000)),
        rows("oracle", "none", tail_ns=tail(1000, 1000)),
        rows("oracle", "none", workload="ring-1MiB", tail_ns=tail(200, 200)),
    )
    assert found["excess_p99"].value == (2000 - 1000) / (1500 - 1000)
    assert found["excess_p999"].value == (4000 - 1000) / (3000 - 1000)


def test_excess_is_paired_by_seed():
    ours, oracle, clean = ([300, 500], [200, 300], [100, 200])
    found = recovery_cells.excess(
        *(Resampled(each[0], np.array(each, float)) for each in (ours, oracle, clean)), rtt_ns=10
    )
    assert found.value == 2
    assert found.resamples.tolist() == [2, 3]


def test_a_resample_in_which_loss_costs_the_oracle_nothing_has_no_excess():
    """0 / 0 would make the whole interval no number, which is above no limit."""
    ours, oracle, clean = [300, 500, 100], [200, 300, 100], [100, 200, 100]
    found = recovery_cells.excess(
        *(Resampled(each[0], np.array(each, float)) for each in (ours, oracle, clean)), rtt_ns=10
    )
    assert found.resamples.tolist() == [2, 3]
    never = Resampled(200, np.array([100.0]))
    base = Resampled(100, np.array([100.0]))
    assert recovery_cells.excess(Resampled(300, np.array([300.0])), never, base, 10) is None


def test_a_cell_whose_repair_times_cannot_be_judged_is_named(outcome):
    """A run in which nothing was lost has none, and the geometric mean no value."""
    repairs = {"repair_p50_ns": 100, "repair_p99_ns": 100}
    ours, clean = rows("csa_ud", **repairs), rows("csa_ud", "none")
    ours[2] |= {"repair_p50_ns": None, "repair_p99_ns": None, "repairs": 0}
    found = outcome(ours, rows("oracle", **repairs), clean, rows("oracle", "none"))
    assert not any(each.criterion.startswith("repair") for each in found.judgements)
    assert found.notes == [
        "ring-64KiB/random-1%: repair times are not judged: 1 of 10 runs of csa_ud have none"
    ]


def test_repairs_are_counted_over_all_seeds_of_csa_ud(judged):
    repairs = {"repair_p50_ns": 100, "repair_p99_ns": 100}
    ours = rows("csa_ud", **repairs)
    for row in ours:
        row["repairs"] = row["seed"]
    found = judged(ours, rows("oracle", repairs=7, **repairs))
    assert found["repair_p99_over_oracle"].count == sum(SEEDS)


def test_a_baseline_is_far_by_its_p99(cells):
    far = {"tail_ns": tail(1500, 9000)}
    oracle = rows("oracle", tail_ns=tail(1000, 1000))
    near = cells(rows("csa_ud", tail_ns=tail(1000, 1000)), oracle, rows("rc", **far))
    assert verdicts.far_baselines(near) == (0, 0)


def test_a_far_baseline_that_csa_ud_is_near_to_is_missed(outcome):
    p99_ns = {"csa_ud": 1200, "oracle": 1000, "rc": 1714, "irn": 1715, "srnic": 1599}
    found = outcome(*(rows(name, tail_ns=tail(at, at)) for name, at in p99_ns.items()))
    (missed,) = found.misses
    assert missed == (
        "ring-64KiB/random-1%: p99 0.7001 of rc's, which is 1.71 times the oracle's, limit 0.7"
    )
    assert found.missed == []
    assert not found.passed
    assert found.document()["missed"] == [missed]
    assert f"missed: {missed}" in bench_recovery.lines(found)


@pytest.mark.parametrize("broken", ["csa_ud", "oracle"])
def test_beside_a_run_that_failed_there_are_no_ratios(cells, outcome, broken):
    of = {
        name: rows(name, scale=scale) for name, scale in (("csa_ud", 1), ("oracle", 1), ("rc", 9))
    }
    of[broken][4] |= {"verdict": "failed", "reasons": ["9 of 10 messages: not delivered"]}
    (cell,) = cells(*of.values())
    figures = verdicts.figures(cell, "csa_ud", None)
    assert set(figures.values()) == {None}
    assert verdicts.far_baselines([cell]) == (0, 0)
    assert outcome(*of.values()).passed == (broken == "oracle")


def test_the_document_has_each_percentile_of_each_transport(outcome):
    found = outcome(rows("csa_ud", tail_ns=tail(2000, 4000)), rows("rc", tail_ns=tail(3000, 5000)))
    one, other = found.document()["cells"]
    assert (one["p99_ns"], one["p999_ns"]) == (2000, 4000)
    assert (other["p99_ns"], other["p999_ns"]) == (3000, 5000)


# --- Limits ----------------------------------------------------------------------------------


def test_the_limits_are_those_of_the_document():
    text = (PROJECT_ROOT / "docs/recovery.md").read_text()
    best, clean = verdicts.OVER_BEST, verdicts.OVER_BEST_WITHOUT_LOSS
    oracle, excess = verdicts.OVER_ORACLE, verdicts.EXCESS_LIMITS
    for line in (
        f"over the best of all other transports but the oracle | {best}; {clean} without loss",
        f"| repair time over the oracle's | {oracle['repair_p50_over_oracle']} in the median, "
        f"{oracle['repair_p99_over_oracle']} at p99 |",
        f"| time over the oracle's | {oracle['time_over_oracle']} |",
        f"| excess | {excess['excess_p99']} at p99, {excess['excess_p999']} at p99.9 |",
        f"| spurious retransmissions | {verdicts.SPURIOUS_LIMIT:.1%} |".replace("%", " %"),
        f"| control packets | {verdicts.CONTROL_LIMIT:.0%} |".replace("%", " %"),
        f"| bytes of control packets | {verdicts.CONTROL_BYTES_LIMIT:.0%} |".replace("%", " %"),
        f"p99 is {verdicts.FAR_FROM_ORACLE} times the oracle's",
        f"p99 is at least {verdicts.LOWER_BY:.0%}".replace("%", " %"),
        f"({ratios.RESAMPLES:,} resamples)",
    ):
        assert line in text, line


def test_each_criterion_has_its_limit(judged):
    repairs = {"repair_p50_ns": 100, "repair_p99_ns": 100}
    found = judged(
        rows("csa_ud", **repairs), rows("rc"), rows("oracle", scale=2, **repairs),
        rows("oracle", "none"),
    )  # fmt: skip
    assert {name: each.limit for name, each in found.items()} == {
        **dict.fromkeys(("p99", "p999", "time"), verdicts.OVER_BEST),
        **verdicts.OVER_ORACLE,
        **verdicts.EXCESS_LIMITS,
        "spurious": verdicts.SPURIOUS_LIMIT,
        "control_share": verdicts.CONTROL_LIMIT,
        "control_bytes_share": verdicts.CONTROL_BYTES_LIMIT,
    }
