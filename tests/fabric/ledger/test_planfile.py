# SPDX-License-Identifier: GPL-2.0-or-later
import dataclasses
import typing

import pytest

from softroce_lab import topology
from softroce_lab.fabric.ledger import planfile
from softroce_lab.plan import effects
from softroce_lab.plan.effects import Fault, Filter, Window

EFFECTS = (
    effects.Down(),
    effects.NamedDrop(3, 5, None, None, False, (1, 2)),
    effects.NamedDrop(None, None, 1, 7, True, ()),
    effects.Drop(),
    effects.RandomLoss(2**64 - 1),
    effects.Gemodel(1, 2, 2**64 - 1, 0),
    effects.Burst(5, 8),
    effects.Periodic(10, 3, 0),
    effects.Blackout(),
    effects.Corrupt(1),
    effects.Duplicate(2),
    effects.Cut(4),
    effects.Reorder(3, 5, 100_000),
    effects.Queue(10**9, None, 1000, 20_480, None, True),
    effects.Delay(10**7, 10**6, "pareto", False),
)
FAULTS = tuple(
    Fault("grey", number, 3, "index", 2**64 - 2, effect, Filter(("data",), iters=(1, 64)),
          Window(1, 2, 3))
    for number, effect in enumerate(EFFECTS)
)  # fmt: skip


def test_every_effect_is_among_those_tried():
    assert {type(effect) for effect in EFFECTS} == set(typing.get_args(effects.Effect))


@pytest.mark.parametrize("name", ["leaf-spine", "two-hosts", "parallel-paths"])
def test_a_plan_comes_back_as_it_was(tmp_path, name):
    plan = dataclasses.replace(topology.load(name), faults=FAULTS)
    planfile.write(plan, tmp_path)
    assert planfile.read(tmp_path) == plan


def test_a_change_is_begun_and_comes_true_or_not(tmp_path):
    before, after = topology.load("two-hosts"), topology.load("leaf-spine")
    planfile.write(before, tmp_path)
    assert planfile.begun(tmp_path) is None
    planfile.begin(after, tmp_path)
    assert (planfile.read(tmp_path), planfile.begun(tmp_path)) == (before, after)
    planfile.abandon(tmp_path)
    assert planfile.begun(tmp_path) is None
    planfile.begin(after, tmp_path)
    planfile.commit(tmp_path)
    assert (planfile.read(tmp_path), planfile.begun(tmp_path)) == (after, None)


def test_a_change_broken_off_while_it_was_written_did_not_begin(tmp_path):
    planfile.begin(topology.load("two-hosts"), tmp_path)
    path = tmp_path / planfile.NEXT
    path.write_text(path.read_text()[:100])
    assert planfile.begun(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
