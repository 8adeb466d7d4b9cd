# SPDX-License-Identifier: GPL-2.0-or-later
"""Several copies of a retransmission: attempts of their own, on different paths, within bounds."""

import itertools

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports.policy import MOST_COPIES, MessagePolicy, Retransmit, SetTimer
from tests.transports.pair_rig import DATA, MILLISECOND_NS, SECOND_NS, PairRig, threshold

CHUNK = 2008


@pytest.fixture
def sent():
    """A rig without recovery, and the handle of a message of 6 packets that has left."""
    rig = PairRig(None)
    sender, receiver = rig.sides
    sender.send((1, 2, 0), np.zeros(6 * CHUNK, np.uint8))
    receiver.receive((1, 2, 0), 7 * CHUNK)
    handle = None
    while rig.pair.run(MILLISECOND_NS):
        for event in sender.endpoint.take_events():
            handle = event.handle if event.kind.name == "SENT" else handle
        receiver.endpoint.take_events()
    rig.pair.keep_sent()
    return rig, handle


def data_sent(rig):
    """(index, attempt, path) of each data packet that leaves, and the kinds of events."""
    kinds = []
    while rig.pair.run(rig.now_ns + MILLISECOND_NS):
        kinds += [event.kind.name for event in rig.sides[0].endpoint.take_events()]
        rig.sides[1].endpoint.take_events()
    frames = [frame for _, side, frame in rig.pair.take_sent() if side == 0]
    reported = [_native.decode_frame(frame, True) for frame in frames]
    return [
        (each["index"], each["attempt"], each["path"]) for each in reported if each["kind"] == DATA
    ], kinds


def test_copies_follow_each_other_packet_by_packet_as_attempts_on_other_paths(sent):
    rig, handle = sent
    endpoint = rig.sides[0].endpoint
    first_paths = endpoint.send_state(handle).paths
    endpoint.retransmit(handle, np.array([1, 4], np.uint32), False, 3)
    left, kinds = data_sent(rig)
    assert [each[:2] for each in left] == [(1, 1), (4, 1), (1, 2), (4, 2), (1, 3), (4, 3)]
    for index in (1, 4):
        paths = [first_paths[index], *(path for other, _, path in left if other == index)]
        assert all(one != next_ for one, next_ in itertools.pairwise(paths)), paths
    assert kinds.count("SENT") == 1  # when the last copy has left
    state = endpoint.send_state(handle)
    assert state.retransmit_pending == 0
    assert state.attempts.tolist() == [1, 4, 1, 1, 4, 1]
    assert rig.counters(0)["tx_retransmitted"] == 6
    assert rig.counters(1)["rx_duplicate"] == 6


def test_copies_are_bounded(sent):
    rig, handle = sent
    rig.sides[0].endpoint.retransmit(handle, np.array([0], np.uint32), False, 1 << 20)
    left, _ = data_sent(rig)
    assert len(left) == MOST_COPIES


class Copies(MessagePolicy):
    """Retransmits all that is missing, each millisecond, as often as may be."""

    name = "copies"

    def on_send_posted(self, send, now_ns):
        return [SetTimer(send, now_ns + 1_000_000)]

    def on_send_timer(self, send, now_ns):
        missing = self.missing(send)
        again = SetTimer(send, now_ns + 1_000_000)
        return [Retransmit(send, missing, copies=np.int64(MOST_COPIES)), again]


def test_copies_count_toward_the_bound_of_attempts():
    rig = PairRig(Copies)
    rig.cables[0].loss = threshold(1)
    rig.transfer((1, 2, 3), 10_000)
    rig.step_until(rig.now_ns + 60 * SECOND_NS, lambda: bool(rig.sides[0].completions))
    assert rig.sides[0].statuses() == [ibv_wc_status.IBV_WC_RETRY_EXC_ERR]
    most = rig.timing.most_attempts
    assert rig.counters(0)["tx_data"] <= most * 5
