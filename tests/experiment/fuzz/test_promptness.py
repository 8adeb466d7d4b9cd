# SPDX-License-Identifier: GPL-2.0-or-later
"""When a send might have been posted, worked out by hand."""

import math

import pytest

from softroce_lab.experiment.fuzz import workload_invariants
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Compute, Receive, Send

HOST, PEER, OTHER = 0, 1, 2


def message(number, source=HOST, destination=PEER):
    return Message((0, 0, number), source, destination, 100, 0, 0)


def send(number, destination=PEER, **needs):
    return Send(message(number, destination=destination), **needs)


def receive(number, **needs):
    return Receive(message(number, PEER, HOST), **needs)


def late(vertices, times, depth=4):
    """`times`: of each vertex that is a message (posted, acknowledged) or when it is there."""
    rows = {}
    for vertex, of in zip(vertices, times, strict=True):
        if isinstance(vertex, Send):
            rows[workload_invariants._name(vertex)] = (*of, of[0])
        elif isinstance(vertex, Receive):
            rows[workload_invariants._name(vertex)] = (0, 0, of)
    return list(workload_invariants.late(vertices, rows, depth))


def test_a_send_that_requires_nothing_is_posted_at_once_or_at_its_time():
    assert late([send(0), send(1, at_ns=50)], [(0, 10), (50, 60)]) == []
    (found,) = late([send(0), send(1, at_ns=50)], [(0, 10), (51, 60)])
    assert found == "message 0/0/1 1 ns after it might have been"
    assert late([send(0)], [(1, 10)])


def test_what_it_requires_is_there():
    vertices = [receive(0), Compute(30, (0,)), send(0, requires=(1,)), send(1, irequires=(1,))]
    assert late(vertices, [100, None, (130, 150), (130, 150)]) == []
    assert late(vertices, [100, None, (131, 150), (131, 150)])
    # The second send waits for the one before it, although what it requires has begun.
    early = [receive(0), Compute(30, (0,)), send(0, requires=(1,)), send(1, OTHER, irequires=(1,))]
    assert late(early, [100, None, (130, 150), (100, 150)]) == []
    assert late(early, [100, None, (130, 150), (130, 150)])


def test_as_many_are_outstanding_as_may_be():
    """Acknowledgements in any order: the third send waits for the first of them."""
    vertices = [send(number) for number in range(4)]
    assert late(vertices, [(0, 90), (0, 40), (40, 70), (70, 99)], depth=2) == []
    assert late(vertices, [(0, 90), (0, 40), (41, 70), (70, 99)], depth=2)
    assert late(vertices, [(0, 90), (0, 40), (40, 70), (90, 99)], depth=2)


def test_a_processor_computes_one_at_a_time():
    vertices = [
        receive(0), receive(1), Compute(50, (0,)), Compute(7, (1,)), Compute(7, (1,), cpu=1),
        send(0, requires=(3,)), send(0, OTHER, requires=(4,)),
    ]  # fmt: skip
    times = [10, 20, None, None, None, (67, 80), (27, 80)]
    assert late(vertices, times) == []
    assert late(vertices, [*times[:5], (68, 80), (27, 80)])
    assert late(vertices, [*times[:5], (67, 80), (28, 80)])


def test_computations_of_the_beginning_are_in_the_order_of_the_graph():
    vertices = [Compute(30), Compute(5), send(0, requires=(0,)), send(0, OTHER, requires=(1,))]
    assert late(vertices, [None, None, (30, 40), (35, 40)]) == []
    assert late(vertices, [None, None, (35, 40), (35, 40)])
    assert late(vertices, [None, None, (30, 40), (36, 40)])


@pytest.mark.parametrize("posted", [(60, 80), (75, 65)])
def test_of_two_that_are_ready_at_once_nothing_is_told(posted):
    """Either may be first. One that is ready later, behind both, is known again."""
    vertices = [
        receive(0), receive(1), receive(2), Compute(10, (0,)), Compute(15, (1,)), Compute(5, (2,)),
        send(0, requires=(3,)), send(0, OTHER, requires=(4,)), send(0, 3, requires=(5,)),
    ]  # fmt: skip
    times = [50, 50, 60, None, None, None, (posted[0], 99), (posted[1], 99)]
    assert late(vertices, [*times, (80, 99)]) == []
    assert late(vertices, [*times, (81, 99)])


def test_what_follows_from_that_is_not_told_either():
    """The second processor has one of them follow: what is ready there may come before or after."""
    vertices = [
        receive(0), receive(1), receive(2), Compute(10, (0,)), Compute(15, (1,)),
        Compute(20, (3,), cpu=1), Compute(5, (2,), cpu=1), send(0, requires=(6,)),
    ]  # fmt: skip
    assert late(vertices, [50, 50, 62, None, None, None, None, (85, 99)]) == []


def test_messages_that_never_came():
    assert workload_invariants.all_arrived({(0, 1, 0, 0, 0): (1.0, 2.0, 3.0)})
    assert not workload_invariants.all_arrived({(0, 1, 0, 0, 0): (1.0, math.inf, 3.0)})
