# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries a workload out in memory, in any order that a network might choose."""

import numpy as np

from softroce_lab.transports.api import NEVER_NS
from softroce_lab.workloads.message import combine
from softroce_lab.workloads.progress import HostWork
from softroce_lab.workloads.streams import Stream


class Host(HostWork):
    """Asks the network for what its work asks for. Posts are called by the vertex."""

    def __init__(self, network, index, vertices, depth):
        super().__init__(vertices, depth)
        self._network, self._index = network, index

    def send(self, number, message):
        network = self._network
        assert message.source == self._index
        data = network.bytes_of(message) if message.volatile else None
        network.flying.append((number, message, data))

    def receive(self, number, message):
        self._network.receives[self._index, message.source, message.key] = number

    def keep(self, message):
        pass

    def combine(self, message):
        network = self._network
        data = network.arrived.pop((message.source, self._index, message.key))
        combine(message, network.buffers[self._index], data)


class Network:
    """Messages on their way; a message may be read late, and acknowledged later still."""

    def __init__(self, workload, seed, depth, order):
        of = workload.schedule().of
        self.hosts = {host: Host(self, host, each, depth) for host, each in of.items()}
        self.buffers = {host: workload.initial(host, seed).copy() for host in of}
        self.now_ns = 0
        self.delivered = []  # in the order of delivery
        self.receives = {}
        self.flying = []  # (number, message, its bytes if they are sent from a copy)
        self._acknowledgements = []
        self.arrived = {}  # bytes of messages that wait to be combined
        self._drawn = Stream(order)

    def bytes_of(self, message):
        at = message.source_offset
        return self.buffers[message.source].view(np.uint8)[at : at + message.length_bytes].copy()

    def _deliver(self):
        number, message, data = self.flying.pop(self._drawn.below(len(self.flying)))
        source, host = message.source, message.destination
        received = self.receives.pop((host, source, message.key))
        self.arrived[source, host, message.key] = self.bytes_of(message) if data is None else data
        self.delivered.append(message)
        self.hosts[host].on_received(received, self.now_ns)
        self._acknowledgements.append((source, number))

    def _acknowledge(self):
        acknowledged = self._drawn.below(len(self._acknowledgements))
        host, number = self._acknowledgements.pop(acknowledged)
        self.hosts[host].on_sent(number, self.now_ns)

    def carry_out(self):
        """Until all is done; an assertion where nothing moves or a message has no receive."""
        hosts = self.hosts.values()
        for host in hosts:
            host.prepare()
        for host in hosts:
            host.begin()
        while not all(host.finished for host in hosts):
            choices = [self._deliver] * bool(self.flying)
            choices += [self._acknowledge] * bool(self._acknowledgements)
            if choices:
                choices[self._drawn.below(len(choices))]()
                continue
            self.now_ns = min(host.next_at_ns for host in hosts)
            assert self.now_ns < NEVER_NS, "nothing moves"
            for host in hosts:
                host.on_time(self.now_ns)
        assert not self.receives
        assert not self.arrived


def carry_out(workload, seed, *, order=0, depth=2):
    """The buffers in the end, by host; an assertion where a message finds no receive."""
    network = Network(workload, seed, depth, order)
    network.carry_out()
    return network.buffers
