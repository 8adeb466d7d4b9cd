# SPDX-License-Identifier: GPL-2.0-or-later
"""Run directories that are cut, edited, older or foreign."""

import json
import shutil

import pytest

from softroce_lab.errors import UserError
from softroce_lab.results import recorded
from softroce_lab.results.recorded import Recorded


@pytest.fixture
def copy(ring_run, tmp_path):
    return shutil.copytree(ring_run, tmp_path / "copy")


def edit(folder, **facts):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_what_is_there(ring_run):
    found = Recorded(ring_run)
    assert found.warning is None
    assert [recorded.name_of(run) for run in found.runs][:3] == ["csa_ud/1", "irn/1", "rc/1"]
    run = found.run("irn/2")
    messages = found.table("messages", run)
    assert set(messages["transport"]) == {"irn"}
    assert set(messages["seed"]) == {2}
    assert len(messages["bytes"]) == run["messages"]
    assert found.links["rc/1"][0]["name"]


def test_names(ring_run, tmp_path, monkeypatch):
    shutil.copytree(ring_run.parent, tmp_path / "runs", symlinks=True)
    monkeypatch.chdir(tmp_path)
    assert recorded.find("latest").name == ring_run.name
    assert recorded.find(ring_run.name).name == ring_run.name
    with pytest.raises(UserError, match="no run or sweep is called 'none'"):
        recorded.find("none")
    with pytest.raises(UserError, match="is no run directory"):
        recorded.find("runs")


def test_a_name_that_is_misspelt(ring_run, tmp_path, monkeypatch):
    shutil.copytree(ring_run.parent, tmp_path / "runs", symlinks=True)
    monkeypatch.chdir(tmp_path)
    for wrong, right in {
        "lat3st": "latest",
        "runs/lat3st": "latest",
        ring_run.name[:-1]: None,
    }.items():
        with pytest.raises(UserError, match="no run or sweep is called") as refused:
            recorded.find(wrong)
        assert refused.value.hint == f"did you mean {right or ring_run.name!r}?"
    with pytest.raises(UserError) as refused:
        recorded.find("none")
    assert refused.value.hint == "lab results ls shows the runs that are here"


def test_a_name_without_its_time_is_the_newest_of_that_name(copy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for when in ("20260102-030405", "20260102-030406"):
        shutil.copytree(copy, tmp_path / f"runs/{when}-mine")
    shutil.copytree(copy, tmp_path / "runs/20270101-000000-not-mine")
    (tmp_path / "runs/20280101-000000-mine").mkdir()  # without a manifest
    assert recorded.find("mine").name == "20260102-030406-mine"


@pytest.mark.parametrize("where", ["latest", "runs/latest"])
def test_a_folder_without_runs(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^no run is in \./runs of this folder") as refused:
        recorded.find(where)
    assert refused.value.hint == "lab run ring-all-reduce makes one"
    with pytest.raises(UserError, match="no run or sweep is called 'other'"):
        recorded.find("other")


def test_a_table_that_the_real_clock_does_not_have(copy):
    (copy / "repairs.parquet").unlink()
    with pytest.raises(UserError, match=r"repairs\.parquet is missing"):
        Recorded(copy).table("repairs")
    edit(copy, clock="real", environment={"file": "my ring.yaml"})
    with pytest.raises(UserError, match=r"^the real clock does not record repair times") as refused:
        Recorded(copy).table("repairs")
    assert refused.value.hint == "lab run 'my ring.yaml' --clock virtual"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is cut or edited"),
        ("[]", "is no document"),
        ("{}", "has no schema_version"),
        ('{"schema_version": 99}', "has schema 99, and this softroce_lab reads up to"),
        ('{"schema_version": 1, "runs": 3}', "runs: a valid list was expected, not 3"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_manifests_that_are_wrong(copy, text, what):
    (copy / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=what):
        Recorded(copy)


@pytest.mark.parametrize(
    ("state", "what"),
    [("running", "killed"), ("interrupted", "interrupted"), ("failed", "broken off: full")],
)
def test_what_is_not_whole_says_so(copy, state, what):
    edit(copy, state=state, error="full", runs=[])
    found = Recorded(copy)
    assert what in found.warning
    with pytest.raises(UserError, match="has no run that is over") as refused:
        found.runs  # noqa: B018
    assert what in refused.value.hint


def test_a_table_that_is_missing_or_cut(copy):
    (copy / "messages.parquet").unlink()
    found = Recorded(copy)
    with pytest.raises(UserError, match=r"messages.parquet is missing"):
        found.table("messages")
    whole = (copy / "events.parquet").read_bytes()
    (copy / "events.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is cut or edited"):
        found.table("events")
    (copy / "links.json").unlink()
    with pytest.raises(UserError, match=r"links.json is missing"):
        found.links  # noqa: B018
    with pytest.raises(UserError, match="no run 'rc/9'"):
        found.run("rc/9")
