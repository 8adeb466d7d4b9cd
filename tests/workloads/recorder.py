# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that writes down what its work asks for, and does none of it."""

import collections

from softroce_lab.workloads.progress import DEPTH, HostWork


class Recorder(HostWork):
    """Each call that tells it of something returns the messages that it asked for then.

    By what it asked: "send", "receive", "keep" or "combine".
    """

    def __init__(self, vertices, depth=DEPTH):
        super().__init__(vertices, depth)
        self._asked = collections.defaultdict(list)
        self._posted = {}  # numbers by what, peer and key

    def send(self, number, message):
        self._posted["send", message.destination, message.key] = number
        self._asked["send"].append(message)

    def receive(self, number, message):
        self._posted["receive", message.source, message.key] = number
        self._asked["receive"].append(message)

    def keep(self, message):
        self._asked["keep"].append(message)

    def combine(self, message):
        self._asked["combine"].append(message)

    def _taken(self):
        asked, self._asked = self._asked, collections.defaultdict(list)
        return asked

    def begin(self, now_ns=0):
        self.prepare()
        super().begin(now_ns)
        return self._taken()

    def on_time(self, now_ns):
        super().on_time(now_ns)
        return self._taken()

    def sent(self, peer, key, now_ns=0):
        self.on_sent(self._posted["send", peer, key], now_ns)
        return self._taken()

    def received(self, peer, key, now_ns=0):
        self.on_received(self._posted["receive", peer, key], now_ns)
        return self._taken()

    def send_failed(self, peer, key):
        self.on_send_failed(self._posted["send", peer, key])

    def receive_failed(self, peer, key):
        self.on_receive_failed(self._posted["receive", peer, key])


def recorders(workload, depth=DEPTH):
    """Of every host that takes part, by its index."""
    return {host: Recorder(each, depth) for host, each in workload.schedule().of.items()}
