# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab list`, `lab show` and `lab rerun`, on the command line."""

import json

from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode

SMALL = ["--set", "workload.bytes=64KiB", "--transport", "csa_ud", "--seed", "3", "-q"]


def lab(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_list_show_and_rerun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lab("list").output == "no run directory is here\n"
    assert lab("run", "incast", *SMALL).exit_code == 0
    shown = lab("show")
    assert shown.exit_code == 0
    assert "workload      incast, 64 KiB" in shown.output
    assert "messages delivered" in shown.output
    again = lab("rerun", "-q")
    assert (again.exit_code, again.output.splitlines()[-1][:5]) == (0, "same:")
    assert "runs/latest" not in again.output
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "manifest.json").write_text("{")
    entries = json.loads(lab("list", "--json").output)["entries"]
    assert [each["kind"] for each in entries] == ["run", "run", "damaged"]
    assert entries[1]["file"].endswith("incast.yaml")
    assert entries[0]["file"].endswith("experiment.json")
    assert "damaged" in lab("list").output


def test_a_difference_ends_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lab("run", "incast", *SMALL).exit_code == 0
    path = tmp_path / "runs" / "latest" / "links.json"
    path.write_text(path.read_text() + " ")
    again = lab("rerun", "latest", "-q")
    assert again.exit_code == ExitCode.FAILED
    assert "different  links.json" in again.output


def test_what_is_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for verb in ("show", "rerun"):
        found = lab(verb, "nothing")
        assert found.exit_code == ExitCode.USAGE
        assert "no run or sweep is called 'nothing'" in found.stderr
