# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs with losses undone: all other fates stay, and without any loss nothing is left of them."""

import json

import numpy as np
import pytest

from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment import spec, virtual
from softroce_lab.results.blame import counterfactual
from softroce_lab.results.blame.counterfactual import Case
from softroce_lab.results.recorded import Recorded
from tests.results.made import RING, ring

NAMES = ["csa_ud/1", "rc/2"]


def case_of(directory, name):
    recorded = Recorded(directory)
    return recorded, recorded.run(name), Case.of(recorded, recorded.run(name))


@pytest.mark.parametrize("name", NAMES)
def test_frozen_fates_give_the_same_run(ring_run, name):
    recorded, run, case = case_of(ring_run, name)
    base = counterfactual.carry_out(case)
    counterfactual.check_same(recorded, run, base)
    assert len(counterfactual.losses(base.records)) > 5
    again = counterfactual.carry_out(case, base.fates)
    assert np.array_equal(again.messages, base.messages)
    assert np.array_equal(again.keys, base.keys)
    assert np.array_equal(again.records, base.records)


@pytest.mark.parametrize("name", NAMES)
def test_without_all_losses_it_is_the_run_without_faults(ring_run, name):
    _, _, case = case_of(ring_run, name)
    base = counterfactual.carry_out(case)
    none = counterfactual.carry_out(case, base.fates.without(range(len(base.keys))))
    assert not len(none.records)
    changes = [spec.parse_override(each) for each in (*RING, "faults=[]", "payload=none")]
    clean = spec.load("ring-all-reduce", changes)
    transport = next(each for each in clean.transports if each.label == case.transport)
    found = virtual.run(clean, transport, case.seed, lambda _: None)
    assert np.array_equal(none.messages, found.messages)
    assert none.end_ns() == found.makespan_ns < base.end_ns()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_undone_is_lost_again(ring_run, name):
    _, _, case = case_of(ring_run, name)
    base = counterfactual.carry_out(case)
    losses = counterfactual.losses(base.records)
    undone = losses[:: max(1, len(losses) // 4)]
    other = counterfactual.carry_out(case, base.fates.without(undone.tolist()))
    assert not np.isin(base.keys[undone], other.keys).any()
    assert np.isin(other.keys, base.keys).all()  # no packet is lost that was not


EFFECTS = (
    "{name: wild, links: 'leaf*<->spine*', cut: 1%, corrupt: 1%, duplicate: 1%, "
    "reorder: {percent: 2%, by: 3us}}"
)
JITTER = "topology.generator.core={rate: 100Gbit, delay: 1us 200ns, limit: 1MiB}"
BURSTS = "{name: bursts, links: 'leaf*->spine*', loss: {gemodel: 1% 20%}}"


@pytest.mark.parametrize(
    ("transport", "lb"),
    [("csa_ud", "flow"), ("irn", "spray"), ("rc", "adaptive"), ("sdr_ec", "flow"),
     ("{name: csa_ud, framing: uc_immediate}", "spray")],
    ids=str,
)  # fmt: skip
def test_all_kinds_of_fates_are_frozen(tmp_path, transport, lb):
    faults = f"faults=[{EFFECTS}, {BURSTS}]"
    changes = (f"transports=[{transport}]", faults, "seeds=1", f"lb={lb}", JITTER)
    directory = ring(tmp_path, *changes)
    label = Recorded(directory).runs[0]["run"]
    recorded, run, case = case_of(directory, label)
    base = counterfactual.carry_out(case)
    counterfactual.check_same(recorded, run, base)
    effects = set(base.records["effect"].tolist())
    assert {1, 2, 4, 8} <= effects
    assert (64 in effects) == (transport in ("csa_ud", "irn"))  # packets with the lab's header
    again = counterfactual.carry_out(case, base.fates)
    assert np.array_equal(again.messages, base.messages)
    assert np.array_equal(np.sort(again.keys), np.sort(base.keys))


def test_a_link_that_is_down_is_down_in_every_run(tmp_path):
    down = "faults=[{name: out, links: 'leaf1<->spine1', down: true, at: 20us, for: 2ms}]"
    directory = ring(tmp_path, down, "seeds=1", transports=("csa_ud",))
    _, _, case = case_of(directory, "csa_ud/1")
    base = counterfactual.carry_out(case)
    assert len(base.records)
    assert not len(counterfactual.losses(base.records))
    again = counterfactual.carry_out(case, base.fates)
    assert np.array_equal(again.messages, base.messages)
    assert np.array_equal(again.records, base.records)


def changed(directory, tmp_path, **what):
    copy = tmp_path / "copy"
    copy.mkdir()
    for each in directory.iterdir():
        if each.is_file():
            (copy / each.name).write_bytes(each.read_bytes())
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | what))
    return copy


def test_what_cannot_be_repeated(ring_run, tmp_path):
    copy = changed(ring_run, tmp_path, clock="real")
    with pytest.raises(UserError, match="real clock, which cannot be repeated"):
        case_of(copy, "rc/1")
    (copy / "manifest.json").write_bytes((ring_run / "manifest.json").read_bytes())
    recorded, run, case = case_of(copy, "rc/1")
    with pytest.raises(UserError, match="failed: it has no time"):
        Case.of(recorded, {**run, "verdict": "failed"})
    other = counterfactual.carry_out(Case(case.file, "rc", 2))
    with pytest.raises(RunError, match="rc/1 did not come out as it was recorded"):
        counterfactual.check_same(recorded, run, other)
    case.file.unlink()
    with pytest.raises(UserError, match=r"experiment\.json is missing"):
        Case.of(recorded, run)
