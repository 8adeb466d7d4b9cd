# SPDX-License-Identifier: GPL-2.0-or-later
"""The terms of csa_ud's times: progress, back-off."""

import types

import numpy as np

from softroce_lab.recovery.work import Receiving
from tests.recovery.pair_rig import MILLISECOND_NS, PairRig

SRTT_NS, RTTVAR_NS = 10 * MILLISECOND_NS, MILLISECOND_NS
PEER = types.SimpleNamespace(
    srtt_ns=SRTT_NS,
    rttvar_ns=RTTVAR_NS,
    remote_srtt_ns=SRTT_NS,
    remote_rttvar_ns=RTTVAR_NS,
    reordering_extent_ns=0,
    receive_bytes_per_second=0,
    newest_stamp_at_ns=-1,
)


class Measured:
    """The endpoint with chosen measurements of its peer."""

    def __init__(self, endpoint, **fields):
        self._endpoint = endpoint
        self.peer = types.SimpleNamespace(**{**vars(PEER), **fields})

    def __getattr__(self, name):
        return getattr(self._endpoint, name)

    def peer_state(self, peer):
        return self.peer


def measured(**fields):
    """A policy to which the peer has these measurements, and its work with it."""
    side = PairRig("csa_ud").sides[1]
    side.policy.view = Measured(side.endpoint, **fields)
    return side.policy, side.policy.work_with(side.peer)


def receiving():
    return Receiving(1, peer=0, key=(1, 2, 3), count=10)


def test_intervals_without_progress_grow_to_the_longest():
    policy, _ = measured()
    t_max_ns = policy.timing.t_max_ns
    waits = [policy.backed_off(MILLISECOND_NS, rounds) for rounds in range(12)]
    assert waits[:4] == [MILLISECOND_NS] * 4
    assert waits[5] > waits[3]
    assert waits[-1] >= t_max_ns // 2
    assert max(waits) <= t_max_ns


def test_progress_resets_timeouts_without_progress():
    """Checks of a receive that is silent, then gets packets, then is silent again."""
    policy, work = measured()
    receive = receiving()
    work.add_receive(receive)
    work.open(receive, 0, 10)
    state = types.SimpleNamespace(
        received=1, duplicates=0, highest=0, count=10, first_missing=1, first_ns=0, last_ns=0,
        words=np.array([1], dtype=np.uint64),
    )  # fmt: skip
    policy.view.receive_state = lambda handle: state
    counted = []
    for received in (1, 1, 1, 1, 1, 1, 3, 3, 3):
        state.received = received
        actions = policy.check_receive(work, receive, 0)
        counted.append((receive.timeouts_without_progress, actions[0].at_ns))
    assert [count for count, _ in counted] == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    waits = [wait for _, wait in counted]
    assert waits[5] > waits[0]  # backed off,
    assert waits[6] < waits[5]  # and no longer
