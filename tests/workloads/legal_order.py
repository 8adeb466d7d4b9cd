# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries a workload out in memory, in any order that a network might choose."""

import numpy as np

from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.workloads.message import combine
from softroce_lab.workloads.progress import Act, host_works
from softroce_lab.workloads.streams import Stream


class Network:
    """Messages on their way; a message may be read late, and acknowledged later still."""

    def __init__(self, workload, seed, depth, order):
        self.works = host_works(workload, depth)
        self.buffers = {host: workload.initial(host, seed).copy() for host in self.works}
        self.now_ns = 0
        self.delivered = []  # in the order of delivery
        self._receives = set()
        self._flying = []  # (message, its bytes if they are sent from a copy)
        self._acknowledgements = []
        self._arrived = {}  # bytes of messages that wait to be combined
        self._drawn = Stream(order)

    def _bytes(self, message):
        at = message.source_offset
        return self.buffers[message.source].view(np.uint8)[at : at + message.length_bytes].copy()

    def _post(self, host, posts):
        for act, message in posts:
            if act is Act.COMBINE:
                key = (message.source, host, message.key)
                combine(message, self.buffers[host], self._arrived.pop(key))
            elif act is Act.RECEIVE:
                self._receives.add((host, message.source, message.key))
            elif act is Act.SEND:
                assert message.source == host
                self._flying.append((message, self._bytes(message) if message.volatile else None))

    def _deliver(self):
        message, data = self._flying.pop(self._drawn.below(len(self._flying)))
        source, host = message.source, message.destination
        self._receives.remove((host, source, message.key))
        self._arrived[source, host, message.key] = self._bytes(message) if data is None else data
        self.delivered.append(message)
        self._post(host, self.works[host].on_received(source, message.key, self.now_ns))
        self._acknowledgements.append(message)

    def _acknowledge(self):
        message = self._acknowledgements.pop(self._drawn.below(len(self._acknowledgements)))
        work = self.works[message.source]
        self._post(message.source, work.on_sent(message.destination, message.key, self.now_ns))

    def carry_out(self):
        """Until all is done; an assertion where nothing moves or a message has no receive."""
        for host, work in self.works.items():
            self._post(host, work.begin())
        while not all(work.finished for work in self.works.values()):
            choices = [self._deliver] * bool(self._flying)
            choices += [self._acknowledge] * bool(self._acknowledgements)
            if choices:
                choices[self._drawn.below(len(choices))]()
                continue
            self.now_ns = min(work.next_at_ns for work in self.works.values())
            assert self.now_ns < NEVER_NS, "nothing moves"
            for host, work in self.works.items():
                self._post(host, work.on_time(self.now_ns))
        assert not self._receives
        assert not self._arrived


def carry_out(workload, seed, *, order=0, depth=2):
    """The buffers in the end, by host; an assertion where a message finds no receive."""
    network = Network(workload, seed, depth, order)
    network.carry_out()
    return network.buffers
