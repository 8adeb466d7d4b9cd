# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun`: the same, or where it differs."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.results import rerun
from softroce_lab.results.recorded import Recorded
from tests.results.made import Silent


def test_the_virtual_clock_gives_the_same_bytes(ring_run, tmp_path):
    found = rerun.again(Recorded(ring_run), Silent(), under=tmp_path)
    assert found.same
    assert [each.what for each in found.differences] == [
        "experiment.json", "events.parquet", "messages.parquet", "recovery.parquet",
        "repairs.parquet", "samples.parquet", "links.json", "stats.json", "manifest.json",
    ]  # fmt: skip


def test_what_differs_is_named(ring_run, tmp_path):
    other = shutil.copytree(ring_run, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["runs"][0]["retransmitted"] += 1
    (other / "manifest.json").write_text(json.dumps(manifest))
    with (other / "links.json").open("a") as file:
        file.write(" ")
    (other / "stats.json").unlink()
    found = rerun.compare(Recorded(ring_run), Recorded(other))
    wrong = {each.what: each.detail for each in found.differences if each.same is False}
    assert wrong == {
        "links.json": "",
        "stats.json": f"is missing in {other}",
        "manifest.json": "runs",
    }
    assert found.document()["verdict"] == "different"


def as_real(folder, path, seconds):
    """The same run as if the real clock had measured it, in so many times the time."""
    shutil.copytree(folder, path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {"clock": "real", "grade": "identity"}
    for run in manifest["runs"]:
        run["makespan_ns"] = int(run["makespan_ns"] * seconds)
    manifest["runs"] = [
        {**run, "seed": seed, "run": f"{run['transport']}/{seed}"}
        for run in manifest["runs"]
        if run["seed"] == 1
        for seed in range(1, 7)
    ]
    (path / "manifest.json").write_text(json.dumps(manifest))
    return Recorded(path)


def test_a_file_that_either_one_lost_is_a_difference(ring_run, tmp_path):
    name = "messages.parquet"
    folder = shutil.copytree(ring_run, tmp_path / "lost")
    (folder / name).unlink()
    for sides in ((folder, ring_run), (ring_run, folder)):
        found = rerun.compare(*map(Recorded, sides))
        assert not found.same
        (wrong,) = (each for each in found.differences if each.same is False)
        assert (wrong.what, wrong.detail) == (name, f"is missing in {folder}")


def test_the_real_clock_compares_fates_and_figures(ring_run, tmp_path):
    one, other = (as_real(ring_run, tmp_path / str(n), n) for n in (1, 2))
    assert rerun.compare(one, one).same
    found = rerun.compare(one, other)
    wrong = [each.what for each in found.differences if each.same is False]
    assert wrong == [f"{name}: makespan_ns" for name in ("csa_ud", "irn", "rc")]
    fates = next(each for each in found.differences if each.what.startswith("csa_ud/1: fates"))
    assert not fates.detail.startswith("0 losses")


@pytest.mark.parametrize("attempt", [0, 1])
def test_fates_are_those_of_first_transmissions(ring_run, tmp_path, attempt):
    """A retransmission that was lost in one run alone is no difference."""
    one, other = (as_real(ring_run, tmp_path / str(n), 1) for n in range(2))
    table = pq.read_table(other.path / "events.parquet")
    of = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    rows = (of["transport"] == "irn") & (of["seed"] == 1) & (of["event"] == "drop")
    rows &= (of["packet_kind"] == "data") & (of["attempt"] == attempt)
    gone = np.flatnonzero(rows)[0]
    pq.write_table(table.filter(np.arange(len(rows)) != gone), other.path / "events.parquet")
    found = {each.what: each for each in rerun.compare(one, other).differences}
    fates = found["irn/1: fates of first transmissions"]
    assert fates.same == bool(attempt)
    assert fates.detail.endswith(" losses" if attempt else " losses, 1 differ")


def test_what_cannot_be_decided_is_counted(ring_run, tmp_path):
    """Figures of two seeds have no interval, and packets of rc no names."""
    folder = shutil.copytree(ring_run, tmp_path / "real")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(
        json.dumps(manifest | {"clock": "real", "grade": "identity"})
    )
    found = rerun.compare(Recorded(folder), Recorded(folder))
    assert found.same
    undecided = [each.what for each in found.differences if each.same is None]
    assert len(undecided) == found.undecided == 3 * 3 + 2
    assert "rc/2: fates of first transmissions" in undecided
    assert rerun.compare(Recorded(ring_run), Recorded(ring_run)).undecided == 0
