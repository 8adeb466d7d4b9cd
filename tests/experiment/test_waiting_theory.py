# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting of open-loop traffic is that of M/D/1."""

import dataclasses
from fractions import Fraction

import pytest

from softroce_lab.experiment import virtual
from softroce_lab.workloads.open_loop import OpenLoop
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.sizes import Sizes
from softroce_lab.workloads.work import Workload
from tests.experiment.kinds.examples import of

SENDERS, RATE_BPS = 128, 100 * 10**9
PAYLOAD, FRAME = 4096, 14 + 20 + 8 + 12 + 4096 + 4 + 4  # of rc, with its immediate
SERVICE_NS = FRAME * 8 * 10**9 / RATE_BPS
EMPTY_NS = 2 * SERVICE_NS + 2 * 1000


class ToOne(Workload):
    """The arrivals of open-loop traffic, all to one further host: the queue before it is M/D/1."""

    name = "to one"
    longest_message_bytes = PAYLOAD

    def __init__(self, work):
        self.work, self.ranks = work, (*work.ranks, SENDERS)

    @property
    def message_count(self):
        return self.work.message_count

    def buffer_bytes_of(self, host):
        return 0

    def messages(self):
        for at, message in enumerate(self.work.messages()):
            yield dataclasses.replace(message, key=(0, 0, at), destination=SENDERS)

    def schedule(self):
        schedule = Schedule(self.ranks)
        for message, at_ns in zip(self.messages(), self.work.flows["at_ns"].tolist(), strict=True):
            schedule.transfer(message, at_ns=at_ns)
        return schedule


@pytest.mark.parametrize(("load", "flows"), [(30, 60_000), (60, 60_000), (80, 200_000)])
def test_waiting_on_a_star_is_that_of_m_d_1(load, flows):
    """Mean wait rho/2(1 - rho) of a service time, for the load that was drawn, headers included.

    Many senders, so that a sender's own link keeps few of its packets apart.
    """
    experiment = of(
        "name: waiting\n"
        f"topology: {{generator: {{kind: star, hosts: {SENDERS + 1}, "
        "access: {rate: 100Gbit, delay: 1us}}}\n"
        "transports: [rc]\nmtu: 4200\ndepth: 256\nlb: flow\n"
        "workload: {kind: incast, bytes: 1B}\n"
    )
    share = Fraction(load, 100) * Fraction(PAYLOAD, FRAME) / SENDERS
    time_ns = int(flows * PAYLOAD * 8 * 10**9 / (RATE_BPS * SENDERS * share))
    rates = (RATE_BPS,) * SENDERS
    work = OpenLoop(tuple(range(SENDERS)), rates, share, time_ns, Sizes.of_list([PAYLOAD]))
    only = experiment.plan(1), ToOne(work)
    made = virtual.VirtualRun(experiment, experiment.transports[0], 1, lambda _: None, only=only)
    found = made.go()
    assert found.verdict == "passed", found.reasons
    rho = float(work.offered_load) * SENDERS * FRAME / PAYLOAD
    assert rho == pytest.approx(load / 100, rel=0.01)
    received_ns = found.messages["received_ns"] + 0.5  # whole nanoseconds, rounded down
    waits_ns = (received_ns - work.flows["at_ns"] - EMPTY_NS)[work.warm]
    assert waits_ns.min() > -1
    assert waits_ns.mean() == pytest.approx(rho / (2 * (1 - rho)) * SERVICE_NS, rel=0.03)
