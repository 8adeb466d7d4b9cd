# SPDX-License-Identifier: GPL-2.0-or-later
"""What csa_ud's sender makes of looks, told by hand."""

import numpy as np
import pytest

from softroce_lab.recovery import control
from softroce_lab.recovery.control import Nack, NackResponse, NackStatus
from tests.recovery.pair_rig import MILLISECOND_NS, PairRig, noise

KEY = (1, 2, 3)
PACKETS = 40


@pytest.fixture
def rig():
    """A message that arrived a while ago at a receiver whose policy is this test."""
    rig = PairRig("csa_ud")
    sender, receiver = rig.sides
    receiver.alive = False
    data = noise(1, PACKETS * 2008)
    sender.send(KEY, data)
    target = receiver.allocate(data.size)
    receiver.endpoint.post_receive(receiver.peer, KEY, receiver.memory_key, target, data.size, 1)
    run(rig, 65)
    return rig


def run(rig, milliseconds):
    """What reaches the receiver's policy meanwhile."""
    sender, receiver = rig.sides
    end_ns = rig.now_ns + milliseconds * MILLISECOND_NS
    events = []
    while rig.pair.run(end_ns):
        sender.step()
        events += receiver.endpoint.take_events()
    return events


def answers(events):
    output = [control.decode(event.body) for event in events if event.kind.name == "CONTROL"]
    return [(m.round, m.status) for m in output if isinstance(m, NackResponse)]


def look(rig, round_, *missing):
    receiver = rig.sides[1]
    bits = np.isin(np.arange(PACKETS), missing)
    message = Nack(0, KEY, round_, None, control.packet_set(bits))
    receiver.endpoint.control(receiver.peer, control.encode(message, 2000))


def test_a_look_that_comes_twice_is_answered_once(rig):
    look(rig, 1, 3)
    look(rig, 1, 3)
    assert answers(run(rig, 15)) == [(1, NackStatus.RETRANSMITTED)] * 2  # on two paths
    assert rig.counters(0)["tx_retransmitted"] == 1


def test_an_overtaken_look_does_not_take_the_newer_ones_answer(rig):
    look(rig, 4, 3)
    look(rig, 3, 3, 9)
    assert answers(run(rig, 15)) == [(4, NackStatus.RETRANSMITTED)] * 2
    assert rig.counters(0)["tx_retransmitted"] == 1


def test_rounds_wrap(rig):
    for round_ in (30_000, 60_000, 65_535, 65_536, 65_537):
        look(rig, round_, 3)
        received = answers(run(rig, 15))
        assert received == [(round_ % 65_536, NackStatus.RETRANSMITTED)] * 2
