# SPDX-License-Identifier: GPL-2.0-or-later
"""Charges of losses: the sum rule, and each charge by one explicit run."""

import pytest

from softroce_lab.experiment.sweep.pool import InPlace
from softroce_lab.results.blame import charges
from softroce_lab.results.blame.investigation import SHARES, Investigation
from softroce_lab.results.recorded import Recorded
from tests.results.made import run


def investigated(directory, name, step=None):
    recorded = Recorded(directory)
    return Investigation.of(recorded, recorded.run(name), step)


@pytest.fixture(scope="module")
def of(ring_run):
    known = {name: investigated(ring_run, name) for name in ("csa_ud/1", "rc/1")}
    return {
        name: (each, charges.blame(each.subject, InPlace(), 24)) for name, each in known.items()
    }


@pytest.mark.parametrize("name", ["csa_ud/1", "rc/1"])
def test_the_sum_rule(of, name):
    known, found = of[name]
    assert found.runs <= 24
    assert found.with_all_ns == known.subject.base.end_ns()
    assert found.with_none_ns == known.without(range(found.losses))
    assert found.cost_ns > 0
    assert sum(each.end_ns for each in found.charges) + found.rest_ns == found.cost_ns
    charged = [loss for each in found.charges for loss in each.losses]
    assert len(charged) == len(set(charged)) == found.losses - found.rest
    shares = known.shares()
    assert tuple(shares) == SHARES
    assert sum(shares.values()) == found.with_all_ns
    assert shares["sending"] > 0
    assert all(length >= 0 for length in shares.values())
    undone, before_ns = [], found.with_all_ns
    for each in found.charges:  # the difference of two explicit runs
        undone += each.losses
        left_ns = known.without(undone)
        assert (left_ns, before_ns - left_ns) == (each.left_ns, each.end_ns)
        before_ns = left_ns


def test_one_loss_has_the_whole_cost(tmp_path):
    link = "faults=[{name: tail, links: '*->h2', drop: {tail: 1, iter: 1}}]"
    size = "workload={kind: point-to-point, bytes: 256KiB, message: 256KiB}"
    directory = run("point-to-point", tmp_path, link, size, "seeds=1", transports=("irn",))
    known = investigated(directory, "irn/1")
    found = charges.blame(known.subject, InPlace(), 8)
    assert (found.losses, found.rest, found.rest_ns, found.whole) == (1, 0, 0, True)
    (charge,) = found.charges
    assert charge.losses == (0,)
    assert charge.end_ns == charge.message_ns == charge.step_ns == found.cost_ns > 10_000


def test_a_step(ring_run):
    known = investigated(ring_run, "rc/1", step="2")
    found = charges.blame(known.subject, InPlace(), 12)
    steps = known.known.messages.columns["step"] == 2
    completed = known.known.messages.columns["completed_ns"][steps].max()
    assert found.with_all_ns == completed - known.known.messages.columns["posted_ns"].min()
    assert known.path[-1].end_ns == completed
    assert sum(each.end_ns for each in found.charges) + found.rest_ns == found.cost_ns


HELD = (
    "topology={generator: {kind: dual-rail, hosts_per_leaf: 4, rails: 3, "
    "access: {rate: 10Gbit, delay: 1us}}}"
)


@pytest.mark.parametrize(("seed", "rail"), [(3, 1), (2, 3)])
def test_a_loss_behind_sends_that_wait_for_each_other_is_found(tmp_path, seed, rail):
    """Sends to a peer are posted in order: one that may not be posted holds up those behind it."""
    workload = f"{{kind: ring-all-reduce, bytes: 256KiB, message: 32KiB, rail: {rail}}}"
    loss = f"faults=[{{name: lossy, ports: 'h*:eth{rail}', loss: 1%}}]"
    directory = run(
        "point-to-point", tmp_path, HELD, f"workload={workload}", loss, f"seeds=[{seed}]",
        transports=("irn",),
    )  # fmt: skip
    known = investigated(directory, f"irn/{seed}")
    found = charges.blame(known.subject, InPlace(), 24)
    assert found.cost_ns > 50_000
    assert found.rest_ns < 0.1 * found.cost_ns
