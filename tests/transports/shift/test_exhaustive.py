# SPDX-License-Identifier: GPL-2.0-or-later
"""A failure at every packet, in each direction; every message of the handshake lost once, twice."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import Rig
from softroce_lab.experiment.fuzz.failover.work import Case, Op, W
from softroce_lab.transports.shift import Sender

DESTINATION_QP = slice(14 + 20 + 8 + 5, 14 + 20 + 8 + 8)  # in the BTH
DIRECTIONS = {"there": (0,), "back": (1,), "both": (0, 1)}


def packets_without_failure():
    rig = Rig()
    Case(rig).run()
    counts = [rig.pairs[0].totals(side)["sent"] for side in range(2)]
    rig.close()
    return counts


def fail(direction, packet, loses=((), ())):
    """The case's rig: the first rail dies in a direction when so many packets have left."""
    rig = Rig()
    for side in DIRECTIONS[direction]:
        rig.pairs[0].cable(side).carries = packet
    for side, lost in enumerate(loses):
        rig.pairs[1].cable(side).loses = list(lost)
    rig.pairs[1].keep_sent()
    case = Case(rig)
    case.run()
    assert not case.failed
    return rig


def after_repair(rig):
    """The rail is back: the next signaled request is the fence, and all is on the default NIC."""
    rig.cut(down=False)
    most_ns = rig.ends[0].backup.settings.most_probe_interval_ns
    waiting = (Sender.WAIT_SIGNALED, Sender.DEFAULT)
    assert rig.until(lambda: all(end.state in waiting for end in rig.ends), 2 * most_ns)
    for end in rig.ends:  # their slots and receives are numbered anew
        end.memory[:] = 0
    second = [[Op(W, 8), Op(W, 8)], [Op(W, 8)]]
    case = Case(rig, second)
    case.run()
    assert not case.failed
    assert rig.until(rig.is_default, 1_000_000)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_failure_at_every_packet(direction):
    most = max(packets_without_failure()[side] for side in DIRECTIONS[direction])
    moved = 0
    for packet in range(most):
        rig = fail(direction, packet)
        if any(end.qp.epoch for end in rig.ends):
            moved += 1
            after_repair(rig)
        rig.close()
    print(f"{most} cases, {moved} with a failover and a failback")
    assert moved >= most - 4  # the last packets may be acknowledgements that nobody waits for


def control_frames(rig):
    """What the control QPs sent on the second rail: [(side, number on that side, frame)]."""
    qps = [end.qp.control_qp_num for end in rig.ends]
    numbers, found = [0, 0], []
    for _, side, frame in rig.pairs[1].take_sent():
        if int.from_bytes(frame[DESTINATION_QP], "big") == qps[1 - side]:
            found.append((side, numbers[side], frame))
        numbers[side] += 1
    return found


def repetition(rig, side, number):
    """The number of the packet that repeats one that was lost; None, if a later one stood in."""
    frames = [each for each in control_frames(rig) if each[0] == side]
    lost = next(frame for _, each, frame in frames if each == number)
    repeats = (each for _, each, frame in frames if each > number and frame == lost)
    return next(repeats, None)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_message_of_the_handshake_lost_once_and_twice(direction):
    most = max(packets_without_failure()[side] for side in DIRECTIONS[direction])
    cases = messages = twice = 0
    for packet in range(most):
        rig = fail(direction, packet)
        found = control_frames(rig)
        rig.close()
        messages += len(found)
        for side, number, _ in found:
            loses = [(), ()]
            loses[side] = (number,)
            rig = fail(direction, packet, loses)
            again = repetition(rig, side, number)
            rig.close()
            cases += 1
            if again is not None:
                loses[side] = (number, again)
                fail(direction, packet, loses).close()
                cases, twice = cases + 1, twice + 1
    print(f"{cases} cases: {messages} packets of the handshake lost once, {twice} twice")
    assert messages >= 4 * (most - 4)  # both MOVEs and their acknowledgements
    assert twice >= 2 * (most - 4)  # both MOVEs
