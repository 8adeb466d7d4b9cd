# SPDX-License-Identifier: GPL-2.0-or-later
"""Which clock `lab demo failover` runs on."""

import os

import pytest

from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options

OPTIONS = Options(hosts=2, steps=6, model_bytes=4_000)


@pytest.fixture
def unprivileged(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_without_a_lab_it_is_simulated_and_says_so(unprivileged):
    reported = []
    outcomes, clock = failover.run(OPTIONS, "auto", reported.append)
    assert clock == "virtual"
    assert "so the demo runs on the virtual clock, as a simulation" in reported
    assert [each.right for each in outcomes] == [False, True]


@pytest.mark.parametrize(("clock", "mode"), [("real", "auto"), ("auto", "generic")])
def test_what_only_a_lab_has_is_not_replaced(unprivileged, clock, mode):
    with pytest.raises(EnvironmentLackError):
        failover.run(Options(hosts=2, steps=6, mode=mode), clock, lambda _: None)


def test_a_mistake_is_told_before_what_the_machine_lacks(unprivileged):
    with pytest.raises(UserError, match="one rail"):
        failover.run(Options(topology="two-hosts"), "auto", lambda _: None)
