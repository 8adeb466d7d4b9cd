# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's detection of gaps: which packets were overtaken, and when that is a loss."""

import random

import numpy as np
import pytest

from tests.native.by_hand import ByHand

WINDOW_NS = 50_000
PACKETS = 12
EVENTS_THAT_WAIT = 1 << 12  # EventQueue::kMostEvents


class Watched(ByHand):
    """A message whose frames arrive as the test says, and the gaps that are reported."""

    def __init__(self, packets=PACKETS):
        super().__init__("policy", packets)
        self.post()
        self.frames = self.data_out()
        [posted] = self.receiver.take_events()
        self.handle = posted.handle

    def arrive(self, *indices):
        """At one moment each, 1 us apart."""
        for index in indices:
            self.deliver(self.receiver, self.frames[index])

    def gaps(self, at_ns):
        """Lists of packets that are reported at this time."""
        self.now_ns = at_ns
        self.receiver.handle_timeout(at_ns)
        found = [each for each in self.receiver.take_events() if each.kind.name == "GAP"]
        assert {(each.handle, each.count) for each in found} <= {(self.handle, PACKETS)}
        return [np.frombuffer(each.body, np.uint32).tolist() for each in found]


@pytest.fixture
def watched():
    return Watched()


def test_nothing_is_reported_of_a_receive_without_detection(watched):
    watched.arrive(5, 8)
    assert watched.gaps(watched.now_ns + 10 * WINDOW_NS) == []


def test_another_window_holds_for_gaps_that_exist(watched):
    watched.receiver.detect_gaps(watched.handle, 10 * WINDOW_NS)
    watched.arrive(2)
    opened_ns = watched.now_ns
    watched.receiver.detect_gaps(watched.handle, WINDOW_NS)
    assert watched.gaps(opened_ns + WINDOW_NS) == [[0, 1]]
    watched.arrive(5)
    opened_ns = watched.now_ns
    watched.receiver.detect_gaps(watched.handle, 10 * WINDOW_NS)
    assert watched.gaps(opened_ns + WINDOW_NS) == []
    assert watched.gaps(opened_ns + 10 * WINDOW_NS) == [[3, 4]]


def test_a_receive_that_is_over_is_a_stale_action(watched):
    watched.arrive(*range(PACKETS))
    watched.receiver.detect_gaps(watched.handle, WINDOW_NS)
    assert watched.receiver.counters()["stale_action"] == 1


def test_gaps_wait_for_a_policy_that_lags(watched):
    watched.receiver.detect_gaps(watched.handle, WINDOW_NS)
    watched.arrive(2)
    for _ in range(EVENTS_THAT_WAIT):
        watched.receiver.set_timer(watched.handle, watched.now_ns)
        watched.receiver.handle_timeout(watched.now_ns)
    watched.now_ns += WINDOW_NS
    watched.receiver.handle_timeout(watched.now_ns)
    assert watched.receiver.counters()["rx_event_overflow"] == 1
    assert watched.gaps(watched.now_ns) == []  # what waited is taken
    assert watched.gaps(watched.now_ns + 2_000_000) == [[0, 1]]


def expected(arrivals, end_ns):
    """Packets by the time of their report: a packet is overtaken by the first one behind it."""
    at = dict(arrivals)
    found = {}
    for packet in range(PACKETS):
        overtaken = [when for index, when in arrivals if index > packet]
        ends_ns = min(overtaken, default=end_ns) + WINDOW_NS
        if at.get(packet, end_ns) > ends_ns and ends_ns <= end_ns:
            found.setdefault(ends_ns, []).append(packet)
    return [(when, found[when]) for when in sorted(found)]


@pytest.mark.parametrize("seed", range(12))
def test_gaps_are_those_of_the_definition(seed):
    draw = random.Random(seed)
    watched = Watched()
    watched.receiver.detect_gaps(watched.handle, WINDOW_NS)
    order = draw.sample(range(PACKETS), draw.randint(2, PACKETS - 1))
    arrivals, found = [], []
    for index in order:
        until_ns = watched.now_ns + draw.choice([2_000, 10_000, 30_000, 60_000])
        while watched.now_ns < until_ns - 1_000:  # in steps, as time goes on
            found += [(watched.now_ns, gap) for gap in watched.gaps(watched.now_ns + 1_000)]
        watched.arrive(index)
        arrivals.append((index, watched.now_ns))
        found += [(watched.now_ns, gap) for gap in watched.gaps(watched.now_ns)]
    end_ns = watched.now_ns + 2 * WINDOW_NS
    while watched.now_ns < end_ns:
        found += [(watched.now_ns, gap) for gap in watched.gaps(watched.now_ns + 1_000)]
    assert found == expected(arrivals, end_ns)
