# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets of a queue pair's former life come again: none of them is executed."""

from softroce_lab.experiment.fuzz.failover.rig import Rig
from softroce_lab.experiment.fuzz.failover.work import (
    BOUND_NS,
    FIXED,
    BrokenError,
    Case,
)


def test_old_packets_change_nothing():
    """All that the first rail carried comes again: after the failover, and after the failback."""
    rig = Rig()
    rig.pairs[0].keep_sent()
    rig.pairs[0].cable(1).carries = 9
    case = Case(rig)
    case.run()
    old = rig.pairs[0].take_sent()
    replay(rig, old, 3)
    case.run()
    fail_back(rig, case)
    case.extend(FIXED, FIXED[:3])
    until_ns = rig.now_ns + 3 * BOUND_NS
    while not case.is_over:
        case.step()
        replay(rig, old, 1)
        if rig.now_ns > until_ns:
            raise BrokenError("not over")
    for talk in case.talks:
        talk.check_end()
    rig.close()


def fail_back(rig, case):
    """The cable is mended, and traffic goes on until the default NIC has it again."""
    rig.cut(down=False)
    rig.run(400_000)
    case.extend(FIXED[:6], FIXED[:3])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 1_000_000)


def replay(rig, frames, times, rail=0):
    for _ in range(times):
        for _, side, frame in frames:
            rig.pairs[rail].inject(1 - side, frame)


def test_old_packets_of_the_backup_change_nothing():
    """All that the second rail carried comes again: after the failback, and while it is in use."""
    rig = Rig()
    rig.pairs[1].keep_sent()
    rig.cut()
    case = Case(rig, [FIXED, FIXED[:4]])
    case.run()
    fail_back(rig, case)
    old = rig.pairs[1].take_sent()
    replay(rig, old, 2, rail=1)
    case.extend(FIXED, FIXED[:3])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 1_000_000)
    rig.cut()
    case.extend(FIXED, FIXED[:4])
    until_ns = rig.now_ns + 3 * BOUND_NS
    while not case.is_over:
        case.step()
        replay(rig, old, 1, rail=1)
        if rig.now_ns > until_ns:
            raise BrokenError("not over")
    if case.failed:
        raise BrokenError("an error surfaced")
    for talk in case.talks:
        talk.check_end()
    assert all(end.qp.epoch == 3 for end in rig.ends)
    rig.close()
