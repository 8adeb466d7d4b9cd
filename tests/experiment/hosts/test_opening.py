# SPDX-License-Identifier: GPL-2.0-or-later
"""What messengers over several rails are made of: each rail's next hop, and the settings."""

import numpy as np
import pytest

from softroce_lab.experiment.hosts.driver import HostDriver
from softroce_lab.experiment.hosts.messenger import RcSettings, connect_all, first_psn
from softroce_lab.experiment.hosts.opening import open_over
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.transports.shift.rails import Rails
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Schedule

MACS = (0x020000000001, 0x020000000002)  # of the next hop of each rail
RC = RcSettings(timeout=3, retry_count=1)
BYTES = 4096


class Both:
    """Drivers of both hosts, connected; host 0 sends messages to host 1."""

    def __init__(self, rails, transport, messages, **options):
        schedule = Schedule(range(2))
        self.messages = [Message((0, 0, number), 0, 1, 64) for number in range(messages)]
        for message in self.messages:
            schedule.transfer(message)
        self._rails = rails
        self.hosts = {
            host: HostDriver(
                schedule, host, 1, self._opened(host, transport, options), None, path_mtu=1024
            )
            for host in range(2)
        }
        for pair in rails.pairs:
            pair.keep_sent()
        connect_all(self.hosts, [(0, 1)])

    def _opened(self, host, transport, options):
        endpoints = [pair.side(host) for pair in self._rails.pairs]
        return open_over(
            Transport.named(transport),
            list(zip(endpoints, MACS, strict=True)),
            memory=np.zeros(BYTES, np.uint8),
            rc=RC,
            **options,
        )

    def exchange(self, numbers):
        """Messages, until their receives are over."""
        sender, receiver = self.hosts.values()
        for number in numbers:
            receiver.receive(number, self.messages[number])
            sender.send(number, self.messages[number])
        done = []
        for _ in range(2000):
            self._rails.pass_time(10_000)
            for host in self.hosts.values():
                host.step()
            done += [each for rail in receiver.rails for each in rail.completions()]
            for rail in sender.rails:
                rail.completions()
            if len(done) == len(numbers):
                return sorted(each.wr_id for each in done)
        raise AssertionError(f"not over: {done}")


def next_hops(rails):
    """Where the frames of each rail went."""
    return [
        {int.from_bytes(frame[:6], "big") for _, _, frame in pair.take_sent()}
        for pair in rails.pairs
    ]


@pytest.fixture
def rails():
    with Rails(delay_ns=1000) as made:
        yield made


def test_each_rail_of_a_backup_has_its_next_hop(rails):
    both = Both(rails, "shift", 2)
    assert both.exchange([0]) == [0]
    assert next_hops(rails) == [{MACS[0]}, set()]
    rails.cut()
    assert both.exchange([1]) == [1]
    assert next_hops(rails) == [{MACS[0]}, {MACS[1]}]


def test_each_rail_of_several_has_its_next_hop(rails):
    both = Both(rails, "rc", 2)
    assert both.exchange([0, 1]) == [0, 1]
    assert next_hops(rails) == [{MACS[0]}, {MACS[1]}]


@pytest.mark.parametrize("transport", ["shift", "rc"])
def test_first_psns_follow_from_the_run(rails, transport):
    address = Both(rails, transport, 0, qkey=7).hosts[0].rails[0].address(1)
    assert address.psn == first_psn(7, address.qp) != first_psn(0, address.qp)
