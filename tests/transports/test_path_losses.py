# SPDX-License-Identifier: GPL-2.0-or-later
"""What csa_ud makes of losses once they are found: NACKs, and the shares of paths."""

import collections

import numpy as np
import pytest

from softroce_lab import _native
from tests.transports.pair_rig import CONTROL, DATA, MILLISECOND_NS, PairRig
from tests.transports.sabotage import lose

KEY = (1, 2, 3)
CHUNK = 2048 - 40
ONE_WAY_NS = 100_000
FIRST_NACK = 1 << 31


@pytest.fixture
def rig():
    """Paths of 100 us each way, a packet each 2 us."""
    rig = PairRig("csa_ud", paths=4)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    return rig


# ---------------------------------------------------------------- NACKs


def test_the_nack_of_a_lost_tail_leaves_twice(rig):
    """One probe shows it, and nothing comes behind that: the loss of one NACK costs nothing."""
    lose(rig, 0, kind=DATA, attempt_last=0, index_first=4)
    lose(rig, 1, kind=CONTROL, message=FIRST_NACK)
    rig.transfer(KEY, 6 * CHUNK)
    rig.finish(within_ns=20 * MILLISECOND_NS)
    rig.check()
    assert rig.sides[1].completions[0].completed_ns < 3 * ONE_WAY_NS + 100_000
    assert rig.sides[0].figures()["lost_by_timer"] == 0


def test_a_probe_asks_for_nothing_again_once_all_losses_are_repaired():
    """A window that is full is probed amid the next message, of which nothing is lost."""
    rig = PairRig("csa_ud", paths=2, window_packets=16)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    lose(rig, 0, kind=DATA, attempt_last=0, message=KEY[2], index_first=5, index_last=5)
    rig.transfer(KEY, 40 * CHUNK)
    rig.finish(within_ns=20 * MILLISECOND_NS)
    before = rig.counters(1)
    assert before["tx_nack"] > 0
    rig.transfer((5, 5, 5), 200 * CHUNK)
    rig.finish()
    rig.check()
    after = rig.counters(1)
    assert after["rx_probe"] - before["rx_probe"] > 2 * 2  # paths at the end
    assert after["tx_nack"] == before["tx_nack"]


# ---------------------------------------------------------------- paths


def shares(rig, packets):
    """How many of the next packets each path carries."""
    rig.pair.keep_sent()
    rig.transfer((7, rig.steps, 0), packets * CHUNK)
    rig.finish()
    sent = [
        _native.decode_frame(frame, True) for _, side, frame in rig.pair.take_sent() if not side
    ]
    paths = collections.Counter(each["path"] for each in sent if each["kind"] == DATA)
    return [paths[path] for path in range(4)]


def test_a_path_whose_weight_was_0_takes_its_share_again_with_the_old_weight():
    rig = PairRig("ud_rto", paths=4, arena_bytes=1 << 23)
    endpoint, peer = rig.sides[0].endpoint, rig.sides[0].peer
    endpoint.set_path_weights(peer, [0, 1, 1, 2])
    assert shares(rig, 400) == [0, 100, 100, 200]
    endpoint.set_path_weights(peer, [1, 1, 1, 1])
    assert np.abs(np.array(shares(rig, 400)) - 100).max() <= 1
