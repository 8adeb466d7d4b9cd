# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps compare each run with the bounds: the oracle's, with and without the loss."""

import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment.sweep import bounds, campaign, spec, table
from softroce_lab.experiment.sweep.bounds import loss_free

TEXT = """\
# About it.
name: bounded
experiment:
  topology: {generator: {kind: star, hosts: 3, access: {rate: 10Gbit limit 1000, delay: 1us}}}
  workload: {kind: permutation, bytes: 64KiB, message: 16KiB}
  faults: [{name: late, links: "*->*", reorder: 1%}]
  deadline: 5s
transports: [oracle, irn]
over:
  workload.message: [8KiB, 16KiB]
  loss:
    none: {}
    late: {faults: [{name: late, links: "*->*", reorder: 2%}]}
    some: {faults: [{name: late, links: "*->*", reorder: 1%},
                    {name: loss, links: "*->*", loss: random 5%}]}
seeds: 2
"""


@pytest.fixture
def sweep(tmp_path):
    file = tmp_path / "bounded.yaml"
    file.write_text(TEXT)
    return spec.load(file)


def rows_of(sweep, p99_ns):
    """A row of each run; `p99_ns`: by (message, loss, transport)."""
    return [
        {
            **task.values, "run": task.number, "transport": task.transport.label,
            "protocol": task.transport.protocol, "seed": task.seed, "verdict": "passed",
            "reasons": [], "base_rtt_ns": 8000,
            "fct_p50_ns": 1000, "fct_p999_ns": None, "step_mean_ns": None,
            "fct_p99_ns": p99_ns.get((*task.labels.values(), task.transport.label), 50_000),
            "repair_p50_ns": None, "repair_p99_ns": None, "measured": 100,
            "makespan_ns": 1000 + task.seed,
        }
        for task in sweep.tasks("")
    ]  # fmt: skip


KNOWN = {
    ("8KiB", "none", "oracle"): 20_000,
    ("8KiB", "some", "oracle"): 30_000,
    ("8KiB", "some", "irn"): 45_000,
    ("16KiB", "none", "oracle"): 20_000,
    ("16KiB", "some", "oracle"): 20_100,
}


def test_the_excess_takes_the_cell_that_is_the_same_without_loss(sweep):
    """Not the one whose links reorder more, and not the one with messages of another size."""
    rows = rows_of(sweep, KNOWN)
    found = {(r["workload.message"], r["loss"], r["transport"]): r["excess_p99"]
             for r in added(sweep, rows)}  # fmt: skip
    assert found["8KiB", "some", "irn"] == 2.5
    assert found["8KiB", "some", "oracle"] == 1.0
    assert found["16KiB", "some", "irn"] == "undefined"
    assert {found[message, loss, "irn"] for message in ("8KiB", "16KiB")
            for loss in ("none", "late")} == {None}  # fmt: skip


def test_of_two_cells_without_loss_the_first_is_compared_with(tmp_path):
    """The same experiment under two names, whose runs took another time."""
    file = tmp_path / "bounded.yaml"
    file.write_text(TEXT.replace("    some:", "    again: {}\n    some:"))
    twice = spec.load(file)
    clean = loss_free(twice.by_labels)
    first = ("8KiB", "none")
    assert [clean["8KiB", loss] for loss in ("none", "again", "some")] == [first] * 3
    rows = added(twice, rows_of(twice, KNOWN | {("8KiB", "again", "oracle"): 10_000}))
    found = {(r["workload.message"], r["loss"], r["transport"]): r["excess_p99"] for r in rows}
    assert found["8KiB", "some", "irn"] == 2.5


def test_the_excess_is_of_runs_of_one_seed(sweep):
    rows = rows_of(sweep, KNOWN)
    for row in rows:
        row["fct_p99_ns"] += 10**6 * row["seed"]
        if (row["seed"], row["loss"], row["transport"]) == (2, "some", "irn"):
            row["fct_p99_ns"] += 5_000
    wanted = ("8KiB", "some", "irn")
    found = {
        row["seed"]: row["excess_p99"]
        for row in added(sweep, rows)
        if (row["workload.message"], row["loss"], row["transport"]) == wanted
    }
    assert found == {1: 2.5, 2: 3.0}


def test_without_a_run_of_the_oracle_there_is_none(sweep):
    rows = [row for row in rows_of(sweep, KNOWN) if row["transport"] != "oracle"]
    assert {(row["excess_p99"], row["time_over_oracle"]) for row in added(sweep, rows)} == {
        (None, None)
    }
    clean = [row for row in rows_of(sweep, KNOWN) if row["loss"] != "none"]
    found = added(sweep, clean)
    assert {row["excess_p99"] for row in found} == {None}
    assert {row["time_over_oracle"] for row in found} == {1.0}


def test_without_a_transport_lossless_the_oracles_run_without_loss_stands_for_it(sweep):
    ratios = {(r["workload.message"], r["loss"], r["transport"]): r["fct_p99_over_lossless"]
              for r in added(sweep, rows_of(sweep, KNOWN))}  # fmt: skip
    assert ratios["8KiB", "some", "irn"] == 45_000 / 20_000
    assert ratios["8KiB", "some", "oracle"] == 1.5
    assert ratios["8KiB", "none", "oracle"] == 1
    assert ratios["8KiB", "none", "irn"] == 2.5
    assert ratios["8KiB", "late", "irn"] == 1  # over its own oracle: another fabric


def test_a_transport_lossless_comes_first(tmp_path):
    file = tmp_path / "bounded.yaml"
    file.write_text(TEXT.replace("[oracle, irn]", "[oracle, irn, lossless]"))
    own = spec.load(file)
    rows = rows_of(own, KNOWN | {("8KiB", "some", "lossless"): 15_000})
    wanted = ("8KiB", "some", "irn")
    irn, _ = (
        row
        for row in added(own, rows)
        if (row["workload.message"], row["loss"], row["transport"]) == wanted
    )
    assert irn["fct_p99_over_lossless"] == 3
    assert irn["excess_p99"] == 2


def test_the_table_says_where_it_is_undefined(sweep):
    text = table.document(sweep, added(sweep, rows_of(sweep, KNOWN)))
    assert "excess of p99" in text
    assert "undefined" in text
    assert "less than half a base RTT" in text
    assert "2.500" in text


def added(sweep, rows):
    return bounds.added([axis.name for axis in sweep.axes], sweep.by_labels, rows)


class Reporter:
    def say(self, text):
        pass

    def begin(self, runs):
        pass

    def done(self, task, row):
        pass


def test_a_sweep_writes_them(sweep, tmp_path):
    options = campaign.Options(under=tmp_path, only=("workload.message=16KiB",), jobs=1)
    outcome = campaign.run(sweep, options, Reporter())
    assert outcome.passed
    rows = pq.read_table(outcome.table).to_pylist()
    irn = [r for r in rows if (r["loss"], r["transport"]) == ("some", "irn")]
    assert all(row["repairs"] > 0 for row in irn)
    for row in irn:
        name = ("some", "oracle", row["seed"])
        (bound,) = (r for r in rows if (r["loss"], r["transport"], r["seed"]) == name)
        assert row["repair_p50_over_oracle"] == row["repair_p50_ns"] / bound["repair_p50_ns"]
        assert row["time_over_oracle"] == row["makespan_ns"] / bound["makespan_ns"]
    assert all(row["repair_p50_ns"] is None for row in rows if row["loss"] == "none")
    again = campaign.run(sweep, options, Reporter())
    assert again.kept == len(rows)
