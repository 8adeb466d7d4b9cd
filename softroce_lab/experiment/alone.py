# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a flow takes alone on the empty fabric, from the post until it has arrived.

Slowdown is relative to this time. The sender's window is that of the hosts' links, whatever the
window and the congestion control of the transport: what a narrower one costs is slowdown. The
shortest paths of a flow are cut out of the plan, with rates and delays and no other faults, and the
flow is simulated there. Where a sender keeps its link busy up to the last packet, the time is that
of frames in a row of first-come-first-served links, and a constant for what precedes them. If a
few simulations confirm that, all sizes are computed. If not, each size is simulated.

With one path the computed time is the simulated one, to the nanosecond. With several, a shorter
last packet may overtake the one before it, which changes the time by a part of a packet's.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.plan.effects import Delay, Fault, Queue
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.topology import routing
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.work import Workload

_PICOSECONDS = 10**12

Times: TypeAlias = npt.NDArray[np.int64]
Shape: TypeAlias = tuple[Queue | Delay, ...]
Hops: TypeAlias = tuple[frozenset[int], ...]
"""By distance from the sender: what the links of all shortest paths there do, by number."""

Simulate: TypeAlias = Callable[[Plan, int, int], int]
"""(a plan of two hosts, which one sends, bytes) -> nanoseconds from the post to the arrival."""


