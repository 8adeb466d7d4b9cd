# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover`: the job goes on with SHIFT, and stops without."""

import json
import os
import types

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.rig import Options
from softroce_lab.experiment.hosts import rnics


def test_the_order_of_additions_is_that_of_the_ring():
    """Of two hosts the sum has no order; other seeds give another model."""
    job = ring_job.Job(2, 3, 16)
    model = np.zeros(16, np.float32)
    for step in range(3):
        total = ring_job.gradient(job, 0, step) + ring_job.gradient(job, 1, step)
        model -= ring_job.LEARNING_RATE * total
    assert ring_job.reference(job) == ring_job.checksum(model)
    first, second = (ring_job.reference(ring_job.Job(3, 2, 24, seed)) for seed in (1, 2))
    assert first != second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(topology="two-hosts"), "one rail"),
        (Options(hosts=1), "1 hosts"),
        (Options(hosts=9), "9 hosts"),
        (Options(steps=10, dies_at=5, repaired_at=5), "dies in step 5"),
        (Options(steps=10, dies_at=3, repaired_at=11), "step 11 of 10"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(options, message):
    with pytest.raises(UserError, match=message):
        failover.plan_of(options)


def test_the_demo(nothing_left):
    messages = []
    options = Options(name=f"failover{os.getpid()}", hosts=2, steps=300, dies_at=20, repaired_at=30)
    plain, shift = failover.run_on("real", options, messages.append)
    assert not plain.right
    assert any("RETRY_EXC" in error for error in plain.errors)
    assert plain.steps_done < 300
    assert shift.right, shift.errors
    assert shift.steps_done == 300
    assert shift.notifications == shift.expected
    assert {each.event.after for each in shift.moments} >= {"Fallback", "Default"}
    document = json.loads(json.dumps(failover.document([plain, shift])))
    assert document["jobs"]["shift"]["right"] is True
    assert document["jobs"]["shift"]["failover_ns"] < 10**9
    assert messages


def test_an_unknown_rail_is_refused_with_those_there_are():
    plan, hosts = failover.plan_of(Options())
    lab = types.SimpleNamespace(plan=plan)
    with (
        pytest.raises(UserError, match="has no rail eth9") as caught,
        rnics.opened(lab, hosts[0].name, rail="eth9"),
    ):
        pass
    assert caught.value.hint == "its ports: eth1, eth2"
