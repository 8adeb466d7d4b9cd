# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps that are carried out: rows, what is kept of them, and what may go wrong beside them."""

import contextlib
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import code_version, virtual
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.sweep import campaign
from softroce_lab.experiment.sweep import pool as sweep_pool
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep.campaign import Options
from softroce_lab.experiment.sweep.pool import Work
from tests.experiment.sweep.sweep_works import blocked_signals, die_at_three
from tests.labs import lives

SWEEP = """\
name: many
experiment:
  topology: {generator: {kind: star, hosts: 3, access: {rate: 10Gbit, delay: 1us}}}
  transports: [csa_ud, rc]
  workload: {kind: point-to-point, bytes: 64KiB}
  faults: [{name: loss, links: "h1->s1", loss: random 1%}]
  deadline: 100ms
seeds: 2
over:
  workload.bytes: [16KiB, 64KiB]
  loss:
    none: {faults: []}
    all: {faults.0.loss: random 100%}
"""
ENDS_S = 60


class Reported:
    """Remembers what a sweep says."""

    def __init__(self):
        self.output, self.rows, self.runs = [], [], None

    def say(self, text):
        self.output.append(text)

    def begin(self, runs):
        self.runs = runs

    def done(self, task, row):
        self.rows.append((task, row))


@pytest.fixture
def carry_out(tmp_path, monkeypatch):
    """Carries out a sweep in this process; gives its outcome and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "_pool", in_place)

    def carry_out(text=SWEEP, reported=None, **options):
        (tmp_path / "many.yaml").write_text(text)
        reported = reported or Reported()
        return campaign.run(sweep_spec.load("many"), Options(**options), reported), reported

    return carry_out


def in_place(crew, jobs):
    return contextlib.nullcontext(sweep_pool.OneByOne())


def table(folder="sweeps/many"):
    return pq.read_table(f"{folder}/runs.parquet")


def journal():
    with open("sweeps/many/rows.jsonl") as lines:
        return [json.loads(line) for line in lines]


# --- Rows ------------------------------------------------------------------------------------


def test_one_row_a_run(carry_out):
    began_s = time.monotonic()
    outcome, reported = carry_out()
    elapsed_s = time.monotonic() - began_s
    assert (reported.runs, len(reported.rows), outcome.count("passed")) == (16, 16, 8)
    assert not outcome.passed
    rows = table().to_pylist()
    assert [row["run"] for row in rows] == list(range(16))
    assert [row["workload.bytes [B]"] for row in rows] == [16384] * 8 + [65536] * 8
    assert [row["loss"] for row in rows] == (["none"] * 4 + ["all"] * 4) * 2
    assert [row["seed"] for row in rows] == [1, 2] * 8
    assert {row["transport"]: row["congestion_control"] for row in rows} == {
        "csa_ud": "grants", "rc": "bdp",
    }  # fmt: skip
    for row in rows:
        assert row["verdict"] == ("failed" if row["loss"] == "all" else "passed")
        assert bool(row["reasons"]) == (row["loss"] == "all")
        assert 0 < row["wall_s"] < elapsed_s
        assert row["cpu_s"] > 0
        assert row["version"]
    manifest = json.loads(outcome.directory.joinpath("manifest.json").read_text())
    assert (manifest["state"], manifest["passed"], manifest["failed"]) == ("done", 8, 8)
    assert [row["run"] for row in manifest["not_passed"]] == [4, 5, 6, 7, 12, 13, 14, 15]


def test_a_row_holds_what_lab_run_says(carry_out):
    outcome, _ = carry_out(only=["seed=1", "workload.bytes=16KiB", "loss=none"])
    experiment = outcome.sweep.combinations[0].experiment
    summary = virtual.run(experiment, experiment.transports[1], 1, lambda _: None).summary()
    row = table().to_pylist()[1]
    assert {name: row[name] for name in summary} == summary


def test_two_processes_give_the_rows_of_one(carry_out, tmp_path, monkeypatch):
    outcome, _ = carry_out()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = campaign.run(outcome.sweep, Options(under=tmp_path / "again", jobs=2), Reported())
    costs = ("wall_s", "cpu_s")
    both = [
        [{k: v for k, v in row.items() if k not in costs} for row in each.rows]
        for each in (outcome, again)
    ]
    assert both[0] == both[1]
    end_s = time.monotonic() + 10  # the executor's thread may be about to reap the last
    while multiprocessing.active_children() and time.monotonic() < end_s:
        time.sleep(0.01)
    assert multiprocessing.active_children() == []


def test_columns_have_the_types_of_their_values(carry_out):
    carry_out(
        SWEEP.partition("over:")[0].replace("seeds: 2", "seeds: 1")
        + "over:\n  depth: [1, 2]\n  topology.generator.access.loss: [0%, 1%]\n"
        "  faults.0.loss: [random 0.1%, random 1%]\n"
        "  deadline: [20ms, 1s]\n  clock: [virtual]\n"
    )
    types = {field.name: str(field.type) for field in table().schema}
    assert types["depth"] == "int64"
    assert types["topology.generator.access.loss"] == "string"
    assert types["topology.generator.access.loss [share]"] == "double"
    assert types["faults.0.loss [share]"] == "double"
    assert types["deadline [ns]"] == "int64"
    assert types["clock"] == "string"
    assert types["reasons"].startswith("list<")


def test_a_label_larger_than_a_column_holds_is_text(carry_out):
    over = "over:\n  size:\n    1e90B: {depth: 1}\n    2B: {depth: 2}\n"
    carry_out(SWEEP.partition("over:")[0] + over, only=["transport=rc"])
    columns = table().schema.names
    assert "size" in columns
    assert "size [B]" not in columns


def test_a_run_is_done_when_its_directory_is_there_if_that_is_wanted(carry_out):
    part = ["seed=1", "loss=none", "transport=rc"]
    carry_out(only=part)
    outcome, reported = carry_out(only=part, keep_runs=True)
    assert (reported.runs, outcome.kept) == (2, 0)
    assert reported.output == ["2 runs of 2 without a run directory, done anew"]
    lost, kept = (Path(row["run_dir"]) for row in outcome.rows)
    manifest = json.loads((kept / "manifest.json").read_text())
    assert [run["seed"] for run in manifest["runs"]] == [1]
    assert carry_out(only=part, keep_runs=True)[1].runs == 0
    shutil.rmtree(lost)
    assert carry_out(only=part)[1].runs == 0
    outcome, reported = carry_out(only=part, keep_runs=True)
    assert reported.output == [
        "1 run of 2 are there already, in sweeps/many",
        "1 run of 2 without a run directory, done anew",
    ]
    assert all(Path(row["run_dir"]).is_dir() for row in outcome.rows)


# --- What is kept ----------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(carry_out):
    carry_out(only=["loss=none"])
    assert len(table()) == 8
    outcome, reported = carry_out()
    assert (reported.runs, outcome.kept, len(outcome.rows)) == (8, 8, 16)
    assert reported.output == ["8 runs of 16 are there already, in sweeps/many"]
    assert carry_out()[1].runs == 0
    assert carry_out(fresh=True)[1].runs == 16


def test_what_is_chosen_is_done_anew_and_the_others_stay(carry_out):
    carry_out()
    before = {row["key"]: row for row in journal()}
    outcome, reported = carry_out(only=["transport=rc"], fresh=True)
    assert (reported.runs, outcome.kept, len(table())) == (8, 0, 16)
    lines = journal()
    assert len(lines) == 16
    assert [row["transport"] for row in lines] == ["csa_ud"] * 8 + ["rc"] * 8
    assert all(before[row["key"]] == row for row in lines[:8])
    assert carry_out()[1].runs == 0


class Impatient(Reported):
    """Presses Ctrl-C after so many runs."""

    def __init__(self, runs):
        super().__init__()
        self._left = runs

    def done(self, task, row):
        super().done(task, row)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_interrupted_it_keeps_what_is_done(carry_out):
    with pytest.raises(KeyboardInterrupt):
        carry_out(reported=Impatient(5))
    assert len(table()) == 5
    assert json.loads(Path("sweeps/many/manifest.json").read_text())["state"] == "interrupted"
    assert carry_out()[1].runs == 11
    with pytest.raises(KeyboardInterrupt):
        carry_out(reported=Impatient(3), only=["transport=rc"], fresh=True)
    assert len(table()) == 8 + 3
    assert carry_out()[1].runs == 5


@pytest.mark.parametrize("torn", [b'{"key": "00", "verd', b'{"key": "\xff', b"\xe2\x82", b"\0"])
def test_a_line_that_was_half_written_is_taken_away(carry_out, torn):
    carry_out(only=["seed=1"])
    append(torn)
    _, reported = carry_out(only=["seed=2"])
    assert (reported.runs, reported.output) == (8, [])
    assert len(journal()) == 16


def changed(**figures):
    """Makes a line of the row that a line holds, with other figures."""
    return lambda line: json.dumps(json.loads(line) | figures).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: b"[]",
        lambda line: b"\xff" + line,
        lambda line: b"[" * 100_000,
        lambda line: b'{"key": ' + b"9" * 5000 + b"}",
        lambda line: json.dumps({"key": json.loads(line)["key"]}).encode(),
        lambda line: line.replace(b'"retransmitted"', b'"sent"'),
        changed(key=5),
        changed(seed=-1),
        changed(seed=1 << 64),
        changed(verdict="perhaps"),
        changed(verdict="failed", reasons=[]),
        changed(reasons=[5]),
        changed(reasons=["\ud800"]),
        changed(verified="yes"),
        changed(bytes=1 << 63),
        changed(bytes=True),
        changed(wall_s="long"),
        changed(fidelity={"verdict": 5}),
        changed(run_dir=5),
    ],
)  # fmt: skip
def test_a_line_that_is_no_row_is_passed_over_and_its_run_done_again(carry_out, damage):
    part = ["seed=1", "loss=none", "workload.bytes=16KiB"]
    carry_out(only=part)
    file = Path("sweeps/many/rows.jsonl")
    first, second = file.read_bytes().splitlines()
    file.write_bytes(damage(first) + b"\n" + second + b"\n")
    outcome, reported = carry_out(only=part)
    assert (reported.runs, outcome.count("passed"), len(table())) == (1, 2, 2)
    assert reported.output == [
        "sweeps/many/rows.jsonl: 1 line without a whole row, passed over",
        "1 run of 2 are there already, in sweeps/many",
    ]
    assert carry_out(only=part)[1].runs == 0


def test_a_run_directory_of_any_name_may_be_written_down(carry_out):
    part = ["seed=1", "loss=none", "workload.bytes=16KiB"]
    carry_out(only=part)
    file = Path("sweeps/many/rows.jsonl")
    for name in ("", "\0", "x" * 5000, "many.yaml"):
        written = [changed(run_dir=name)(line) for line in file.read_bytes().splitlines()[:2]]
        file.write_bytes(b"\n".join(written) + b"\n")
        assert carry_out(only=part, keep_runs=True)[1].runs == 2


def append(data):
    with open("sweeps/many/rows.jsonl", "ab") as lines:
        lines.write(data)


def test_a_changed_file_is_noticed(carry_out):
    carry_out()
    _, reported = carry_out(SWEEP.replace("[16KiB, 64KiB]", "[64KiB, 256KiB]"))
    assert reported.runs == 8
    assert reported.output == [
        "8 runs of 16 are there already, in sweeps/many",
        "the file, or the code, has changed: 8 rows of other runs are passed over",
    ]
    assert {row["workload.bytes"] for row in table().to_pylist()} == {"64KiB", "256KiB"}


def test_changed_code_is_noticed(carry_out, monkeypatch):
    carry_out()
    monkeypatch.setattr(code_version, "fingerprint", lambda: "another")
    assert carry_out()[1].runs == 16


def test_another_native_module_is_other_code(tmp_path, monkeypatch):
    def native(build):
        (tmp_path / "_native.so").write_bytes(build)
        return code_version.fingerprint.__wrapped__()

    spec = importlib.machinery.ModuleSpec("n", None, origin=str(tmp_path / "_native.so"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert native(b"one") == native(b"one") != native(b"another")


def test_there_is_one_writer(carry_out):
    class Second(Reported):
        def done(self, task, row):
            for fresh in (False, True):
                with pytest.raises(UserError, match="another sweep is writing to sweeps/many"):
                    carry_out(fresh=fresh)
            super().done(task, row)

    for fresh in (False, True):
        _, reported = carry_out(reported=Second(), only=["seed=1", "loss=none"], fresh=fresh)
        assert len(reported.rows) == 4


def test_it_can_be_killed_at_any_moment(tmp_path):
    """Rows of runs that ended are there, workers are gone, and the next call goes on."""
    (tmp_path / "many.yaml").write_text(SWEEP.replace("seeds: 2", "seeds: 500"))
    command = [sys.executable, "-m", "softroce_lab.cli", "run", "many", "-j", "2"]
    rows = tmp_path / "sweeps/many/rows.jsonl"
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: rows.is_file() and rows.read_text().count("\n") >= 5)
    workers = children(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(lives(pid) for pid in workers))
    done = rows.read_text().count("\n")
    again = [*command, "--jobs", "1", "--only", "seed=1", "--json"]
    result = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True)
    document = json.loads(result.stdout)
    assert (result.returncode, document["done"], document["runs"]) == (1, 8, 8)
    assert document["kept"] == min(
        8, sum(json.loads(line)["seed"] == 1 for line in lines(rows)[:done])
    )
    assert len(pq.read_table(tmp_path / "sweeps/many/runs.parquet")) >= done


def lines(file):
    return file.read_text().splitlines()


def until(true):
    end = time.monotonic() + ENDS_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def children(pid):
    return [
        int(child)
        for task in os.listdir(f"/proc/{pid}/task")
        for child in open(f"/proc/{pid}/task/{task}/children").read().split()
    ]


# --- What goes wrong beside it ---------------------------------------------------------------


def test_a_process_that_dies_is_a_row(carry_out):
    outcome, _ = carry_out(only=["transport=rc"])
    with sweep_pool.processes(1) as pool:
        tasks = outcome.sweep.tasks("")[:6]
        found = {
            task.number: row
            for task, row in sweep_pool.carry_out(tasks, die_at_three, pool, sweep_pool.unfinished)
        }
    assert sorted(found) == list(range(6))
    assert (found[3]["verdict"], found[3]["reasons"]) == ("error", [sweep_pool.DEATH])
    assert all(row["verdict"] == "passed" for number, row in found.items() if number != 3)


def test_what_cannot_be_run_is_a_row_and_is_tried_again(carry_out, monkeypatch):
    def out_of_order(experiment, transport, seed, progress):
        raise ZeroDivisionError("nothing left")

    with monkeypatch.context() as broken:
        broken.setattr("softroce_lab.experiment.virtual.run", out_of_order)
        outcome, _ = carry_out(only=["loss=none", "seed=1"])
    assert outcome.count("error") == 4
    (reason,) = outcome.rows[0]["reasons"]
    assert reason.startswith("crashes: ZeroDivisionError: nothing left (test_campaign.py:")
    assert {row["verdict"] for row in table().to_pylist()} == {"error"}
    outcome, reported = carry_out(only=["loss=none", "seed=1"])
    assert (reported.runs, outcome.count("passed")) == (4, 4)


def test_what_became_of_a_file_since_is_a_row(carry_out, tmp_path):
    (tmp_path / "t.yaml").write_text("name: t\ntopology: {generator: {kind: star, hosts: 2}}\n")
    (tmp_path / "many.yaml").write_text(SWEEP + "set: {topology: t}\n")
    task = sweep_spec.load("many").tasks("")[0]
    (tmp_path / "t.yaml").unlink()
    row = Work()(task)
    assert row["verdict"] == "error"
    assert "no topology called 't'" in row["reasons"][0]


# --- Who does it -----------------------------------------------------------------------------


def crew(text=SWEEP, **options):
    with open("many.yaml", "w") as file:
        file.write(text)
    loaded = sweep_spec.load("many")
    return campaign.crew_of(loaded, Options(**options), loaded.tasks(""))


def test_as_many_at_a_time_as_there_are_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 40)
    assert crew(jobs=100) == campaign.Crew(16)
    assert crew(jobs=3) == campaign.Crew(3)
    assert crew().jobs == min(16, os.cpu_count())


def test_runs_side_by_side_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "available_bytes", lambda: 340 << 20)
    found = crew(jobs=4)
    assert found.jobs == 2
    values = "workload.bytes=64KiB, loss=all"
    assert found.reason == f"a run with {values} needs 136 MiB of memory: 2 at a time, not 4"
    large = SWEEP.replace("64KiB]", "1TiB]") + "set: {workload.message: 1MiB}\n"
    complaint = r"the run would need .* 340 MiB are free with workload.bytes=1TiB, loss=all"
    with pytest.raises(UserError, match=complaint):
        crew(large, jobs=1)


def test_runs_on_the_real_clock_go_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = SWEEP + "set: {clock: real}\n"
    found = crew(real)
    assert (found.jobs, found.in_place) == (1, True)
    for options in ({"jobs": 2}, {"scheduler": "tcp://127.0.0.1:8786"}):
        with pytest.raises(UserError, match="on the real clock would be in each other's way"):
            crew(real, **options)


def test_workers_never_hear_of_ctrl_c(tmp_path):
    with sweep_pool.processes(2) as pool:
        asked = [pool.executor.submit(blocked_signals, tmp_path) for _ in range(2)]
        found = dict(future.result() for future in asked)
    assert len(found) == 2
    assert all(signal.SIGINT in blocked for blocked in found.values())
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_processes_that_are_over_leave_no_thread():
    """A command with threads left ends at once, and Python then warns of their semaphores."""
    before = set(threading.enumerate())
    with sweep_pool.processes(2) as pool:
        assert pool.executor.submit(os.getpid).result() != os.getpid()
    assert [each for each in threading.enumerate() if each not in before and not each.daemon] == []