class Frames(NamedTuple):
    """The frames of a message, from the Ethernet header. Payloads are whole words (IBA 9.2.4)."""

    payload_bytes: int  # of a full packet
    header_bytes: int
    last_bytes: int  # that the last packet has besides

    def of(self, sizes: Times) -> tuple[Times, int, Times]:
        """By size: how many, the length of all but the last, the length of the last."""
        count = np.maximum(-(-sizes // self.payload_bytes), 1)
        rest = sizes - (count - 1) * self.payload_bytes
        last = self.header_bytes + self.last_bytes + -(-rest // 4) * 4
        return count, self.header_bytes + self.payload_bytes, last


_QUEUE_PAIR = Frames(0, 14 + 20 + 8 + 12 + 4, 4)  # Ethernet, IPv4, UDP, BTH, ICRC; an immediate
_FRAMINGS = {
    "ud": Frames(-40, 14 + 20 + 8 + 12 + 8 + 40 + 4, 0),  # DETH and the lab's header besides
    "uc_immediate": Frames(0, 14 + 20 + 8 + 12 + 16 + 4 + 4, 0),  # RETH and immediate
}


def frames(transport: Transport, path_mtu: int) -> Frames:
    """Of a transport's messages; payloads of full packets are relative to the path MTU above."""
    found = _FRAMINGS[transport.frames] if transport.entry.striped else _QUEUE_PAIR
    return found._replace(payload_bytes=path_mtu + found.payload_bytes)


class OneFlow(Workload):
    """A flow between two hosts, posted when all that precedes it is over."""

    name = "one flow"
    message_count = 1

    def __init__(self, source: int, size_bytes: int, at_ns: int) -> None:
        self.ranks = (0, 1)
        self._message = Message((0, 0, 0), source, 1 - source, size_bytes)
        self._at_ns = at_ns

    @property
    def longest_message_bytes(self) -> int:
        return self._message.length_bytes

    def buffer_bytes_of(self, host: int) -> int:
        return self._message.length_bytes

    def messages(self) -> Iterator[Message]:
        yield self._message

    def schedule(self) -> Schedule:
        schedule = Schedule(self.ranks)
        schedule.transfer(self._message, at_ns=self._at_ns)
        return schedule


class Alone:
    """Times of flows alone on the empty fabric of a plan, of one transport."""

    def __init__(
        self,
        plan: Plan,
        frames: Frames,
        simulate: Simulate,
        rails: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """`rails`: of hosts, by index, that use another than the first, counted from 0."""
        self._plan, self._frames, self._simulate = plan, frames, simulate
        self._rails = rails
        self._shapes = _shapes(plan)
        self._kinds: list[tuple[Shape, Shape]] = []  # of links, and of their ways back
        self._kind = functools.cache(self._kind_of)
        self._ends = {near: (number, far) for number, near, far in plan.halves}
        switches = (node.name for node in plan.nodes if node.kind == "switch")
        self._among = routing.neighbours(switches, plan.links)
        self._toward = functools.cache(lambda edge: routing.next_hops(edge, self._among))
        self._within = functools.cache(self._between_switches)

    def times_ns(self, sources: Times, destinations: Times, sizes: Times) -> Times:
        """Of flows from post to arrival; hosts by their index among the plan's plain ones."""
        alike: dict[tuple[object, ...], list[int]] = collections.defaultdict(list)
        for row, pair in enumerate(zip(sources.tolist(), destinations.tolist(), strict=True)):
            alike[self._likeness(*pair)].append(row)
        found = np.zeros(len(sizes), dtype=np.int64)
        for rows in alike.values():
            cut = self._cut(int(sources[rows[0]]), int(destinations[rows[0]]))
            distinct, where = np.unique(sizes[rows], return_inverse=True)
            found[rows] = self._of_sizes(cut, distinct)[where]
        return found

    # ---------------------------------------------------------------- paths

    def _likeness(self, source: int, destination: int) -> tuple[object, ...]:
        """Equal for pairs of hosts between which a flow takes the same time."""
        hops = self.hops(source, destination)
        even = all(len(hop) == 1 for hop in hops)
        return (hops,) if even else (hops, source, destination)

    def hops(self, source: int, destination: int) -> Hops:
        near, far = map(self._port, (source, destination))
        first, edge = self._ends[near]
        last, far_edge = self._ends[far]
        ways = [frozenset({self._kind(first)})]
        if edge != far:
            ways += [*self._within(edge.node, far_edge.node), frozenset({self._kind(last ^ 1)})]
        return tuple(ways)

    def _port(self, host: int) -> Port:
        return self._plan.plain_hosts[host].ports[self._rails.get(host, 0)]

    def _between_switches(self, edge: str, far_edge: str) -> Hops:
        return tuple(
            frozenset(self._kind(self._ends[port][0]) for port in ports)
            for ports in self._ports(edge, far_edge)
        )

    def _ports(self, edge: str, far_edge: str) -> Iterator[list[Port]]:
        """By distance from `edge`: all ports through which shortest paths lead on."""
        toward, at = self._toward(far_edge), {edge: None}
        while far_edge not in at:
            ports = [port for switch in at for port in toward[switch]]
            yield ports
            at = dict.fromkeys(self._ends[port][1].node for port in ports)

    def _kind_of(self, number: int) -> int:
        """A number for what a link and its way back do: equal for links that do the same."""
        both = self._shapes.get(number, ()), self._shapes.get(number ^ 1, ())
        if both not in self._kinds:
            self._kinds.append(both)
        return self._kinds.index(both)

    def _cut(self, source: int, destination: int) -> _Cut:
        near, far = map(self._port, (source, destination))
        edge, far_edge = self._ends[near][1], self._ends[far][1]
        ports = {near, far}
        if edge != far:
            for each in self._ports(edge.node, far_edge.node):
                ports.update(each)
        ports |= {self._ends[port][1] for port in ports}
        plan = _only(self._plan, ports, self._shapes)
        links = [{self._kinds[kind][0] for kind in hop} for hop in self.hops(source, destination)]
        return _Cut(plan, int(source > destination), links)

    # ---------------------------------------------------------------- times

    def _of_sizes(self, cut: _Cut, sizes: Times) -> Times:
        """Of ascending sizes between two hosts."""

        def simulated(size: int) -> int:
            return self._simulate(cut.plan, cut.source, size)

        if (line := _Line.of(cut.links)) is not None:
            full = self._frames.payload_bytes
            middle, largest = (-(-int(sizes[at]) // full) for at in (len(sizes) // 2, -1))
            probes = full * np.unique([1, min(2, largest), middle, largest])
            found = np.array([simulated(size) for size in probes.tolist()])
            constants = np.unique(found - line.times_ns(*self._frames.of(probes)))
            if len(constants) == 1:
                return line.times_ns(*self._frames.of(sizes)) + constants[0]
        return np.array([simulated(size) for size in sizes.tolist()], dtype=np.int64)


class _Cut(NamedTuple):
    plan: Plan
    source: int  # which of the hosts sends
    links: list[set[Shape]]  # by distance from the sender


@dataclasses.dataclass(frozen=True)
class _Line:
    """Links one behind the other, each first come, first served; switches forward whole frames."""

    ps_per_byte: tuple[int, ...]
    delay_ps: int

    @classmethod
    def of(cls, links: Sequence[set[Shape]]) -> _Line | None:
        """None: paths differ, or a byte takes no whole picoseconds, and remainders add up."""
        rates, delay_ps = [], 0
        for shapes in links:
            if len(shapes) > 1:
                return None
            for effect in next(iter(shapes)):
                if isinstance(effect, Delay):
                    delay_ps += 1000 * effect.delay_ns
                elif effect.rate_bps:
                    rates.append(effect.rate_bps)
        if any(8 * _PICOSECONDS % rate for rate in rates):
            return None
        return cls(tuple(8 * _PICOSECONDS // rate for rate in rates), delay_ps)

    def times_ns(self, count: Times, length: int, last: Times) -> Times:
        """When the last of frames posted at once has passed: `count - 1` of one length, and it.

        The longest path through the departures of (frame, link), as each follows the frame before
        on the same link and itself on the link before. It enters the last frame's row at a link.
        """
        slowness = np.array(self.ps_per_byte, dtype=np.int64)
        latest = last * slowness.sum()
        for at in range(len(slowness)):
            through = length * slowness[: at + 1]
            before = through.sum() + (count - 2) * through.max()
            entering = before + last * slowness[at:].sum()
            latest = np.where(count > 1, np.maximum(latest, entering), latest)
        whole_ns: Times = (self.delay_ps + latest) // 1000
        return whole_ns


def _shapes(plan: Plan) -> dict[int, Shape]:
    found: dict[int, Shape] = {}
    for fault in plan.faults:
        if fault.window.always and isinstance(fault.effect, Queue | Delay):
            effect = fault.effect
            if isinstance(effect, Delay):
                effect = dataclasses.replace(effect, jitter_ns=0)
            found[fault.directed_link] = (*found.get(fault.directed_link, ()), effect)
    return found


def _only(plan: Plan, ports: set[Port], shapes: dict[int, Shape]) -> Plan:
    names = {port.node for port in ports}
    nodes = tuple(
        dataclasses.replace(node, ports=tuple(port for port in node.ports if port in ports))
        for node in plan.nodes
        if node.name in names
    )
    kept = [link for link in plan.links if link.a in ports and link.b in ports]
    links = tuple(dataclasses.replace(link, index=at) for at, link in enumerate(kept))
    faults = tuple(
        Fault("alone", 0, 2 * at + way, "index", 0, effect)
        for at, link in enumerate(kept)
        for way in (0, 1)
        for effect in shapes.get(2 * link.index + way, ())
    )
    return dataclasses.replace(plan, nodes=nodes, links=links, routes=(), faults=faults)
