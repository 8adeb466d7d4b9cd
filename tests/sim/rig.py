# SPDX-License-Identifier: GPL-2.0-or-later
"""A small simulated fabric, a transport's messengers on its hosts, and messages between them."""

import itertools
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from types import MappingProxyType

from softroce_lab import topology
from softroce_lab.experiment.hosts.messenger import RcSettings, connect_all
from softroce_lab.experiment.hosts.opening import open_messenger
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.sim.presets import RnicModel, simulated_host
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import EngineTiming, Timing
from softroce_lab.workloads.message import Message

IDEAL = RnicModel()
FOREVER_NS = 60_000_000_000


def load(graph, **more):
    """The plan of a topology that is written as YAML would be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.yaml"
        path.write_text(json.dumps({"name": "theory", "topology": graph, **more}))
        return topology.load(path)


def line(switches, rate="100Gbit", delay="1us", **more):
    """h1, so many switches in a row, and h2."""
    nodes = ["h1", *(f"s{n}" for n in range(1, switches + 1)), "h2"]
    kinds = {node: {"kind": "host" if node[0] == "h" else "switch"} for node in nodes}
    links = [
        {"endpoints": [f"{near}:right", f"{far}:left"], "rate": rate, "delay": delay}
        for near, far in itertools.pairwise(nodes)
    ]
    return load({"nodes": kinds, "links": links}, **more)


BUFFER_NS = 320_000
"""How long the queues of the tests' plans take to drain, at most."""


class Rig:
    """Messages of one transport over a plan's fabric; packets carry no bytes."""

    def __init__(
        self,
        plan,
        transport,
        base_rtt_ns,
        *,
        path_mtu=4096,
        window=1024,
        timing=None,
        rc=None,
        rnic=IDEAL,
        options=MappingProxyType({}),
    ):
        engine = EngineTiming.for_rtt(base_rtt_ns, BUFFER_NS)
        host = simulated_host(
            path_mtu=path_mtu,
            window_packets=window,
            initial_rtt_ns=engine.initial_rtt_ns,
            report_least_interval_ns=engine.report_least_interval_ns,
            persist_least_ns=engine.persist_least_ns,
            rto_low_ns=engine.rto_low_ns,
            rto_high_ns=engine.rto_high_ns,
            framing=registry.find(transport).framing,
            **registry.find(transport).engine(options),
        )
        (timing or Timing.for_rtt(base_rtt_ns)).apply(host)
        self.fabric = SimFabric(plan, host, rnic=rnic)
        self.messengers = {
            index: open_messenger(
                Transport.named(transport),
                endpoint,
                timing=timing or Timing.for_rtt(base_rtt_ns),
                rc=rc or RcSettings.for_rtt(base_rtt_ns, BUFFER_NS),
                next_hop_mac=self.fabric.next_hop_mac(index),
            )
            for index, endpoint in enumerate(self.fabric.endpoints)
        }
        self.received = {}  # by key
        self.sent = {}
        self._numbers = defaultdict(int)
        self._posts = []  # (what became of its kind, by key; message; peer) by number
        self._disconnected = set()  # (host, peer)
        self._open = 0

    def connect(self, *pairs):
        """Let hosts know each other."""
        connect_all(self.messengers, pairs)

    def post(self, source, destination, length):
        """Have a message sent and received; returns its key."""
        number = self._numbers[source, destination]
        self._numbers[source, destination] += 1
        key = (source, destination, number)
        self.receive(source, destination, key, length)
        self.send(source, destination, key, length)
        return key

    def send(self, source, destination, key, length):
        """Have a message sent."""
        message = Message(key, source, destination, length)
        self._posts.append((self.sent, message, destination))
        self.messengers[source].post_send(len(self._posts) - 1, message, 0)
        self._open += 1

    def receive(self, source, destination, key, length):
        """Have a message received."""
        message = Message(key, source, destination, length)
        self._posts.append((self.received, message, source))
        self.messengers[destination].post_receive(len(self._posts) - 1, message, 0)
        self._open += 1

    @property
    def open_posts(self):
        """How many sends and receives are not over."""
        return self._open

    def run(self, until_ns=FOREVER_NS):
        """Go on until all messages are over, or until then."""
        while self._open:
            hosts = self.fabric.run(until_ns)
            if not hosts:
                break
            for host in hosts:
                self._serve(host)
        return self._open == 0

    def _serve(self, host):
        """As experiments do: where a post fails, the peer's program is told."""
        messenger = self.messengers[host]
        messenger.step()
        for done in messenger.completions():
            self._open -= 1
            ended, message, peer = self._posts[done.wr_id]
            ended[message.key] = done
            if done.status and (host, peer) not in self._disconnected:
                for one, other in ((host, peer), (peer, host)):
                    self._disconnected.add((one, other))
                    self.messengers[one].disconnect(other)
                    self._serve(one)

    def counter(self, host, name):
        """One of an RNIC's counters."""
        return self.fabric.endpoints[host].counters()[name]
