# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths on which everything is lost get other source ports, and what they lost is a gap."""

import pytest

from softroce_lab import _native
from tests.transports.pair_rig import PairRig

PATHS, CHUNK = 8, 2008
US = 1_000


def rig_with(*dead):
    """Everything is lost on these source ports."""
    rig = PairRig("csa_ud", paths=PATHS, window_packets=64, arena_bytes=1 << 23)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 50 * US, US
    rules = []
    for port in dead:
        rule = _native.DropRule()
        rule.path = port
        rules.append(rule)
    rig.cables[0].rules = rules
    return rig


def send(rig, messages=6, packets=400):
    for number in range(messages):
        rig.transfer((1, 2, number), packets * CHUNK)
    rig.finish()
    rig.check()
    return rig.counters(0)


@pytest.mark.parametrize("dead", [(3,), (0, 1, 2, 3), tuple(range(7))], ids=str)
def test_a_silent_path_is_left_within_a_few_round_trips(dead):
    counts = send(rig_with(*dead))
    assert counts["tx_path_moved"] == len(dead)
    assert counts["tx_retransmitted"] < 64 * len(dead) * 2
    assert counts["tx_retransmitted"] < 0.05 * counts["tx_data"] * len(dead)


def test_the_next_port_may_be_dead_too():
    counts = send(rig_with(3, 19, 35))
    assert counts["tx_path_moved"] == 3


def test_a_path_that_dies_later_is_left():
    rig = rig_with()
    send(rig, messages=2)
    rule = _native.DropRule()
    rule.path = 5
    rig.cables[0].rules = [rule]
    for number in range(10, 14):
        rig.transfer((1, 2, number), 400 * CHUNK)
    rig.finish()
    rig.check()
    assert rig.counters(0)["tx_path_moved"] == 1


def test_without_a_reason_nothing_moves():
    assert send(rig_with())["tx_path_moved"] == 0


def test_losses_of_all_paths_move_few():
    """A path by chance loses thrice what others do; it is found again on its next port."""
    rig = rig_with()
    rig.cables[0].loss = 1 << 58  # 1.6 %
    counts = send(rig, messages=9)
    assert counts["tx_retransmitted"] > 40
    assert counts["tx_path_moved"] < counts["tx_retransmitted"] / 4
    assert rig.counters(1)["rx_duplicate"] == 0
