# SPDX-License-Identifier: GPL-2.0-or-later
"""Which sends are marked as the last of their step: the host waits behind them."""

import pytest

from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Compute, Receive, Send
from tests.workloads.recorder import Recorder


def send(number, peer=1, **more):
    return Send(Message((0, 0, number), 0, peer, 10), **more)


def receive(number, peer=1, **more):
    return Receive(Message((0, 1, number), peer, 0, 10), **more)


def last_of(host):
    taken, host.last_sends = [key[2] for key in host.last_sends], []
    return taken


def test_the_last_of_what_is_ready_ends_a_step():
    host = Recorder([send(0), send(1, peer=2), receive(0), send(2, requires=(2,))])
    host.begin()
    assert last_of(host) == [1]
    host.received(1, (0, 1, 0))
    assert last_of(host) == [2]


def test_a_send_that_waits_for_its_turn_follows():
    host = Recorder([send(0), send(1), send(2)], depth=1)
    host.begin()
    assert last_of(host) == []
    host.sent(1, (0, 0, 0))
    assert last_of(host) == []
    host.sent(1, (0, 0, 1))
    assert last_of(host) == [2]


def test_a_send_behind_a_computation_or_behind_sends_follows():
    vertices = [send(0), Compute(100, (0,)), send(1, peer=2, requires=(1,))]
    host = Recorder(vertices)
    host.begin()
    assert last_of(host) == []
    host.sent(1, (0, 0, 0))
    host.on_time(100)
    assert last_of(host) == [1]


def test_a_send_behind_the_start_of_a_receive_follows():
    """It waits for no arrival: the receive starts when it could be taken."""
    host = Recorder([send(0), receive(0, requires=(0,)), send(1, peer=2, irequires=(1,))])
    host.begin()
    assert last_of(host) == []


def test_a_computation_behind_an_arrival_does_not_count():
    vertices = [send(0), receive(0), Compute(100, (1,)), send(1, requires=(2,))]
    host = Recorder(vertices)
    host.begin()
    assert last_of(host) == [0]


def test_a_send_behind_one_that_waits_for_an_arrival_does_not_count():
    """Sends to a peer leave in order."""
    host = Recorder([receive(0), send(0, peer=2), send(1, requires=(0,)), send(2)])
    host.begin()
    assert last_of(host) == [0]
    host.received(1, (0, 1, 0))
    assert last_of(host) == [2]


def test_a_receive_that_came_early_counts_when_it_could_be_taken():
    vertices = [send(0), receive(0), receive(1, requires=(1,)), send(1, peer=2, requires=(2,))]
    host = Recorder(vertices)
    host.begin()
    assert last_of(host) == [0]
    host.received(1, (0, 1, 1))
    host.received(1, (0, 1, 0))
    assert last_of(host) == [1]


def test_a_flow_of_a_later_time_does_not_follow():
    """Nobody knows of it before. A flow that waits for its turn follows."""
    host = Recorder([send(0, at_ns=100), send(1, at_ns=200), send(2, at_ns=200)], depth=1)
    host.begin()
    host.on_time(100)
    assert last_of(host) == [0]
    host.on_time(200)
    host.sent(1, (0, 0, 0), 200)
    assert last_of(host) == []
    host.sent(1, (0, 0, 1), 300)
    assert last_of(host) == [2]


def test_sends_that_were_given_up_do_not_follow():
    host = Recorder([send(0), send(1), send(2, peer=2), send(3, peer=2)], depth=1)
    host.begin()
    assert last_of(host) == []
    host.send_failed(1, (0, 0, 0))
    host.sent(2, (0, 0, 2))
    assert last_of(host) == [3]


@pytest.mark.parametrize(("marks", "marked"), [("every", [0, 1, 2]), ("none", [])])
def test_wrong_marks(marks, marked):
    host = Recorder([send(0), send(1), receive(0), send(2, requires=(2,))], marks=marks)
    host.begin()
    host.received(1, (0, 1, 0))
    assert last_of(host) == marked
