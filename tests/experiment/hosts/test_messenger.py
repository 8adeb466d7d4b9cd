# SPDX-License-Identifier: GPL-2.0-or-later
"""Every transport's messenger on an imagined cable: bytes in their places, ends told once."""

import numpy as np
import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment.hosts.messenger import RcSettings
from softroce_lab.transports import registry
from softroce_lab.workloads.message import Message
from tests.experiment.hosts.cable import Cable
from tests.transports.pair_rig import SECOND_NS, noise, threshold

MEMORY_BYTES = 1 << 21
SIZES = (0, 1, 2008, 2048, 2049, 100_000, 300_000)
HOSTS = (3, 8)  # as a plan may number them


class Talk(Cable):
    """Noise in both memories, and the posts that are over, by host."""

    def __init__(self, transport, *, loss=0.0, **settings):
        memories = [noise(which + 1, MEMORY_BYTES).copy() for which in (0, 1)]
        super().__init__(transport, memories, hosts=HOSTS, **settings)
        for which in (0, 1):
            self.pair.cable(which).loss = threshold(loss)
        self.first, self.second = self.messengers
        self.done = {host: [] for host in HOSTS}  # (kind, message, completion)
        self._posts = []  # (kind, message) by number

    def send(self, here, there, number, offset, size):
        message = Message((1, 2, number), here, there, size)
        self._posts.append(("send", message))
        self.of_host[here].post_send(len(self._posts) - 1, message, offset)

    def receive(self, here, there, number, offset, size):
        message = Message((1, 2, number), there, here, size)
        self._posts.append(("receive", message))
        self.of_host[here].post_receive(len(self._posts) - 1, message, offset)

    def run(self, posts, within_ns=20 * SECOND_NS):
        """Until so many posts are over."""
        limit_ns = self.pair.now_ns + within_ns
        while sum(map(len, self.done.values())) < posts:
            reported = self.step(limit_ns)
            assert reported, f"unfinished at {self.pair.now_ns} ns: {self.done}"
            for host, ended in zip(HOSTS, reported, strict=True):
                self.done[host] += [(*self._posts[done.wr_id], done) for done in ended]
        return self.done


def exchange(cable, sizes):
    """Messages of these sizes both ways; the places (sent from, received at) of each."""
    places, at = [], 0
    half = MEMORY_BYTES // 2
    for number, size in enumerate(sizes):
        for here, there, offset in ((*HOSTS, at), (*reversed(HOSTS), at)):
            cable.receive(there, here, number, half + offset, size)
            cable.send(here, there, number, offset, size)
        places.append((at, half + at))
        at += size + 64
    return places


@pytest.mark.parametrize(
    ("transport", "loss"), [("csa_ud", 0), ("rc", 0), *((t, 0.02) for t in registry.transports())]
)
def test_messages_arrive_in_their_places(transport, loss):
    cable = Talk(transport, loss=loss)
    expected = [memory.copy() for memory in cable.memories]
    places = exchange(cable, SIZES)
    for (source, target), size in zip(places, SIZES, strict=True):
        for mine, others in (expected, reversed(expected)):
            others[target : target + size] = mine[source : source + size]
    cable.run(4 * len(SIZES))
    for memory, bytes_ in zip(cable.memories, expected, strict=True):
        assert np.array_equal(memory, bytes_)
    for here, there in (HOSTS, reversed(HOSTS)):
        for kind in ("send", "receive"):
            ended = [(m, done) for which, m, done in cable.done[here] if which == kind]
            ended.sort(key=lambda each: each[0].key)
            assert [(m.key[2], done.byte_len) for m, done in ended] == list(enumerate(SIZES))
            for message, done in ended:
                assert there in (message.source, message.destination)
                assert done.status == ibv_wc_status.IBV_WC_SUCCESS
                assert done.packets >= max(1, -(-done.byte_len // 4096))
                assert 0 <= done.posted_ns <= done.first_ns <= done.completed_ns
                assert done.first_ns < done.completed_ns or done.packets == 1
        if loss:
            assert sum(done.retransmitted for _, _, done in cable.done[here]) > 0


def test_what_else_was_posted_to_a_dead_peer_is_flushed():
    cable = Talk("rc")
    for which in (0, 1):
        cable.pair.cable(which).down = True
    exchange(cable, [5000, 10])
    cable.run(8)
    statuses = [(kind, m.key[2], done.status) for kind, m, done in cable.done[HOSTS[0]]]
    flushed = ibv_wc_status.IBV_WC_WR_FLUSH_ERR
    assert statuses == [
        ("send", 0, ibv_wc_status.IBV_WC_RETRY_EXC_ERR),
        ("send", 1, flushed),
        ("receive", 0, flushed),
        ("receive", 1, flushed),
    ]


@pytest.mark.parametrize(
    ("rtt_ns", "buffer_ns", "timeout_ns"),
    [
        (8_000, 0, 32_768),  # no queue has a bound: four round trips
        (14_113, 83_887, 131_072),
        (100_000, 0, 524_288),
        (25_000_000, 0, 134_217_728),
        (8000 * 10**9, 0, 4096 << 31),  # the longest there is
    ],
)
def test_rc_timeouts_follow_the_round_trip_and_the_queue(rtt_ns, buffer_ns, timeout_ns):
    assert 4096 << RcSettings.for_rtt(rtt_ns, buffer_ns).timeout == timeout_ns
    assert RcSettings().timeout == 14
