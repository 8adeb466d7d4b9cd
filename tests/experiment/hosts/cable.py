# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts on an imagined cable, a messenger of one transport at each end, or a driver."""

from softroce_lab import _native
from softroce_lab.experiment.hosts.buffers import host_memory
from softroce_lab.experiment.hosts.driver import HostDriver
from softroce_lab.experiment.hosts.messenger import connect_all
from softroce_lab.experiment.hosts.opening import open_messenger
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import ADDRESSES, SECOND_NS, config, threshold

SLICE_NS = 100_000


class Cable:
    """The pair and its messengers; `hosts` are the numbers that they call each other by."""

    def __init__(self, transport, memories, *, hosts=(0, 1), seed=1, **settings):
        engine = {
            **registry.find(transport).engine(),
            "framing": registry.find(transport).framing,
            "initial_rtt_ns": 24_000,
        }
        configs = [config(address, **engine) for address in ADDRESSES]
        for each in configs:
            settings.get("timing", DEFAULT_TIMING).apply(each)
        self.pair = _native.Pair(*configs, seed)
        for which in (0, 1):
            cable = self.pair.cable(which)
            cable.delay_ns, cable.packet_time_ns = 10_000, 170
        self.memories = memories
        self.messengers = [
            open_messenger(
                Transport.named(transport),
                self.pair.side(which),
                memory=memories[which],
                **settings,
            )
            for which in (0, 1)
        ]
        self.of_host = dict(zip(hosts, self.messengers, strict=True))
        connect_all(self.of_host, [hosts])

    def step(self, until_ns):
        """Go on until something happens; what is over at each end. None: it is `until_ns`."""
        while True:
            # In slices: the pair does not stop for the completions of queue pairs.
            happened = self.pair.run(min(until_ns, self.pair.now_ns + SLICE_NS))
            for end in self.messengers:
                happened |= bool(end.step())
            reported = [end.completions() for end in self.messengers]
            if happened or any(reported):
                return reported
            if self.pair.now_ns >= until_ns:
                return None


class Drivers:
    """The drivers of a workload between the hosts of a cable."""

    def __init__(self, transport, workload, hosts, *, seed=1, depth=2, loss=0.0):
        schedule = workload.schedule()
        self.memories = [host_memory(workload, schedule, host, seed, depth) for host in hosts]
        self.cable = Cable(transport, [each.memory for each in self.memories], hosts=hosts)
        ends = zip(hosts, self.cable.messengers, self.memories, strict=True)
        self.both = [
            HostDriver(schedule, host, depth, [end], memory, path_mtu=2048)
            for host, end, memory in ends
        ]
        for which in (0, 1):
            self.cable.pair.cable(which).loss = threshold(loss)

    def run(self, within_ns=10 * SECOND_NS):
        """Until both hosts are finished."""
        pair = self.cable.pair
        began_ns, limit_ns = pair.now_ns, pair.now_ns + within_ns
        for driver in self.both:
            driver.prepare()
        for driver in self.both:
            driver.start(began_ns, began_ns)
        while not all(driver.finished for driver in self.both):
            due_ns = min(driver.due_ns for driver in self.both)
            pair.run(min(limit_ns, due_ns, pair.now_ns + SLICE_NS))
            assert pair.now_ns < limit_ns, "unfinished"
            for driver in self.both:
                driver.step()
                driver.serve()
                driver.wake(pair.now_ns)
