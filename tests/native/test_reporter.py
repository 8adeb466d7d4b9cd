# SPDX-License-Identifier: GPL-2.0-or-later
"""Receiver reports: what the engine grants to each of several senders."""

import dataclasses
import struct

import numpy as np
import pytest

from softroce_lab import _native
from tests.native.frames import IP_AT
from tests.transports.pair_rig import IBV_ACCESS_LOCAL_WRITE, QKEY, config

RECEIVER = 0x0A000001
RING_PACKETS = 1200
REPORT = 2
PACKETS = 64  # after which a receiver reports at once
BEGIN_NS, REPORTED_NS = 1_000, 1_001_000  # then reports are due, and all still count as sending


@dataclasses.dataclass
class Begun:
    """Engines, which all use the memory."""

    receiver: _native.FrameEndpoint
    frames: list[list[bytes]]  # by sender
    memory: np.ndarray
    ends: list[_native.FrameEndpoint]


def begun(senders, at_ns, **settings):
    """A receiver and so many senders, with all frames that these send it at this time."""
    ends = [
        _native.FrameEndpoint(
            config(RECEIVER + n, receive_ring_packets=RING_PACKETS, **settings), n + 1
        )
        for n in range(senders + 1)
    ]
    receiver, memory = ends[0], np.zeros(4 * PACKETS * 2008, np.uint8)
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
        frames.append(list(iter(lambda end=sender: end.poll_frame(at_ns), None)))
    return Begun(receiver, frames, memory, ends)


def reports_of(receiver, at_ns):
    """The reports that it sends at this time."""
    sent = iter(lambda: receiver.poll_frame(at_ns), None)
    found = [_native.decode_frame(frame, True) for frame in sent]
    return [each for each in found if each["kind"] == REPORT]


def reported(senders, **settings):
    """Engines of which the receiver has reported to each sender, and these reports."""
    made = begun(senders, BEGIN_NS, **settings)
    for each in made.frames:
        for frame in each[: PACKETS - 1]:
            made.receiver.handle_frame(frame, BEGIN_NS)
    made.receiver.handle_timeout(REPORTED_NS)
    return made, reports_of(made.receiver, REPORTED_NS)


@pytest.mark.parametrize("senders", [1, 2, 3, 8])
def test_the_free_frames_are_shared_among_those_who_send(senders):
    """Each is granted its part: all of them at once cannot overrun the ring."""
    _, reports = reported(senders)
    granted = {
        each["ip.dst"]: struct.unpack(">I", bytes(each["payload"])[8:12])[0] for each in reports
    }
    assert len(granted) == len(reports) == senders
    assert set(granted.values()) == {RING_PACKETS // senders}


def granted(arrived, **settings):
    """The window that the receiver reports to each sender after so many of its packets."""
    settings = {"congestion_control": "grants", "window_packets": 108, **settings}
    made = begun(len(arrived), BEGIN_NS, **settings)
    for frames, packets in zip(made.frames, arrived, strict=True):
        for frame in frames[:packets]:
            made.receiver.handle_frame(frame, BEGIN_NS)
    reports_of(made.receiver, BEGIN_NS)
    for frames, packets in zip(made.frames, arrived, strict=True):
        made.receiver.handle_frame(frames[packets], BEGIN_NS)
    made.receiver.handle_timeout(REPORTED_NS)
    found = {
        each["ip.dst"]: struct.unpack(">I", bytes(each["payload"])[8:12])[0]
        for each in reports_of(made.receiver, REPORTED_NS)
    }
    return [window for _, window in sorted(found.items())]


def test_a_sender_that_is_alone_has_its_share_while_its_packets_are_marked():
    """Then the queue is not that of the last link."""
    made = begun(1, BEGIN_NS, congestion_control="grants", window_packets=108)
    windows = []
    for at_ns, mark in [(BEGIN_NS, True), (REPORTED_NS, False)]:
        frame = bytearray(made.frames[0].pop(0))
        frame[IP_AT + 1] |= 3 if mark else 0  # ECN: congestion experienced
        made.receiver.handle_frame(bytes(frame), at_ns)
        made.receiver.handle_timeout(at_ns + REPORTED_NS)
        [report] = reports_of(made.receiver, at_ns + REPORTED_NS)
        windows.append(struct.unpack(">I", bytes(report["payload"])[8:12])[0])
    assert windows == [50, 108]


def test_two_senders_are_granted_their_share_and_the_others_wait_for_their_turn():
    assert granted([10, 10, 10, 10]) == [50, 50, 8, 8]


def test_the_sender_with_the_least_left_is_first():
    assert granted([10, 10, 210, 10], window_packets=408) == [200, 8, 200, 8]


def test_senders_that_wait_share_128_packets_and_have_three_at_least():
    assert sorted(granted([10] * 25, window_packets=48)) == [5] * 23 + [20, 20]
    assert sorted(granted([10] * 50, window_packets=48)) == [3] * 48 + [20, 20]


def test_senders_that_fell_silent_keep_nobody_waiting():
    made = begun(3, BEGIN_NS, congestion_control="grants", window_packets=108)
    for frames in made.frames:
        for frame in frames[:10]:
            made.receiver.handle_frame(frame, BEGIN_NS)
    later_ns = BEGIN_NS + 4 * 2_000_000 + 1  # of the initial RTT
    made.receiver.handle_frame(made.frames[2][10], later_ns)
    made.receiver.handle_timeout(later_ns)
    windows = {
        each["ip.dst"]: struct.unpack(">I", bytes(each["payload"])[8:12])[0]
        for each in reports_of(made.receiver, later_ns)
    }
    assert list(windows.values())[-1] == 50


@pytest.mark.parametrize(
    ("trimmed_before_ns", "window"), [(None, 146), (0, 8), (32 * 2_000_000, 8), (64_000_001, 146)]
)
def test_a_sender_that_begins_waits_while_queues_trim(trimmed_before_ns, window):
    """For 32 initial RTTs, if others are active: the sender has sent all of its message."""
    made = begun(3, BEGIN_NS, congestion_control="grants", window_packets=300)
    whole, *others = made.frames
    for frames in others:
        made.receiver.handle_frame(frames[0], BEGIN_NS)
    now_ns = BEGIN_NS + (trimmed_before_ns or 0)
    if trimmed_before_ns is not None:
        made.receiver.handle_frame(_native.trim_frame(others[0][1], True), BEGIN_NS)
    for frame in whole:
        made.receiver.handle_frame(frame, now_ns)
    windows = [
        struct.unpack(">I", bytes(each["payload"])[8:12])[0]
        for each in reports_of(made.receiver, now_ns)
    ]
    assert windows[-1] == window


def test_a_share_is_three_quarters_of_a_product_and_no_less_than_what_trickles():
    assert granted([10, 10, 10], window_packets=14) == [8, 8, 8]


@pytest.mark.parametrize(("senders", "due"), [(1, 64), (8, RING_PACKETS // 8 // 4)])
def test_a_report_is_due_by_a_quarter_of_the_credit_that_was_granted(senders, due):
    """A sender that has as many in flight waits for it."""
    joined = {"path_probes": True, "initial_rtt_ns": 400_000}
    made, _ = reported(senders, **joined)
    due_after = []
    for number, frame in enumerate(made.frames[0][PACKETS - 1 :], start=1):
        made.receiver.handle_frame(frame, REPORTED_NS)
        due_after += [number] * len(reports_of(made.receiver, REPORTED_NS))
    assert due_after[0] == due
