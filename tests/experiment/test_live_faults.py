# SPDX-License-Identifier: GPL-2.0-or-later
"""Files cross a lab whose faults change all the time: all bytes arrive, all frames are counted."""

import os
import random
import secrets

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.faults.live import clear_on
from tests.experiment.drawn_faults import DrawnFaults
from tests.fabric.conservation import at_rest, balance
from tests.transfers import send

SHORT, FULL = 60, 1000  # changes
# After 5 to 20 changes no loss stands on the flow's way in 39 to 70 % of the draws.
MORE_CHANGES, MOST_TRANSFERS = 20, 30
INTERVAL_S = 0.02
FILE_BYTES = 16 << 20
MACHINE_SHARE = 0.1  # of the frames sent: a processor that is away for 0.1 s loses hundreds


@pytest.fixture
def lab(nothing_left):
    plan = topology.load("leaf-spine", name=f"t{secrets.token_hex(3)}")
    running = fabric.up(plan, ephemeral=True)
    yield running
    running.down()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(FILE_BYTES))
    return path


@pytest.mark.full("live-faults")
def test_nothing_is_lost_that_no_fault_took(full, lab, file, pytestconfig):
    """Random changes of faults during transfers, 1000 in full: no frame lost by them, no crash."""
    given = pytestconfig.getoption("--case-seed")
    seed = random.SystemRandom().randrange(10**6) if given is None else given
    print(f"replay: ./lab test -- tests/experiment/test_live_faults.py --case-seed {seed}")
    chance = random.Random(seed)
    left = FULL if full else SHORT
    totals = dict.fromkeys(("changes", "refused", "transfers", "sent", "injected", "machine"), 0)
    while left > 0 or (not totals["injected"] and totals["transfers"] < MOST_TRANSFERS):
        before = at_rest(lab)
        with DrawnFaults(lab, chance, max(left, MORE_CHANGES), INTERVAL_S) as changing:
            done = send(lab, "leaf-spine", file, "h1", "h3", seed=1 + totals["transfers"])
        counted = at_rest(lab) - before
        hosts = done.facts["processes"]
        sent = {name: hosts[name]["frames_sent"] for name in ("h1", "h3")}
        found = balance(lab.plan, counted, sent)
        assert done.verified
        assert found.unexplained == {}
        left -= changing.made
        for name, number in (
            ("changes", changing.made),
            ("refused", changing.refused),
            ("transfers", 1),
            ("sent", sum(sent.values())),
            ("injected", found.injected),
            ("machine", sum(found.machine.values())),
        ):
            totals[name] += number
        lab.faults.change(lambda plan: clear_on(plan, range(2 * len(plan.links))), lambda: 0)
    print(totals)
    assert totals["injected"] > 0
    assert totals["refused"] < totals["changes"] / 2
    assert totals["machine"] <= MACHINE_SHARE * totals["sent"]
