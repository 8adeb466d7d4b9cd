# SPDX-License-Identifier: GPL-2.0-or-later
"""When a run is over before all hosts are done, and why."""

from softroce_lab.experiment.hosts.report import HostProgress
from softroce_lab.experiment.run_end import Ended, RunEnd

SECOND = 10**9
BUSY, QUIET = HostProgress(), HostProgress(quiet=True)
WAITING = HostProgress(waits_for_time=True)


def real_clock(begun_ns=0):
    return RunEnd(4, 60 * SECOND, begun_ns=begun_ns, quiet_ns=SECOND, stall_ns=15 * SECOND)


def virtual_clock():
    return RunEnd(4, 60 * SECOND)


def test_the_deadline_counts_from_the_beginning():
    end = real_clock(begun_ns=7 * SECOND)
    end.progressed(67 * SECOND - 1)
    assert end.judge(67 * SECOND - 1, [BUSY]) is None
    why = "the deadline of 1 min 0 s came, 1 of 4 hosts were not done"
    assert end.judge(67 * SECOND, [BUSY]) == Ended(why)


def test_a_run_without_progress_ends_on_the_real_clock():
    end = real_clock()
    end.progressed(2 * SECOND)
    assert end.judge(17 * SECOND - 1, [BUSY, QUIET]) is None
    assert end.judge(17 * SECOND, [BUSY, QUIET]) == Ended("nothing moved for 15 s")


def test_a_host_that_waits_for_a_time_is_no_standstill():
    end = real_clock()
    assert end.judge(20 * SECOND, [QUIET, WAITING]) is None
    assert end.judge(34 * SECOND, [QUIET, QUIET]) is None
    assert end.judge(35 * SECOND, [QUIET, QUIET]) == Ended("nothing moved for 15 s")


def test_after_a_failure_quiet_hosts_end_the_run():
    """On the real clock a second later: what they know of each other is old."""
    ended = Ended("2 of 4 hosts wait for what failed elsewhere", follows_failure=True)
    real, virtual = real_clock(), virtual_clock()
    for end in (real, virtual):
        end.failed()
    assert virtual.judge(1, [QUIET, QUIET]) == ended
    assert real.judge(SECOND - 1, [QUIET, QUIET]) is None
    assert real.judge(SECOND, [QUIET, QUIET]) == ended


def test_progress_after_a_failure_is_waited_for():
    end = real_clock()
    end.failed()
    end.progressed(3 * SECOND)
    assert end.judge(4 * SECOND - 1, [QUIET]) is None
    assert end.judge(4 * SECOND, [QUIET]) is not None
