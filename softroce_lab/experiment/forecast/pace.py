# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this machine carries what an experiment on the real clock will send, before it starts.

Hosts send as fast as their links allow. One thread, the wire stage, moves a frame over every shaped
link (docs/howto/fabric.md), and all CPUs together do the rest. Where that is less than the links
allow, the run is slower than its file and not faithful.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import socket
import time

from softroce_lab.experiment.forecast import base_rtt, expected_events
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec import Experiment
from softroce_lab.plan.plan import Plan

# Measured by benchmarks/faults.py and path.py on a machine where a datagram took so long.
_STAGE_FRAMES_PER_S = 400_000
_PATH_FRAMES_PER_S = 367_000
_REFERENCE_DATAGRAM_NS = 3500

_DATAGRAM_BYTES = 2048
_DATAGRAMS, _ROUNDS = 1000, 8
_MOST_MESSAGES = 100_000  # examined to find the pairs of sender and receiver
_FEW_PACKETS = 256  # over before anything is late


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """Packets a second, of all hosts together."""

    expected: float
    carried: float
    shaped_hops: float  # shaped links that a packet crosses

    @property
    def too_fast(self) -> bool:
        """Whether the run will not be faithful."""
        return self.expected > self.carried


def notes(experiment: Experiment) -> list[str]:
    """A sentence for the user if the fabric is too fast for this machine."""
    found = of(experiment)
    if found is None or not found.too_fast:
        return []
    return [
        f"the links allow about {_round(found.expected)} packets/s over {found.shaped_hops:.2g} "
        f"shaped links each, this machine carries about {_round(found.carried)}: the run will not "
        "be faithful (lower rates, fewer hosts, or --clock virtual)"
    ]


def of(experiment: Experiment) -> Pace | None:
    """Of the busiest moment; None: on the virtual clock, without rates, or of a few packets."""
    if experiment.clock != "real":
        return None
    plan, work = experiment.plan(experiment.seeds[0]), experiment.workload(experiment.seeds[0])
    bits_per_s = _allowed_bps(experiment, plan)
    packets = work.message_count * expected_events.packets_of_a_message(experiment)
    if bits_per_s is None or packets < _FEW_PACKETS:
        return None
    frame_bits = 8 * (path_mtu_bytes(plan.mtu, 4) + base_rtt.HEADERS_BYTES)
    hops = _shaped_hops(plan)
    return Pace(bits_per_s / frame_bits, _carried(hops), hops)


def _allowed_bps(experiment: Experiment, plan: Plan) -> float | None:
    """What the links of all senders, or of all receivers, let through; None: nothing limits it."""
    work, rates = experiment.workload(experiment.seeds[0]), base_rtt.rates(plan)
    messages = list(itertools.islice(work.messages(), _MOST_MESSAGES))
    numbers = {port.ifindex: number for number, port, _ in plan.halves}
    rails = experiment.rails(experiment.seeds[0])

    def total(hosts: set[int], way: int) -> float | None:
        ports = [plan.plain_hosts[host].ports[rails.get(host, 0)] for host in hosts]
        uplinks = [numbers[port.ifindex] ^ way for port in ports]
        found = [rates[number] for number in uplinks]
        return sum(found) if all(found) else None

    sent = total({message.source for message in messages}, 0)
    received = total({message.destination for message in messages}, 1)
    return min((each for each in (sent, received) if each is not None), default=None)


def _shaped_hops(plan: Plan) -> float:
    """Shaped links on the longest path, as if they were spread evenly."""
    shaped = {fault.directed_link for fault in plan.faults if fault.shapes}
    return expected_events.longest_path(plan) * len(shaped) / (2 * len(plan.links))


def _carried(shaped_hops: float) -> float:
    """Packets a second that the wire stage, and all CPUs together, can move."""
    speed = _REFERENCE_DATAGRAM_NS / datagram_ns()
    cpu_s = 1 / _PATH_FRAMES_PER_S + shaped_hops / _STAGE_FRAMES_PER_S  # of a packet
    by_cpus = len(os.sched_getaffinity(0)) / cpu_s
    by_stage = _STAGE_FRAMES_PER_S / shaped_hops if shaped_hops else by_cpus
    return speed * min(by_cpus, by_stage)


@functools.cache
def datagram_ns() -> float:
    """What this machine takes to send a datagram to itself and to receive it: a few milliseconds.

    Time of this thread alone, so that what else runs counts little.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    data, into = bytes(_DATAGRAM_BYTES), bytearray(_DATAGRAM_BYTES)
    with near, far:
        times = []
        for _ in range(_ROUNDS):
            begun = time.thread_time_ns()
            for _ in range(_DATAGRAMS):
                near.send(data)
                far.recv_into(into)
            times.append((time.thread_time_ns() - begun) / _DATAGRAMS)
    return min(times)


def _round(number: float) -> str:
    """To two digits: it is an estimate."""
    return f"{float(f'{number:.2g}'):,.0f}"
