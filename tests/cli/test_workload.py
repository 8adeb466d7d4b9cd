# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run --plan`: who sends how much to whom, and the GOAL file."""

import json

from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.workloads.goal import parser


def workload(*arguments):
    return CliRunner().invoke(app, ["run", "--plan", *map(str, arguments)])


def test_each_pair_of_hosts_has_a_line():
    found = workload("ring-all-reduce")
    assert found.exit_code == 0
    lines = found.output.splitlines()
    assert lines[0] == "ring-all-reduce: ring-all-reduce, seed 1"
    assert lines[1] == "  448 messages, 56 MiB, among 8 hosts, in 14 rounds"
    assert lines[3].split() == ["h1", "h2", "56", "7", "MiB", "1-14", "0", "ns"]
    assert len(lines) == 3 + 8


def test_many_pairs_are_cut_short_and_all_in_json():
    options = ["permutation", "--set", "workload={kind: all-to-all, bytes: 2kB, message: 1kB}"]
    found = workload(*options)
    assert found.output.splitlines()[-1] == "  and 200 more, all in --json"
    document = json.loads(workload(*options, "--json", "--seed", 5).output)
    assert (document["seed"], document["rounds"], len(document["hosts"])) == (5, 1, 16)
    assert (document["messages"], document["bytes"]) == (480, 480_000)
    assert document["flows"][0] == {
        "source": "h1", "destination": "h2", "messages": 2, "bytes": 2000,
        "first_round": 1, "last_round": 1, "not_before_ns": 0,
    }  # fmt: skip
    assert len(document["flows"]) == 240


def test_a_goal_file_is_written(tmp_path):
    path = tmp_path / "ring.goal"
    assert workload("ring-all-reduce", "--goal", path).exit_code == 0
    text = path.read_text()
    assert text.startswith(
        "// ring-all-reduce: ring-all-reduce, seed 1, depth: 4\n// rank 0 is h1\n"
    )
    assert sum(map(len, parser.parse(text, "ring.goal").ranks)) == 2 * 448


def test_a_goal_file_that_cannot_be_written_is_an_error_of_the_user(tmp_path):
    found = workload("incast", "--goal", tmp_path / "no" / "such.goal")
    assert found.exit_code == ExitCode.USAGE
    assert "such.goal: No such file or directory" in found.stderr
