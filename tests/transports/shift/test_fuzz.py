# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeds of `lab fuzz failover`: exactly once, whatever is cut, lost, delayed or duplicated."""

from softroce_lab.experiment.fuzz.failover.draw import Drawn, run


def test_a_probe_that_was_executed_and_not_acknowledged():
    """Its PSN is used at the peer: the next request must not have it, or is taken for a duplicate.

    The peer alone finds the default path well, and both go back to it.
    """
    assert "failback" in run(Drawn.of_seed(203)).features


def test_seeds():
    results = [run(Drawn.of_seed(seed)) for seed in range(1, 61)]
    assert sum(each.moves for each in results) >= 20
    assert any(each.failed for each in results)
