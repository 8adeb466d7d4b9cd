# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun` and `lab results pack` of `lab demo failover`."""

import json
import zipfile

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import artifact, rerun
from softroce_lab.results.recorded import Recorded


def made(under, **options):
    chosen = Options(hosts=2, steps=6, model_bytes=4_000, **options)
    found = failover.run_on("virtual", chosen)
    return Recorded(failover.write(found, chosen, "virtual", under).resolve())


def test_it_is_repeated_byte_for_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = made(tmp_path / "runs")
    result = CliRunner().invoke(app, ["results", "rerun", str(first.path), "-o", "again", "-q"])
    assert result.exit_code == 0, result.output
    assert "same       shift.parquet" in result.output
    assert "missing" not in result.output
    assert (tmp_path / "again" / "latest" / "shift.parquet").is_file()


def test_it_is_listed_and_a_job_that_stopped_is_not_judged(tmp_path):
    path = made(tmp_path / "runs").path
    assert (
        "lab demo failover" in CliRunner().invoke(app, ["results", "ls", str(path.parent)]).output
    )
    runs = {
        each["transport"]: each for each in json.loads((path / "manifest.json").read_text())["runs"]
    }
    assert (runs["shift"]["verified"], runs["rc"]["verified"]) == (True, None)
    assert runs["rc"]["verdict"] == "failed"
    shown = CliRunner().invoke(app, ["results", "show", str(path)]).output
    [line] = [each for each in shown.splitlines() if each.startswith("verified, every byte")]
    assert sorted(line.split()[3:]) == ["-", "yes"]


def test_a_difference_is_found(tmp_path):
    first = made(tmp_path)
    path = first.path / "links.json"
    path.write_text(path.read_text() + " ")
    found = rerun.failover_again(first, lambda _: None, under=tmp_path)
    assert [each.what for each in found.differences if not each.same] == ["links.json"]


def test_options_of_another_schema_are_refused(tmp_path):
    path = made(tmp_path).path
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["demo"]["steps"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="steps"):
        rerun.failover_again(Recorded(path), lambda _: None, under=tmp_path)


def test_it_is_packed_unless_its_topology_is_a_file_of_the_user(tmp_path):
    packed = artifact.write(made(tmp_path / "ready"), tmp_path / "ready.zip")
    with zipfile.ZipFile(packed.path) as archive:
        assert any(name.endswith("shift.parquet") for name in archive.namelist())
        readme = next(name for name in archive.namelist() if name.endswith("README.md"))
        assert "experiment.json" not in archive.read(readme).decode()
    mine = tmp_path / "mine.yaml"
    mine.write_bytes((paths.TOPOLOGIES / "dual-rail.yaml").read_bytes())
    with pytest.raises(UserError, match="is not kept"):
        artifact.write(made(tmp_path / "own", topology=str(mine)), tmp_path / "own.zip")


def test_a_topology_of_the_user_is_read_again_only_with_trust(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_bytes((paths.TOPOLOGIES / "dual-rail.yaml").read_bytes())
    first = made(tmp_path / "own", topology=str(mine))
    with pytest.raises(UserError, match=f"reads the topology '{mine}'"):
        rerun.failover_again(first, lambda _: None, under=tmp_path)
    again = rerun.failover_again(first, lambda _: None, under=tmp_path, origin=Origin.TRUSTED_RUN)
    assert again.same
