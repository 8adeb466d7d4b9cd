# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's work: what it posts, what it waits for, and how it ends."""

import pytest

from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.progress import HostWork
from softroce_lab.workloads.work import Message


def sends(count, peer=1, **more):
    return [Message((0, 0, n), 0, peer, 10, **more) for n in range(count)]


def receives(count, peer=1):
    return [Message((0, 0, n), peer, 0, 10) for n in range(count)]


def numbers(messages):
    return [message.key[2] for message in messages]


def test_depth_bounds_what_is_outstanding_to_each_peer():
    work = HostWork(sends(5) + sends(3, peer=2), receives(9), depth=2)
    posts = work.begin()
    assert [(m.destination, m.key[2]) for m in posts.sends] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert numbers(posts.receives) == [0, 1, 2, 3]
    assert numbers(work.on_sent(1, (0, 0, 1)).sends) == [2]
    assert numbers(work.on_received(1, (0, 0, 3)).receives) == [4]


def test_a_send_waits_for_what_it_passes_on():
    after = ((1, (0, 0, 0)), (1, (0, 0, 1)))
    work = HostWork(sends(1, peer=2, after=after), receives(2))
    assert work.begin().sends == []
    assert work.quiet
    assert work.on_received(1, (0, 0, 1)).sends == []
    assert numbers(work.on_received(1, (0, 0, 0)).sends) == [0]
    assert not work.quiet
    work.on_sent(2, (0, 0, 0))
    assert work.finished
    assert not work.failed


def test_later_sends_to_a_peer_do_not_overtake_one_that_waits():
    waiting = sends(1, after=((1, (0, 0, 0)),))
    work = HostWork([*waiting, Message((0, 1, 0), 0, 1, 10)], receives(1))
    assert work.begin().sends == []
    assert [m.key for m in work.on_received(1, (0, 0, 0)).sends] == [(0, 0, 0), (0, 1, 0)]


def test_a_send_waits_for_its_time():
    work = HostWork(sends(2, at_ns=100), [])
    assert work.begin().sends == []
    assert work.next_at_ns == 100
    assert not work.quiet
    assert work.on_time(99).sends == []
    assert numbers(work.on_time(100).sends) == [0, 1]
    assert work.next_at_ns == NEVER_NS


def test_a_time_that_was_past_in_the_beginning():
    assert numbers(HostWork(sends(1, at_ns=100), []).begin(now_ns=150).sends) == [0]


def test_a_failed_send_ends_a_pair_and_no_other():
    work = HostWork(sends(9) + sends(1, peer=2), receives(9), depth=1)
    work.begin()
    work.on_send_failed(1, (0, 0, 0))
    assert work.failed
    assert work.failures == [(1, (0, 0, 0))]
    assert not work.finished
    assert work.left == 1 + 9
    assert list(work.outstanding()) == [
        ("send", 2, (0, 0, 0)),
        ("receive", 1, (0, 0, 0)),
        ("receive", 1, (0, 0, 1)),
    ]
    work.on_sent(2, (0, 0, 0))
    assert work.quiet


def test_what_waits_for_a_failed_receive_is_never_sent():
    work = HostWork(sends(1, peer=2, after=((1, (0, 0, 5)),)), receives(9), depth=1)
    work.begin()
    work.on_receive_failed(1, (0, 0, 0))
    assert list(work.outstanding()) == [("receive", 1, (0, 0, 1))]
    work.on_receive_failed(1, (0, 0, 1))
    assert work.left == 1
    assert work.quiet
    assert not work.finished


def test_a_completion_of_nothing_is_refused():
    work = HostWork(sends(2), receives(2), depth=1)
    work.begin()
    with pytest.raises(KeyError):
        work.on_sent(1, (0, 0, 1))
    with pytest.raises(KeyError):
        work.on_received(1, (0, 0, 9))
