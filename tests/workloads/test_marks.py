# SPDX-License-Identifier: GPL-2.0-or-later
"""Which sends are marked as the last of their step: the host waits behind them."""

import pytest

from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, Scatter
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.schedule import Compute, Receive, Send
from tests.workloads.legal_order import Network
from tests.workloads.recorder import Recorder
from tests.workloads.test_training import training


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


def test_an_operation_of_a_later_time_does_not_follow():
    vertices = [send(0), Compute(0, at_ns=100), send(1, requires=(1,)), send(2, requires=(1,))]
    host = Recorder(vertices)
    host.begin()
    assert last_of(host) == [0]
    host.on_time(100)
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


# ---------------------------------------------------------------- against the definition


class Witness:
    """Sees a host's marks, and finds them again from the whole graph."""

    def __init__(self, host, wrong):
        self._host, self._wrong = host, wrong
        self._over = set()  # receives, and computations whose time has come
        self._posted = self.last = 0
        self._marks = host._following
        host._following = self

    def received(self, index):
        self._over.add(index)
        self._marks.received(index)

    def timed_computation(self, index):
        self._over.add(index)
        self._marks.timed_computation(index)

    def posted(self, now_ns):
        self._posted += 1
        followed = self._marks.posted(now_ns)
        self.last += not followed
        if followed != (self._certain_sends(now_ns) > self._posted):
            self._wrong.append((self._posted, followed))
        return followed

    def _certain_sends(self, now_ns):
        """Whose time has come."""
        started, ended, before = set(), set(), -1
        while before != len(started) + len(ended):  # a vertex may require one behind it
            before, blocked, sends = len(started) + len(ended), set(), 0
            for index, vertex in enumerate(self._host._vertices):
                ready = ended.issuperset(vertex.requires) and started.issuperset(vertex.irequires)
                over = index in self._over
                if isinstance(vertex, Send):
                    peer = vertex.message.destination
                    blocked |= set() if ready else {peer}
                    ready = over = peer not in blocked
                    sends += ready and vertex.at_ns <= now_ns
                elif isinstance(vertex, Compute):
                    ready = over = ready and (over or not vertex.at_ns)
                started |= {index} if ready else set()
                ended |= {index} if over else set()
        return sends


RANKS = (0, 1, 2, 3)
WORKLOADS = [
    *(kind(RANKS, 300, 64) for kind in (Permutation, Incast, Scatter, AllToAll, Collective)),
    *(Operations(kind(RANKS, 300, 64), 3) for kind in (AllToAll, Incast, Collective)),
    Operations(Incast(RANKS, 300, 64), 3, Timeline(1000, skew_ns=300, seed=1)),
    training((2, 2, 1, 2)),
    training((2, 1, 2, 1)),
]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("order", [0, 1])
def test_marks_are_those_of_the_definition(workload, order):
    network, wrong = Network(workload, 3, 1 + order, order), []
    witnesses = [Witness(host, wrong) for host in network.hosts.values()]
    network.carry_out()
    assert wrong == []
    senders = [each for each in witnesses if each._posted]
    assert all(each.last for each in senders)  # nothing follows the last of all
