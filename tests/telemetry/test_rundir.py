# SPDX-License-Identifier: GPL-2.0-or-later
"""The run directory: whole files, a link to the newest, and whom it belongs to."""

import json
import os
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import RunError, UserError
from softroce_lab.telemetry import rundir
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, RunDirectory


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "deep" / "runs"


def test_a_new_directory_and_the_newest(runs):
    first = RunDirectory.create("demo", under=runs)
    assert re.fullmatch(r"\d{8}-\d{6}-demo", first.path.name)
    assert (runs / "latest").resolve() == first.path.resolve()
    second = RunDirectory.create("demo", under=runs)
    assert second.path != first.path
    assert (runs / "latest").resolve() == second.path.resolve()
    assert not os.path.isabs(os.readlink(runs / "latest"))  # the folder may be moved
    assert {path.name for path in runs.iterdir()} == {first.path.name, second.path.name, "latest"}


def test_runs_of_one_second_have_names_of_their_own(runs, monkeypatch):
    monkeypatch.setattr(rundir.time, "strftime", lambda _: "20250101-120000")
    names = [RunDirectory.create("demo", under=runs).path.name for _ in range(3)]
    assert names == [f"20250101-120000-demo{suffix}" for suffix in ("", "-1", "-2")]


def test_one_of_which_nothing_came_is_not_the_newest(runs):
    first = RunDirectory.create("demo", under=runs)
    second = RunDirectory.create("demo", under=runs)
    first.withdraw()
    assert (runs / "latest").resolve() == second.path.resolve()
    second.withdraw()
    assert (runs / "latest").resolve() == first.path.resolve()


def test_a_link_that_was_left_half_made_is_no_obstacle(runs):
    runs.mkdir(parents=True)
    (runs / f".latest.{os.getpid()}").write_text("left by a run that was killed")
    made = RunDirectory.create("demo", under=runs)
    assert (runs / "latest").resolve() == made.path.resolve()


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunError, match="cannot write runs: File exists"):
        RunDirectory.create("demo")


@pytest.mark.parametrize(
    ("folder", "reason"), [("file", "Not a directory"), ("/proc/nope", "No such file or directory")]
)
def test_a_chosen_folder_that_cannot_be_made(tmp_path, folder, reason):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"in .*{folder}: {reason}\n  hint: -o DIR"):
        RunDirectory.create("demo", under=tmp_path / folder)


def manifest(directory):
    return json.loads((directory.path / "manifest.json").read_text())


def test_the_manifest_grows_and_is_whole_each_time(runs):
    directory = RunDirectory.create("demo", under=runs)
    directory.manifest(state="running", seed=7)
    assert manifest(directory) == {"schema_version": SCHEMA_VERSION, "state": "running", "seed": 7}
    directory.manifest(state="done", verified=True)
    assert manifest(directory) == {
        "schema_version": SCHEMA_VERSION,
        "state": "done",
        "seed": 7,
        "verified": True,
    }
    assert [path.name for path in directory.path.iterdir()] == ["manifest.json"]


def test_a_fact_that_json_does_not_know_leaves_the_manifest_whole(runs):
    directory = RunDirectory.create("demo", under=runs)
    directory.manifest(state="running")
    with pytest.raises(TypeError):
        directory.manifest(bad=object())
    assert manifest(directory)["state"] == "running"


def test_nothing_is_written_where_a_link_leads_that_took_the_folders_place(runs, tmp_path):
    directory = RunDirectory.create("swapped", under=runs)
    moved, victim = tmp_path / "moved", tmp_path / "victim"
    victim.mkdir()
    directory.path.rename(moved)
    directory.path.symlink_to(victim)
    directory.manifest(state="running")
    directory.table("messages", {"bytes": np.arange(3)})
    directory.file("inputs/own.py", b"pass")
    directory.manifest(state="done")
    assert not list(victim.iterdir())
    assert {each.name for each in moved.iterdir()} == {
        "manifest.json",
        "messages.parquet",
        "inputs",
    }


def test_a_folder_that_may_no_longer_be_written_is_told(runs):
    directory = RunDirectory.create("locked", under=runs)
    directory.manifest(state="running")
    reserve = directory.path / ".reserve"
    reserve.unlink()
    reserve.mkdir()  # to remove it fails, for root, too
    with pytest.raises(RunError, match=r"cannot write .*/\.reserve: Is a directory"):
        directory.manifest(state="done")


def test_tables_keep_their_types(runs):
    directory = RunDirectory.create("demo", under=runs)
    columns = {
        "transport": np.array(["csa_ud", "ud_rto"]),
        "message": np.array([1, 2], dtype=np.uint32),
        "time_ns": np.array([-5, 1 << 40], dtype=np.int64),
    }
    directory.table("messages", columns)
    table = pq.read_table(directory.path / "messages.parquet")
    assert table.to_pydict() == {name: column.tolist() for name, column in columns.items()}
    assert [str(field.type) for field in table.schema] == ["string", "uint32", "int64"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_all_of_it_belongs_to_the_user_behind_sudo(runs, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "1234")
    directory = RunDirectory.create("demo", under=runs)
    directory.manifest(state="done")
    directory.links({})
    directory.table("messages", {"message": np.zeros(1)})
    for path in (runs, *runs.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (4321, 1234), path


@pytest.mark.parametrize(("uid", "gid"), [("", ""), ("4321", ""), ("root", "1234"), ("-1", "-1")])
def test_without_a_user_behind_sudo_nothing_changes_hands(runs, monkeypatch, uid, gid):
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_GID", gid)
    directory = RunDirectory.create("demo", under=runs)
    assert directory.path.stat().st_uid == os.geteuid()
