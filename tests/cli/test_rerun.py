# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results ls`, `lab results show` and `lab results rerun`, on the command line."""

import json
from pathlib import Path

from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.results import rerun
from softroce_lab.results.rerun import Comparison, Difference

SMALL = ["--set", "workload.bytes=64KiB", "--transport", "csa_ud", "--seed", "3", "-q"]


def lab(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_list_show_and_rerun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lab("results", "ls").output == "no run directory is here\n"
    assert lab("run", "incast", *SMALL).exit_code == 0
    shown = lab("results", "show")
    assert shown.exit_code == 0
    assert "workload      incast, 64 KiB" in shown.output
    assert "messages delivered" in shown.output
    repeated = lab("results", "rerun", "-q")
    assert (repeated.exit_code, repeated.output.splitlines()[-1][:5]) == (0, "same:")
    assert "runs/latest" not in repeated.output
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "manifest.json").write_text("{")
    entries = json.loads(lab("results", "ls", "--json").output)["entries"]
    assert [each["kind"] for each in entries] == ["run", "run", "damaged"]
    assert entries[1]["file"].endswith("incast.yaml")
    assert entries[0]["file"].endswith("experiment.json")
    assert "damaged" in lab("results", "ls").output


def test_a_difference_ends_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lab("run", "incast", *SMALL).exit_code == 0
    path = tmp_path / "runs" / "latest" / "links.json"
    path.write_text(path.read_text() + " ")
    repeated = lab("results", "rerun", "latest", "-q")
    assert repeated.exit_code == ExitCode.FAILED
    assert "different  links.json" in repeated.output
    for verdicts, words in (
        ((True, True), "same: again"),
        ((True, None), "same, 1 of 2 undecided: again"),
        ((None, False), "DIFFERENT, 1 of 2 undecided: again"),
    ):
        compared = [Difference("a figure", verdict) for verdict in verdicts]
        found = Comparison(tmp_path, Path("again"), ("", ""), compared)
        monkeypatch.setattr(rerun, "again", lambda *_, found=found, **__: found)
        assert lab("results", "rerun", "-q").output.splitlines()[-1] == words


def test_what_is_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for verb in ("show", "rerun"):
        found = lab("results", verb, "nothing")
        assert found.exit_code == ExitCode.USAGE
        assert "no run or sweep is called 'nothing'" in found.stderr
