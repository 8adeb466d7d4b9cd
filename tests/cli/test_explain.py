# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab explain`, on the command line."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from tests.report.made import ring


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return str(ring(tmp_path_factory.mktemp("explain"), transports=("irn", "rc")))


def explain(*arguments):
    return CliRunner().invoke(app, ["explain", *arguments])


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
    found = explain(made, "--run", "rc/1", "--step", "2")
    assert found.output.startswith("rc/1: step 2, 8 messages, took ")


def test_without_decisions(made, tmp_path):
    """As on the real clock."""
    copy = shutil.copytree(made, tmp_path / "copy")
    assert "was not recorded" not in explain(str(copy)).output
    (copy / "recovery.parquet").unlink()
    words = "Which packets a decision was about was not recorded; the virtual clock records it."
    assert words in explain(str(copy)).output.splitlines()


def test_mistakes(made):
    assert explain(made, "--step", "1", "--worst", "2").exit_code == ExitCode.USAGE
    wrong = explain(made, "--run", "tcp/1")
    assert "has no run 'tcp/1'" in wrong.stderr
    assert "it has irn/1, rc/1, irn/2, rc/2" in wrong.stderr
    unknown = explain(made, "--message", "h1->h2:9/9/9")
    assert "there is no message 'h1->h2:9/9/9'" in unknown.stderr
    assert f"lab explain {made} --worst 5 names some" in unknown.stderr


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
