# SPDX-License-Identifier: GPL-2.0-or-later
"""Receiver reports: what the engine grants to each of several senders."""

import struct

import numpy as np
import pytest

from softroce_lab import _native
from tests.recovery.pair_rig import IBV_ACCESS_LOCAL_WRITE, QKEY, config

RECEIVER = 0x0A000001
RING_PACKETS = 1200
REPORT = 2
PACKETS = 64  # after which a receiver reports at once


def credits_of(senders, at_ns=1_000):
    """The credit in the first report to each of so many senders, which all send at this time."""
    ends = [
        _native.FrameEndpoint(config(RECEIVER + n, receive_ring_packets=RING_PACKETS), n + 1)
        for n in range(senders + 1)
    ]
    receiver, found = ends[0], {}
    memory = np.zeros(PACKETS * 4096, np.uint8)
    for number, end in enumerate(ends):
        end.set_qkey(QKEY)
        for other in range(1, len(ends)) if number == 0 else (0,):
            peer = ends[other]
            end.connect(RECEIVER + other, other + 1, peer.data_qp, peer.recovery_qp, QKEY)
    frames = []
    for number, sender in enumerate(ends[1:]):
        keys = [
            end.register_memory(memory.ctypes.data, len(memory), IBV_ACCESS_LOCAL_WRITE)
            for end in (receiver, sender)
        ]
        receiver.post_receive(number, (1, 1, 1), keys[0], 0, len(memory), 0)
        sender.post_send(0, (1, 1, 1), keys[1], 0, len(memory), 0)
        frames.append(list(iter(lambda end=sender: end.poll_frame(at_ns), None))[: PACKETS - 1])
    for each in frames:
        for frame in each:
            receiver.handle_frame(frame, at_ns)
    at_ns += 1_000_000  # the report is due; they still count as sending
    receiver.handle_timeout(at_ns)
    while (frame := receiver.poll_frame(at_ns)) is not None:
        reported = _native.decode_frame(frame, True)
        if reported["kind"] == REPORT:
            (found[reported["ip.dst"]],) = struct.unpack(">I", bytes(reported["payload"])[8:12])
    return found


@pytest.mark.parametrize("senders", [1, 2, 3, 8])
def test_the_free_frames_are_shared_among_those_who_send(senders):
    """Each is granted its part: all of them at once cannot overrun the ring."""
    granted = credits_of(senders)
    assert len(granted) == senders
    assert set(granted.values()) == {RING_PACKETS // senders}
