# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that writes down what its work asks for, and does none of it."""

import collections

from softroce_lab.workloads.progress import DEPTH, HostWork


class Recorder:
    """Each call that tells the work of something returns the messages that it asked for then.

    By what it asked: "send", "receive", "keep" or "combine".
    """

    def __init__(self, vertices, depth=DEPTH):
        self.work = HostWork(vertices, self, depth)
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

    def _told(self, tell, *about):
        self._asked = collections.defaultdict(list)
        tell(*about)
        return self._asked

    def begin(self, now_ns=0):
        def tell():
            self.work.prepare()
            self.work.begin(now_ns)

        return self._told(tell)

    def on_time(self, now_ns):
        return self._told(self.work.on_time, now_ns)

    def sent(self, peer, key, now_ns=0):
        return self._told(self.work.on_sent, self._posted["send", peer, key], now_ns)

    def received(self, peer, key, now_ns=0):
        return self._told(self.work.on_received, self._posted["receive", peer, key], now_ns)

    def send_failed(self, peer, key):
        self.work.on_send_failed(self._posted.pop(("send", peer, key)))

    def receive_failed(self, peer, key):
        self.work.on_receive_failed(self._posted.pop(("receive", peer, key)))


def recorders(workload, depth=DEPTH):
    """Of every host that takes part, by its index."""
    return {host: Recorder(each, depth) for host, each in workload.schedule().of.items()}
