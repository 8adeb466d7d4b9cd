# SPDX-License-Identifier: GPL-2.0-or-later
"""The dissemination barrier."""

import pytest

from softroce_lab.workloads.collectives.barrier import Barrier
from tests.workloads.legal_order import carry_out
from tests.workloads.recorder import recorders


@pytest.mark.parametrize("hosts", [2, 5, 8, 17])
def test_nobody_leaves_before_all_have_entered(hosts):
    """What each has heard of, if it passes on what it has received in the rounds before."""
    barrier = Barrier(tuple(range(hosts)))
    received = {host: {host} for host in barrier.ranks}
    rounds = {}
    for message in barrier.messages():
        rounds.setdefault(message.key[1], []).append(message)
    for messages in rounds.values():
        before = {host: set(each) for host, each in received.items()}
        for message in messages:
            received[message.destination] |= before[message.source]
    assert all(each == set(range(hosts)) for each in received.values())
    assert len(rounds) == barrier.rounds == (hosts - 1).bit_length()
    assert barrier.message_count == len(list(barrier.messages()))


@pytest.mark.parametrize("order", range(5))
def test_it_ends(order):
    buffers = carry_out(Barrier((4, 2, 7, 1, 3)), 1, order=order)
    assert not any(map(len, buffers.values()))


def test_a_round_awaits_those_before():
    host = recorders(Barrier((0, 1, 2, 3)))[0]
    assert [each.destination for each in host.begin()["send"]] == [1]
    assert host.received(2, (0, 1, 0))["send"] == []
    assert [each.destination for each in host.received(3, (0, 0, 0))["send"]] == [2]
