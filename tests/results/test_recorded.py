# SPDX-License-Identifier: GPL-2.0-or-later
"""Run directories by name, and manifests that are cut, edited, older or foreign."""

import json
import shutil

import pytest

from softroce_lab.errors import UserError
from softroce_lab.results import recorded
from softroce_lab.results.recorded import Recorded


@pytest.fixture
def copy(ring_run, tmp_path):
    return shutil.copytree(ring_run, tmp_path / "copy")


def test_what_is_there(ring_run):
    found = Recorded(ring_run)
    assert found.warning is None
    assert [recorded.name_of(run) for run in found.runs][:3] == ["csa_ud/1", "irn/1", "rc/1"]
    run = found.run("irn/2")
    messages = found.table("messages", run)
    assert set(zip(messages["transport"], messages["seed"], strict=True)) == {("irn", 2)}
    assert len(messages["bytes"]) == run["messages"]
    assert found.links["rc/1"][0]["name"]
    with pytest.raises(UserError, match="no run 'rc/9'"):
        found.run("rc/9")


def refused(where):
    with pytest.raises(UserError) as error:
        recorded.find(where)
    return str(error.value)


def test_names(ring_run, copy, tmp_path, monkeypatch):
    shutil.copytree(ring_run.parent, tmp_path / "runs", symlinks=True)
    for when in ("20260102-030405", "20260102-030406"):
        shutil.copytree(copy, tmp_path / f"runs/{when}-mine")
    shutil.copytree(copy, tmp_path / "runs/20270101-000000-not-mine")
    (tmp_path / "runs/20280101-000000-mine").mkdir()  # without a manifest
    monkeypatch.chdir(tmp_path)
    assert recorded.find("latest").name == recorded.find(ring_run.name).name == ring_run.name
    assert recorded.find("mine").name == "20260102-030406-mine"  # the newest of that name
    assert "is no run directory" in refused("runs")
    for wrong in ("lat3st", "runs/lat3st"):
        assert "did you mean 'latest'?" in refused(wrong)
    assert f"did you mean {ring_run.name!r}?" in refused(ring_run.name[:-1])
    assert refused("none") == (
        "no run or sweep is called 'none'\n  hint: lab results ls shows the runs that are here"
    )


def test_a_folder_without_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for where in ("latest", "runs/latest"):
        told = "no run is in ./runs of this folder\n  hint: lab run ring-all-reduce makes one"
        assert refused(where) == told
    assert "no run or sweep is called 'other'" in refused("other")


def test_a_table_that_the_real_clock_does_not_have(copy):
    (copy / "repairs.parquet").unlink()
    path = copy / "manifest.json"
    real = {"clock": "real", "environment": {"file": "my ring.yaml"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | real))
    with pytest.raises(UserError, match=r"^the real clock does not record repair times") as error:
        Recorded(copy).table("repairs")
    assert error.value.hint == "lab run 'my ring.yaml' --clock virtual"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is cut or edited"),
        ("[]", "is no document"),
        ("{}", "has no schema_version"),
        ('{"schema_version": 99}', "has schema 99, and this softroce_lab reads up to"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_manifests_that_are_wrong(tmp_path, text, what):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=what):
        Recorded(tmp_path)
