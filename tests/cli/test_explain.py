# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results explain`, on the command line."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab import units
from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from tests.results.made import ring


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return str(ring(tmp_path_factory.mktemp("explain"), transports=("irn", "rc")))


def explain(*arguments):
    return CliRunner().invoke(app, ["results", "explain", *arguments])


def test_each_transport_has_a_story(made):
    found = explain(made)
    assert found.exit_code == 0
    assert found.output.startswith("irn/1: message h")
    assert "\nrc/1: message h" in found.output
    assert "Where the time went:" in found.output


def test_one_document(made):
    found = json.loads(explain(made, "--run", "irn/2", "--worst", "3", "--json").output)
    stories = found["stories"]
    assert [each["run"] for each in stories] == ["irn/2"] * 3
    times = [each["taken_ns"] for each in stories]
    assert times == sorted(times, reverse=True)
    for each in stories:
        assert sum(part["length_ns"] for part in each["parts"]) == each["taken_ns"]
        again = explain(made, "--run", "irn/2", "--message", each["message"], "--json").output
        assert json.loads(again)["stories"] == [each]


def test_a_step(made):
    """Its losses are those of its messages; rc goes back, so it sends more again."""
    found = json.loads(explain(made, "--run", "rc/1", "--worst", "48", "--json").output)
    of_step = {}
    for each in found["stories"]:
        of_step.setdefault(int(each["message"].split("/")[1]), []).append(each)
    assert [len(own) for own in of_step.values()] == [8] * 6
    counts = set()
    for step, own in of_step.items():
        lost, again = (
            sum(each["what"] == what for story in own for each in story["incidents"])
            for what in ("dropped", "sent again")
        )
        counts.add((lost, again))
        head, story, *_ = explain(made, "--run", "rc/1", "--step", str(step)).output.splitlines()
        assert head.startswith(f"rc/1: step {step}, 8 messages, took ")
        assert head.endswith(f"; {units.format_count(lost, 'packet')} lost. Its slowest message:")
        assert story.startswith(f"rc/1: message {own[0]['message']}, ")
    assert any(0 < lost < again for lost, again in counts)


def test_a_step_of_several_operations_needs_its_operation(tmp_path):
    twice = str(ring(tmp_path, "workload.repeat=2", "seeds=[1]", transports=("irn",)))
    wrong = explain(twice, "--step", "3")
    assert wrong.exit_code == ExitCode.USAGE
    assert "2 steps are called 3" in wrong.stderr
    assert "one of 0:3, 1:3" in wrong.stderr
    found = explain(twice, "--step", "1:3").output.splitlines()
    assert found[0].startswith("irn/1: step 1:3, 8 messages, took ")
    assert ":1/3/" in found[1]


def test_without_decisions(made, tmp_path):
    """As on the real clock."""
    copy = shutil.copytree(made, tmp_path / "copy")
    known = explain(str(copy)).output
    assert "was not recorded" not in known
    (copy / "recovery.parquet").unlink()
    lines = explain(str(copy)).output.splitlines()
    words = "Which packets a decision was about was not recorded; the virtual clock records it."
    assert words in lines
    again = [line for line in known.splitlines() if line.endswith("sent again.")]
    assert [line for line in lines if line.endswith("sent again.")] == again != []


def test_mistakes(made):
    assert explain(made, "--step", "1", "--worst", "2").exit_code == ExitCode.USAGE
    wrong = explain(made, "--run", "tcp/1")
    assert "has no run 'tcp/1'" in wrong.stderr
    assert "it has irn/1, rc/1, irn/2, rc/2" in wrong.stderr
    unknown = explain(made, "--message", "h1->h2:9/9/9")
    assert "there is no message 'h1->h2:9/9/9'" in unknown.stderr
    assert f"lab results explain {made} --worst 5 names some" in unknown.stderr


def test_a_directory_of_directories_names_them(made, tmp_path):
    """Such as that of a crosscheck, to which `latest` points."""
    outer = tmp_path / "both"
    inner = outer / "virtual" / "one"
    inner.mkdir(parents=True)
    manifest = json.loads((Path(made) / "manifest.json").read_text())
    (outer / "manifest.json").write_text(json.dumps(manifest | {"runs": []}))
    (inner / "manifest.json").write_text("{}")
    (outer / "virtual" / "latest").symlink_to("one")
    found = explain(str(outer))
    assert found.exit_code == ExitCode.USAGE
    assert f"its runs are {inner}" in found.stderr
