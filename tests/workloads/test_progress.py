# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's work: what it posts, what it waits for, and how it ends."""

import pytest

from softroce_lab.transports.api import NEVER_NS
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Compute, Receive, Send
from tests.workloads.recorder import Recorder


def sends(count, peer=1, **more):
    return [Send(Message((0, 0, n), 0, peer, 10), **more) for n in range(count)]


def receives(count, peer=1, **more):
    return [Receive(Message((0, 0, n), peer, 0, 10), **more) for n in range(count)]


def numbers(messages):
    return [message.key[2] for message in messages]


def test_depth_bounds_what_is_outstanding_to_each_peer():
    host = Recorder(sends(5) + sends(3, peer=2) + receives(9), depth=2)
    posts = host.begin()
    assert [(m.destination, m.key[2]) for m in posts["send"]] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert numbers(posts["receive"]) == [0, 1, 2, 3]
    assert numbers(host.sent(1, (0, 0, 1))["send"]) == [2]
    assert numbers(host.received(1, (0, 0, 3))["receive"]) == [4]


def test_a_send_waits_for_what_it_passes_on():
    host = Recorder(receives(2) + sends(1, peer=2, requires=(0, 1)))
    assert host.begin()["send"] == []
    assert host.quiet
    assert host.received(1, (0, 0, 1))["send"] == []
    assert numbers(host.received(1, (0, 0, 0))["send"]) == [0]
    assert not host.quiet
    host.sent(2, (0, 0, 0))
    assert host.finished
    assert not host.failed


def test_a_send_waits_for_its_time():
    host = Recorder(sends(2, at_ns=100))
    assert host.begin()["send"] == []
    assert host.next_at_ns == 100
    assert not host.quiet
    assert host.on_time(99)["send"] == []
    assert numbers(host.on_time(100)["send"]) == [0, 1]
    assert host.next_at_ns == NEVER_NS


def test_a_failed_send_ends_a_pair_and_no_other():
    host = Recorder(sends(9) + sends(1, peer=2) + receives(9), depth=1)
    host.begin()
    host.send_failed(1, (0, 0, 0))
    assert host.failed
    assert not host.finished
    assert host.left == 1 + 9
    assert not host.quiet
    host.sent(2, (0, 0, 0))
    assert host.quiet


def test_what_waits_for_a_failed_receive_is_never_sent():
    host = Recorder(receives(9) + sends(1, peer=2, requires=(5,)), depth=1)
    host.begin()
    host.receive_failed(1, (0, 0, 0))
    assert host.left == 1 + 1
    host.receive_failed(1, (0, 0, 1))
    assert host.left == 1
    assert host.quiet
    assert not host.finished


def test_a_completion_of_nothing_is_refused():
    host = Recorder(sends(2) + receives(2), depth=1)
    host.begin()
    with pytest.raises(KeyError):
        host.on_sent(1)
    host.received(1, (0, 0, 0))
    with pytest.raises(KeyError):
        host.received(1, (0, 0, 0))


# ---------------------------------------------------------------- the graph


def test_a_computation_takes_its_time():
    host = Recorder([*receives(1), Compute(50, (0,)), *sends(1, peer=2, requires=(1,))])
    host.begin()
    assert host.received(1, (0, 0, 0), now_ns=1000)["send"] == []
    assert not host.quiet
    assert host.next_at_ns == 1050
    assert host.on_time(1049)["send"] == []
    assert numbers(host.on_time(1050)["send"]) == [0]
    host.sent(2, (0, 0, 0))
    assert host.finished


def test_a_processor_computes_one_at_a_time_and_two_processors_two():
    host = Recorder([Compute(10), Compute(10), Compute(15, cpu=1)])
    host.begin()
    ends = []
    while not host.finished:
        ends.append(host.next_at_ns)
        host.on_time(host.next_at_ns)
    assert ends == [10, 15, 20]


def test_a_chain_of_joins_may_be_long():
    links = [Compute(0, (each - 1,) if each else ()) for each in range(50_000)]
    host = Recorder([*links, *sends(1, requires=(49_999,))])
    assert numbers(host.begin()["send"]) == [0]


def test_what_only_must_have_started_is_not_waited_for():
    host = Recorder([Compute(100), Compute(5, irequires=(0,), cpu=1), *sends(1, requires=(1,))])
    host.begin()
    assert numbers(host.on_time(5)["send"]) == [0]


def test_a_message_may_arrive_before_what_its_receive_requires():
    host = Recorder([*receives(1), *receives(1, peer=2, requires=(0,))])
    host.begin()
    posts = host.received(2, (0, 0, 0))
    assert (len(posts["keep"]), posts["combine"]) == (1, [])
    assert not host.finished
    posts = host.received(1, (0, 0, 0))
    assert [message.source for message in posts["combine"]] == [1, 2]
    assert host.finished
