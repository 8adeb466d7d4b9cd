# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep's own file: what it named is written out, and its runs are the same, one by one."""

import json
import shutil

import pytest

from softroce_lab.experiment import frozen as frozen_experiment
from softroce_lab.experiment.sweep import frozen, spec
from softroce_lab.telemetry.rundir import RunDirectory
from tests import own_policy

POLICY = own_policy.named("Mine")
SWEEP = """\
name: mine
experiment: base.yaml
set: {workload.bytes: 64KiB}
over:
  topology: [path, two-hosts]
  loss:
    none: {}
    spine: {faults: [{name: l, links: '*<->*', loss: 1%}]}
    words: {faults: [lost-tail]}
  workload.bytes: [32KiB, 64KiB]
transports: [irn, {policy: ./policy.py:Mine}]
seeds: [3, 5]
"""
BASE = """\
name: base
topology: two-hosts
workload: {kind: point-to-point, bytes: 1KiB}
transports: [rc]
"""


def written(sweep, folder):
    """The sweep that is kept in this folder."""
    folder.mkdir()
    frozen.write(RunDirectory(folder), sweep)
    return spec.load(folder / frozen.FILE)


def documents(sweep):
    """Each combination's experiment with all that it names, and the runs, in their order."""
    written_out = [
        frozen_experiment.document(each.experiment, lambda path: path.name)
        for each in sweep.combinations
    ]
    for each in written_out:
        del each["name"], each["seeds"]
    tasks = [(task.transport.label, task.seed) for task in sweep.tasks("")]
    return [json.dumps(each, sort_keys=True, default=str) for each in written_out], tasks


def test_it_needs_no_other_file(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name, text in (("mine.yaml", SWEEP), ("base.yaml", BASE), ("policy.py", POLICY)):
        (home / name).write_text(text)
    sweep = spec.load(home / "mine.yaml")
    kept = tmp_path / "kept"
    written(sweep, kept)
    moved = shutil.move(kept, tmp_path / "moved")
    shutil.rmtree(home)
    again = spec.load(moved / frozen.FILE)
    assert len(again.combinations) == 12
    assert [axis.name for axis in again.axes] == ["cell"]
    labels = [point.label for point in again.axes[0].points]
    assert labels[:2] == [
        f"topology=path, loss=none, workload.bytes={size}KiB" for size in (32, 64)
    ]
    assert [task.transport.label for task in again.tasks("")][:3] == ["irn", "irn", "Mine"]
    assert [task.seed for task in again.tasks("")][:2] == [3, 5]
    assert (moved / "inputs" / "policy.py").read_text() == POLICY


@pytest.mark.parametrize("name", ["loss-and-size", "web-search-load"])
def test_ready_sweeps_come_out_as_they_are(name, tmp_path):
    sweep = spec.load(name)
    assert documents(written(sweep, tmp_path / "kept")) == documents(sweep)


def test_a_large_one_is_not_kept(tmp_path, monkeypatch):
    sweep = spec.load("loss-and-size")
    written(sweep, tmp_path / "kept")
    monkeypatch.setattr(frozen, "MOST_COMBINATIONS", 1)
    frozen.write(RunDirectory(tmp_path / "kept"), sweep)
    assert not (tmp_path / "kept" / frozen.FILE).exists()
