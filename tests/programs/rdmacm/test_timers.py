# SPDX-License-Identifier: GPL-2.0-or-later
"""Timers: one time an id, the earliest first."""

from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm.timers import Timers

times = st.one_of(st.none(), st.integers(0, 50))
changes = st.lists(st.tuples(st.integers(1, 5), times), max_size=60)


@given(changes, st.integers(0, 60))
def test_timers_are_the_last_time_of_each_id(changes, now_ns):
    timers, last = Timers(), {}
    for comm_id, due_ns in changes:
        timers.set(comm_id, due_ns)
        last[comm_id] = due_ns
        awaited = [each for each in last.values() if each is not None]
        assert timers.next_ns == min(awaited, default=None)
    taken = []
    while (comm_id := timers.take(now_ns)) is not None:
        taken.append((last[comm_id], comm_id))
    due = [(at_ns, comm_id) for comm_id, at_ns in last.items() if at_ns is not None]
    assert taken == sorted(each for each in due if each[0] <= now_ns)
    later = [at_ns for at_ns, _ in due if at_ns > now_ns]
    assert timers.next_ns == min(later, default=None)


def test_the_same_time_again_takes_no_room():
    timers = Timers()
    for _ in range(100):
        timers.set(1, 7)
    assert len(timers) == 1
