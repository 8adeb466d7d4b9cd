# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab sweep`: the command line, on the virtual clock."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app

FILE = """\
# Two depths. One path.
name: mine
experiment:
  topology: {generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}
  transports: [csa_ud, rc]
  workload: {kind: point-to-point, bytes: 256KiB, message: 32KiB}
over:
  depth: [1, 4]
"""
COMMAND = [sys.executable, "-m", "softroce_lab.cli", "sweep"]
ENDS_S = 60


@pytest.fixture
def line(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["sweep", *arguments])


def test_a_sweep(line, tmp_path):
    result = line("mine", "--jobs", "1", "--table", "mine.md", "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "lab: 4 of 4 runs" in result.stderr
    *table, summary, file = result.stdout.splitlines()
    assert table[0].split("|")[1:5] == [" depth ", " transport ", " verdict ", " p50 [us] "]
    assert [row.split()[1:6:2] for row in table[2:6]] == [
        ["1", "csa_ud", "passed"], ["1", "rc", "passed"],
        ["4", "csa_ud", "passed"], ["4", "rc", "passed"],
    ]  # fmt: skip
    assert summary == "4 runs: 4 passed, 0 failed, 0 without a result"
    assert file == "out/mine/runs.parquet"
    assert len(pq.read_table(file)) == 4
    text = (tmp_path / "mine.md").read_text()
    assert text.startswith("# mine\n\nTwo depths. One path.\n\nMade by `lab sweep mine --table ")
    assert "\n".join(table[:6]) in text


def test_json(line):
    result = line("mine", "--only", "depth=4", "--only", "transport=rc", "--json", "-q", "-j1")
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert (document["runs"], document["done"], document["passed"]) == (1, 1, 1)
    assert (document["jobs"], document["verdict"]) == (1, "passed")
    assert document["axes"] == {"depth": ["1", "4"]}


def test_a_run_that_fails_is_the_exit_code(line, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE + "set: {deadline: 1us}\n")
    result = line("mine", "-q", "-j1", "--only", "transport=rc")
    assert result.exit_code == 1
    assert "2 runs: 0 passed, 2 failed, 0 without a result" in result.stdout
    assert "  run 1, rc, seed 1: the deadline of 1 us came with" in result.stdout
    assert "| FAILED  |" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "which sweep?\n  hint: a file, or a name: lab sweep --list"),
        (("nine",), "no sweep called 'nine'"),
        (("incast",), "no sweep called 'incast'\n  hint: lab run incast runs that"),
        (("missing.yaml",), "missing.yaml: cannot be read"),
        (("mine", "--table", "none/mine.md"), "cannot write none/mine.md\n  hint: --table FILE"),
        (("mine", "--table", "."), "cannot write .\n  hint: --table FILE"),
        (("mine", "--only", "depth=9"), "no run has depth=9\n  hint: known: 1, 4"),
    ],
)
def test_wrong_input(line, tmp_path, arguments, complaint):
    result = line(*arguments)
    assert result.exit_code == 2
    assert f"lab: {complaint}" in result.stderr
    assert not (tmp_path / "sweeps").exists()


def test_where_nothing_can_be_written(line, tmp_path):
    (tmp_path / "file").touch()
    result = line("mine", "-o", "file")
    assert result.exit_code == 2
    complaint = "no folder can be made at file/mine: Not a directory\n  hint: -o DIR"
    assert f"lab: {complaint}" in result.stderr


def test_a_dry_run_says_what_it_would_do(line, tmp_path):
    result = line("mine", "--dry-run")
    assert result.stdout.splitlines()[:3] == [
        "mine: 4 runs", "  depth: 1, 4", "  over csa_ud, rc; 1 seed",
    ]  # fmt: skip
    document = json.loads(line("mine", "--dry-run", "--json").stdout)
    assert (document["runs"], document["transports"]) == (4, ["csa_ud", "rc"])
    assert not (tmp_path / "sweeps").exists()


def test_a_dry_run_refuses_what_does_not_fit(line, monkeypatch):
    monkeypatch.setattr("softroce_lab.experiment.forecast.memory.available_bytes", lambda: 1 << 20)
    result = line("mine", "--dry-run")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (2, "mine: 4 runs")
    assert "1 MiB are free with depth=" in result.stderr
    assert line("mine", "-q").stderr == result.stderr


def test_the_ready_ones_are_listed(line):
    assert "snapshots" in line("--list").stdout
    listed = {each["name"]: each["about"] for each in json.loads(line("--list", "--json").stdout)}
    assert listed["reach"].startswith("What the distance between two data centres costs")


def test_ctrl_c_ends_it_and_keeps_what_is_done(line, tmp_path):
    """On a terminal: all processes of its group are interrupted, and none of them complains."""
    (tmp_path / "mine.yaml").write_text(FILE + "seeds: 2000\n")
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "mine", "-j", "2"], cwd=tmp_path, stdin=slave, stdout=subprocess.PIPE,
        stderr=slave, start_new_session=True, env=os.environ | {"TERM": "dumb"},
    ) as process:  # fmt: skip
        os.close(slave)
        rows = tmp_path / "sweeps/mine/rows.jsonl"
        until(lambda: rows.is_file() and rows.stat().st_size)
        os.killpg(process.pid, signal.SIGINT)
        said = read_all(master)
        assert process.wait(ENDS_S) == 130
    assert b"Traceback" not in said
    assert b"what is done is kept in sweeps/mine" in said
    done = len(rows.read_text().splitlines())
    assert len(pq.read_table(tmp_path / "sweeps/mine/runs.parquet")) == done
    until(lambda: not group_is_there(process.pid))


def until(true):
    end = time.monotonic() + ENDS_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def group_is_there(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def read_all(master):
    said = b""
    while True:
        try:
            said += os.read(master, 65536)
        except OSError:  # the last one who held the other end is gone
            return said
