# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths with congestion marks get fewer packets: csa_ud under nscc, every frame by hand."""

import collections

import pytest

from softroce_lab import _native
from tests.native import frames
from tests.native.by_hand import ByHand, Sent

PATHS, WINDOW = 8, 64
MARKED = 3  # a path
ECN_CE = 3
RTT_NS = 10_000


def marked(sent):
    frame = bytearray(sent.frame)
    frame[frames.IP_AT + 1] |= ECN_CE
    return Sent(frames.seal(bytes(frame)), sent.reported)


class Talk(ByHand):
    def __init__(self):
        super().__init__("csa_ud", 400, congestion_control="nscc", window_packets=WINDOW,
                         paths=PATHS, path_probes=True, schedule="least-left")  # fmt: skip
        self.post()

    def polled(self, end, most=1_000):
        """Frames of this end, reports too."""
        found = []
        while len(found) < most and (frame := end.poll_frame(self.now_ns)) is not None:
            found.append(Sent(frame, _native.decode_frame(frame, True)))
        return found

    def sent(self, most=1_000):
        return [each for each in self.polled(self.sender, most) if each.is_data]

    def report(self, packets):
        """The receiver gets these, and the sender its answers; what the sender sends then."""
        self.now_ns += RTT_NS
        for each in packets:
            self.receiver.handle_frame(each.frame, self.now_ns)
        for each in self.polled(self.receiver):
            self.sender.handle_frame(each.frame, self.now_ns)
        return self.sent()


def by_path(sent):
    return collections.Counter(each.reported["path"] for each in sent)


def marked_on_one_path(sent):
    return [marked(each) if each.reported["path"] == MARKED else each for each in sent]


@pytest.fixture
def talk():
    return Talk()


@pytest.fixture
def halves(talk):
    """Those of a window, four packets on each path."""
    found = []
    for _ in range(2):
        talk.now_ns += 1_000
        found.append(talk.sent(WINDOW // 2))
        assert by_path(found[-1]) == dict.fromkeys(range(PATHS), WINDOW // 2 // PATHS)
    assert talk.sent() == []
    return found


def test_a_path_gets_no_packets_while_its_marks_are_new_and_then_what_it_missed(talk, halves):
    first = talk.report(marked_on_one_path(halves[0]))
    assert len(first) == WINDOW // 2
    assert by_path(first)[MARKED] == 0
    second = talk.report(halves[1])  # within a round trip of the mark
    assert by_path(second)[MARKED] < WINDOW // 2 // PATHS
    third = talk.report(first)
    assert len(third) == WINDOW // 2
    assert by_path(third)[MARKED] > WINDOW // 2 // PATHS
