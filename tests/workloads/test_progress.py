# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's work: what it posts, what it waits for, and how it ends."""

import pytest

from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.progress import Act, HostWork
from softroce_lab.workloads.schedule import Compute, Receive, Send


def sends(count, peer=1, **more):
    return [Send(Message((0, 0, n), 0, peer, 10), **more) for n in range(count)]


def receives(count, peer=1, **more):
    return [Receive(Message((0, 0, n), peer, 0, 10), **more) for n in range(count)]


def numbers(messages):
    return [message.key[2] for message in messages]


def test_depth_bounds_what_is_outstanding_to_each_peer():
    work = HostWork(sends(5) + sends(3, peer=2) + receives(9), depth=2)
    posts = work.begin()
    assert [(m.destination, m.key[2]) for m in posts.of(Act.SEND)] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert numbers(posts.of(Act.RECEIVE)) == [0, 1, 2, 3]
    assert numbers(work.on_sent(1, (0, 0, 1)).of(Act.SEND)) == [2]
    assert numbers(work.on_received(1, (0, 0, 3)).of(Act.RECEIVE)) == [4]


def test_a_send_waits_for_what_it_passes_on():
    work = HostWork(receives(2) + sends(1, peer=2, requires=(0, 1)))
    assert work.begin().of(Act.SEND) == []
    assert work.quiet
    assert work.on_received(1, (0, 0, 1)).of(Act.SEND) == []
    assert numbers(work.on_received(1, (0, 0, 0)).of(Act.SEND)) == [0]
    assert not work.quiet
    work.on_sent(2, (0, 0, 0))
    assert work.finished
    assert not work.failed


def test_later_sends_to_a_peer_do_not_overtake_one_that_waits():
    waiting = sends(1, requires=(0,))
    work = HostWork([*receives(1), *waiting, Send(Message((0, 1, 0), 0, 1, 10))])
    assert work.begin().of(Act.SEND) == []
    assert [m.key for m in work.on_received(1, (0, 0, 0)).of(Act.SEND)] == [(0, 0, 0), (0, 1, 0)]


def test_a_send_waits_for_its_time():
    work = HostWork(sends(2, at_ns=100))
    assert work.begin().of(Act.SEND) == []
    assert work.next_at_ns == 100
    assert not work.quiet
    assert work.on_time(99).of(Act.SEND) == []
    assert numbers(work.on_time(100).of(Act.SEND)) == [0, 1]
    assert work.next_at_ns == NEVER_NS


def test_a_time_that_was_past_in_the_beginning():
    assert numbers(HostWork(sends(1, at_ns=100)).begin(now_ns=150).of(Act.SEND)) == [0]


def test_a_failed_send_ends_a_pair_and_no_other():
    work = HostWork(sends(9) + sends(1, peer=2) + receives(9), depth=1)
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
    work = HostWork(receives(9) + sends(1, peer=2, requires=(5,)), depth=1)
    work.begin()
    work.on_receive_failed(1, (0, 0, 0))
    assert list(work.outstanding()) == [("receive", 1, (0, 0, 1))]
    work.on_receive_failed(1, (0, 0, 1))
    assert work.left == 1
    assert work.quiet
    assert not work.finished


def test_a_completion_of_nothing_is_refused():
    work = HostWork(sends(2) + receives(2), depth=1)
    work.begin()
    with pytest.raises(KeyError):
        work.on_sent(1, (0, 0, 1))
    with pytest.raises(KeyError):
        work.on_received(1, (0, 0, 9))


# ---------------------------------------------------------------- the graph


def test_a_computation_takes_its_time():
    work = HostWork([*receives(1), Compute(50, (0,)), *sends(1, peer=2, requires=(1,))])
    work.begin()
    assert work.on_received(1, (0, 0, 0), now_ns=1000).of(Act.SEND) == []
    assert not work.quiet
    assert work.next_at_ns == 1050
    assert work.on_time(1049).of(Act.SEND) == []
    assert numbers(work.on_time(1050).of(Act.SEND)) == [0]
    work.on_sent(2, (0, 0, 0))
    assert work.finished


def test_a_computation_behind_a_send_begins_when_that_completed():
    work = HostWork([*sends(1), Compute(50, (0,))])
    work.begin()
    work.on_sent(1, (0, 0, 0), now_ns=300)
    assert work.next_at_ns == 350


def test_a_processor_computes_one_at_a_time_and_two_processors_two():
    work = HostWork([Compute(10), Compute(10), Compute(15, cpu=1)])
    work.begin()
    ends = []
    while not work.finished:
        ends.append(work.next_at_ns)
        work.on_time(work.next_at_ns)
    assert ends == [10, 15, 20]


def test_a_computation_begins_at_its_time():
    work = HostWork([Compute(10, at_ns=100), *sends(1, requires=(0,))])
    assert work.begin().of(Act.SEND) == []
    assert work.on_time(100).of(Act.SEND) == []
    assert numbers(work.on_time(110).of(Act.SEND)) == [0]


def test_nothing_is_finished_while_a_computation_is_left():
    work = HostWork([Compute(10)])
    work.begin()
    assert not work.finished
    assert work.left == 0
    work.on_time(10)
    assert work.finished


def test_a_chain_of_joins_may_be_long():
    links = [Compute(0, (each - 1,) if each else ()) for each in range(50_000)]
    work = HostWork([*links, *sends(1, requires=(49_999,))])
    assert numbers(work.begin().of(Act.SEND)) == [0]


def test_what_only_must_have_started_is_not_waited_for():
    work = HostWork([Compute(100), Compute(5, irequires=(0,), cpu=1), *sends(1, requires=(1,))])
    work.begin()
    assert numbers(work.on_time(5).of(Act.SEND)) == [0]


def test_a_message_may_arrive_before_what_its_receive_requires():
    work = HostWork([*receives(1), *receives(1, peer=2, requires=(0,))])
    work.begin()
    posts = work.on_received(2, (0, 0, 0))
    assert (len(posts.of(Act.KEEP)), posts.of(Act.COMBINE)) == (1, [])
    assert not work.finished
    posts = work.on_received(1, (0, 0, 0))
    assert [message.source for message in posts.of(Act.COMBINE)] == [1, 2]
    assert work.finished
