# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of several messages sends its packets first."""

import collections

import numpy as np
import pytest

from softroce_lab import _native
from tests.transports.pair_rig import QKEY, config

SENDER = 0x0A000001
CHUNK = 1024 - 40
DATA = 0


class Sender:
    """An engine with peers that never answer; a message is named by its number."""

    def __init__(self, schedule, peers=2, **settings):
        ends = [
            _native.FrameEndpoint(
                config(SENDER + n, schedule=schedule, carries_payload=False, path_mtu=1024,
                       receive_ring_packets=1 << 20, window_packets=1 << 20, **settings), n + 1)
            for n in range(peers + 1)
        ]  # fmt: skip
        self.end, self.peers = ends[0], ends[1:]
        self.end.set_qkey(QKEY)
        for n, peer in enumerate(self.peers, 1):
            self.end.connect(SENDER + n, n + 1, peer.data_qp, peer.recovery_qp, QKEY)

    def post(self, number, packets, peer=0):
        self.end.post_send(peer, (1, 1, number), 0, 0, packets * CHUNK, number)

    def sent(self, packets):
        """The messages of the next packets, in their order."""
        found = []
        while len(found) < packets and (frame := self.end.poll_frame(1_000)) is not None:
            decoded = _native.decode_frame(frame, True)
            if decoded["kind"] == DATA:
                found.append(decoded["message"])
        return found


@pytest.mark.parametrize("peer", [0, 1], ids=["to the same peer", "to another peer"])
def test_a_short_message_does_not_wait_for_a_long_one(peer):
    sender = Sender("least-left")
    sender.post(1, 2_000)
    assert sender.sent(10) == [1] * 10
    sender.post(2, 5, peer)
    assert sender.sent(6).count(2) == 5


@pytest.mark.parametrize("length", [60, 300], ids=["of the class of the rest", "of its own"])
def test_what_is_left_counts_and_not_the_length(length):
    sender = Sender("least-left")
    sender.post(1, 500)
    sender.sent(490)
    sender.post(2, length, peer=1)
    assert sender.sent(11).count(1) == 10


def test_no_class_of_messages_starves():
    sender = Sender("least-left")
    sender.post(1, 2_000)
    sender.post(2, 300)
    found = collections.Counter()
    for number in range(3, 203):
        sender.post(number, 4)
        found.update(sender.sent(4))
    assert found[1] >= 30  # an eighth of 800 packets, shared by three classes
    assert found[2] >= 30
    assert sum(count for number, count in found.items() if number > 2) >= 690


def test_long_messages_of_one_size_end_in_the_order_posted():
    sender = Sender("least-left", peers=1)
    for number in (1, 2, 3):
        sender.post(number, 600)
    found = sender.sent(1_800)
    last = [len(found) - found[::-1].index(number) for number in (1, 2, 3)]
    assert last[0] <= 700
    assert last == sorted(last)


def test_a_message_that_goes_on_after_a_pause_is_the_first_of_its_size():
    sender = Sender("least-left")
    sender.post(1, 300)
    sender.post(2, 300)
    (handle, _) = (each.handle for each in sender.end.take_events())
    sender.sent(10)
    sender.end.pause(handle, True)
    assert sender.sent(10) == [2] * 10
    sender.end.pause(handle, False)
    assert sender.sent(10) == [1] * 10


@pytest.mark.parametrize("packets", [100, 600, 5_000])
def test_peers_take_turns_with_messages_that_pass_through_several_classes(packets):
    sender = Sender("least-left")
    for number in range(1, 6):
        sender.post(number, packets)
    sender.post(6, packets, peer=1)
    found = sender.sent(6 * packets)
    assert found.count(6) == packets
    assert len(found) - found[::-1].index(6) <= 2.5 * packets


@pytest.mark.parametrize("schedule", ["least-left", "fair", "fifo"])
def test_what_is_sent_again_goes_before_all_else(schedule):
    sender = Sender(schedule)
    sender.post(1, 1_000)
    handle = sender.end.take_events()[0].handle
    sender.sent(10)
    sender.post(2, 1, peer=1)
    sender.end.retransmit(handle, np.arange(3, dtype=np.uint32), False, 1)
    frames = [_native.decode_frame(sender.end.poll_frame(1_000), True) for _ in range(4)]
    assert [(each["index"], each["attempt"]) for each in frames[:3]] == [(0, 1), (1, 1), (2, 1)]
    assert frames[3]["attempt"] == 0


def test_fair_messages_take_turns_packet_by_packet():
    sender = Sender("fair")
    sender.post(1, 100)
    sender.post(2, 100)
    sender.post(3, 100, peer=1)
    found = collections.Counter(sender.sent(120))
    assert found == {1: 30, 2: 30, 3: 60}  # peers take turns, too


def test_fifo_is_the_order_posted():
    sender = Sender("fifo")
    sender.post(1, 40)
    sender.post(2, 2)
    assert sender.sent(42) == [1] * 40 + [2] * 2


def test_an_unknown_schedule_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'lifo'; known: least-left, fair, fifo"):
        Sender("lifo")
