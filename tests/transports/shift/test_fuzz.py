# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeds of `lab fuzz failover`: exactly once, whatever is cut, lost, delayed or duplicated."""

import pytest

from softroce_lab.experiment.fuzz.failover.draw import Drawn, run
from softroce_lab.experiment.fuzz.failover.work import BrokenError
from softroce_lab.transports.shift.machine import Machine


class ForgetsTheProbe(Machine):
    """Requests follow a failed probe with its PSN."""

    def reprepare(self):
        super().reprepare()
        self._probe_unsure = False


def test_a_probe_that_was_executed_and_not_acknowledged(monkeypatch):
    """Its PSN is used at the peer: the next request must not have it, or is taken for a duplicate.

    The peer alone finds the default path well, and both go back to it.
    """
    assert "failback" in run(Drawn.of_seed(203)).features
    monkeypatch.setattr("softroce_lab.transports.shift.qp.Machine", ForgetsTheProbe)
    with pytest.raises(BrokenError):
        run(Drawn.of_seed(203))


def test_seeds():
    results = [run(Drawn.of_seed(seed)) for seed in range(1, 61)]
    assert sum(each.moves for each in results) >= 20
    assert any(each.failed for each in results)
