# SPDX-License-Identifier: GPL-2.0-or-later
"""Ring all-reduce over sites, and losses that jump: simulated, beside the model."""

import dataclasses
import json
import subprocess
import sys

import pytest

from softroce_lab.bench.crossover import grid, jump, ring
from softroce_lab.plan.effects import Gemodel

RING = ring.Options(
    sites=(2, 4),
    vector_bytes=8 << 20,
    losses=(1e-2,),
    kinds=("random",),
    schemes=("sr_rto", "mds"),
    repeat=6,
)


@pytest.fixture(scope="module")
def cells():
    return ring.run(RING, lambda _: None)


def test_a_ring_takes_the_time_of_the_model(cells):
    assert [(each.sites, each.scheme) for each in cells] == [
        (2, "sr_rto"), (2, "mds"), (4, "sr_rto"), (4, "mds")
    ]  # fmt: skip
    for each in cells:
        assert each.operations == 6
        near = abs(each.mean_ns - each.model_ns)
        assert near <= max(0.05 * each.model_ns, 4 * each.error_ns)


def test_erasure_coding_is_ahead(cells):
    of_four = {each.scheme: each.mean_ns for each in cells if each.sites == 4}
    assert of_four["sr_rto"] > 1.5 * of_four["mds"]
    assert len(ring.table(cells)) == 2 + 2


@pytest.mark.parametrize("kind", ["random", "bursts", "varying"])
@pytest.mark.parametrize("loss", [1e-5, 1e-3])
def test_all_kinds_of_loss_lose_as_much_in_the_long_run(kind, loss):
    """Of a plan's rules: the shares of time, and the equilibrium of the two states."""
    case = ring.experiment(RING, 4, kind, 16 * loss, "mds")
    faults = [each for each in case.plan(1).faults if each.word == "loss"]
    here = [each for each in faults if each.directed_link == faults[0].directed_link]
    total = 0.0
    for each in here:
        window = each.window
        total += each.effect.rate * (window.length_ns / window.period_ns if window.period_ns else 1)
        if isinstance(each.effect, Gemodel):
            assert each.effect.mean_run == pytest.approx(16, rel=0.01)
    assert total == pytest.approx(loss, rel=0.01)


# ---------------------------------------------------------------- losses that jump

JUMP = jump.Options(
    distances_km=(3750,), sizes=(8 << 20, 128 << 20), losses=(1e-4,), schemes=("mds", "auto")
)


def test_the_choice_of_a_code_survives_a_jump():
    over = jump.auto_over_best(jump.run(JUMP, lambda _: None))
    assert max(over.values()) <= jump.WITHIN


def test_one_that_never_changes_its_mind_does_not(monkeypatch):
    """The mistake that the test above is about: it stays without parity."""
    monkeypatch.setitem(grid.SCHEMES, "auto", grid.SCHEMES["sr_nack"])
    options = dataclasses.replace(JUMP, sizes=(128 << 20,))
    over = jump.auto_over_best(jump.run(options, lambda _: None))
    assert max(over.values()) > jump.WITHIN


def test_the_verb_refuses_what_does_not_go_together():
    for options in (["--sites", "--jumps"], ["--sites", "--rounds", "2"]):
        argv = [sys.executable, "-m", "softroce_lab.cli", "bench", "crossover", *options]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ended.returncode == 2, ended
        assert options[0] in ended.stderr


def test_the_verb_prints_json(monkeypatch, capsys):
    from softroce_lab.cli.development import bench_crossover

    monkeypatch.setattr(ring, "SHORT", dataclasses.replace(RING, sites=(2,), repeat=2))
    bench_crossover.crossover(sites=True, as_json=True, quiet=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["scheme"] for row in rows] == ["sr_rto", "mds"]
