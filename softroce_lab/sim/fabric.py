# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as a simulated fabric: the same routes, faults, queues and delays, on a virtual clock."""

from __future__ import annotations

import functools
import hashlib
import heapq
import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.faults.layout import Hits, LinkRules, link_rules, named_hits, rule_hits, shape
from softroce_lab.faults.text import comments
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Down, Fault
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.sim import samples
from softroce_lab.sim.presets import IDEAL, RNICS, RnicModel, simulated_host
from softroce_lab.structs import Struct
from softroce_lab.telemetry.drops import DROP, Drops
from softroce_lab.telemetry.recoveries import RECOVERY, Recoveries
from softroce_lab.telemetry.repairs import REPAIR, Repairs
from softroce_lab.topology import routing

if TYPE_CHECKING:
    from softroce_lab._native import MessageConfig


NO_GROUP = 2**32 - 1

Groups = tuple[list[list[int]], npt.NDArray[np.uint32]]
"""Sets of directed links, and for each host port the number of the set that leads to it."""


def groups(plan: Plan, ports: Mapping[Port, int], down: Collection[int] = ()) -> dict[str, Groups]:
    """The routes of each switch, without the links of the indexes in `down`.

    `ports` numbers the host ports, 0 ... len(ports) - 1.
    """
    links = [link for link in plan.links if link.index not in down]
    switches = [node.name for node in plan.nodes if node.kind == "switch"]
    among = routing.neighbours(switches, links)
    leaving = {near: number for link in links for number, near, _ in link.halves}
    far_ends = {near: far for link in links for _, near, far in link.halves}
    behind: dict[str, list[tuple[int, int]]] = {}  # of an edge switch: its host ports and links
    for port, number in ports.items():
        edge = far_ends.get(port)
        if edge is not None:
            behind.setdefault(edge.node, []).append((number, leaving[edge]))
    found = {name: _Table(len(ports)) for name in switches}
    for edge_name, hosts in behind.items():
        hosts_there = np.array([number for number, _ in hosts])
        for switch, out in routing.next_hops(edge_name, among).items():
            if switch != edge_name and out:
                found[switch].add([leaving[port] for port in out], hosts_there)
        for number, link in hosts:
            found[edge_name].add([link], np.array([number]))
    return {name: (table.groups, table.group_of_port) for name, table in found.items()}


class _Table:
    """The routes of one switch while they are found."""

    def __init__(self, ports: int) -> None:
        self.groups: list[list[int]] = []
        self.group_of_port = np.full(ports, NO_GROUP, dtype=np.uint32)
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, links: list[int], ports: npt.NDArray[np.int64]) -> None:
        """These links lead to those ports."""
        number = self._numbers.setdefault(tuple(links), len(self.groups))
        if number == len(self.groups):
            self.groups.append(links)
        self.group_of_port[ports] = number


_laid_out = functools.lru_cache(maxsize=1024)(link_rules)  # a plan is run transport by transport

_LINK_TOTALS = Struct("sim::LinkTotals")
_SWITCH_TOTALS = Struct("sim::SwitchTotals")

REROUTE_NS = 1_500_000  # after a link went down or came up, as on the real clock


def _tie_key(seed: int) -> int:
    """Of the draws among packets that arrive at the same moment."""
    digest = hashlib.sha256(f"{seed}/ties".encode()).digest()
    return int.from_bytes(digest[:8], "little")


class SimFabric:
    """The fabric of a plan; a rail of each host is its endpoint, in the order of the hosts."""

    def __init__(
        self,
        plan: Plan,
        host: MessageConfig | None = None,
        others: Mapping[int, MessageConfig] = MappingProxyType({}),
        rails: Mapping[int, int] = MappingProxyType({}),
        rnic: RnicModel = RNICS[IDEAL],
    ) -> None:
        """`others`: of hosts, by index, whose engine is not as `host`.

        `rails`: of hosts, by index, the rail of their endpoint, counted from 0; others: the first.

        UserError for a plan with kernel hosts, which need a machine.
        """
        if plan.kernel_hosts:
            raise UserError(
                f"{plan.kernel_hosts[0].name} is a kernel host, which the virtual clock has not",
                hint="run it on the real clock: --clock real",
            )
        self.plan = plan
        self.link_names = locate.arrows(plan)
        self.native = _native.Fabric(plan.load_balancing, _tie_key(plan.seed))
        self.ports = [port for node in plan.hosts for port in node.ports]
        self._number_of = {port: number for number, port in enumerate(self.ports)}
        self._switch_of: dict[str, int] = {}
        self._next_hop_macs: dict[int, int] = {}
        self._uplinks: dict[int, int] = {}
        self._laid: dict[int, LinkRules] = {}
        configs = {plan.hosts[index].name: config for index, config in others.items()}
        self._add_nodes(host or simulated_host(), configs, rnic.native())
        self._add_links()
        self._downs = [fault for fault in plan.faults if isinstance(fault.effect, Down)]
        self._down: frozenset[int] = frozenset()
        self._found: dict[frozenset[int], dict[str, Groups]] = {}  # by the links down
        self._route()
        self._arm()
        self._reroutes = self._moments_of_reroutes()
        self._used = [
            self._number_of[node.ports[rails.get(host, 0)]] for host, node in enumerate(plan.hosts)
        ]
        self.endpoints = [self.native.endpoint(number) for number in self._used]
        numbers = [[self._number_of[port] for port in node.ports] for node in plan.hosts]
        self._host_of = {number: host for host, of in enumerate(numbers) for number in of}

    def _add_nodes(
        self, usual: MessageConfig, configs: Mapping[str, MessageConfig], rnic: Any
    ) -> None:
        """`configs`: by the names of hosts that have another than the usual."""
        for port in self.ports:
            config = configs.get(port.node, usual)
            config.address = int(ipaddress.IPv4Address(str(port.address)))
            self.native.add_port(config, _mac(port.mac), rnic)
        for node in self.plan.nodes:
            if node.kind == "switch":
                salt = routing.salt(self.plan.seed, node.name)
                self._switch_of[node.name] = self.native.add_switch(salt)

    def _add_links(self) -> None:
        for number, near, far in self.plan.halves:
            macs = {"near_mac": _mac(near.mac), "far_mac": _mac(far.mac)}
            if far.node in self._switch_of:
                made = self.native.add_link_to_switch(self._switch_of[far.node], **macs)
            else:
                made = self.native.add_link_to_port(self._number_of[far], **macs)
            assert made == number, "directed links are numbered in the plan's order"  # noqa: S101
            if near in self._number_of:
                self.native.set_uplink(self._number_of[near], number)
                self._next_hop_macs[self._number_of[near]] = macs["far_mac"]
                self._uplinks[self._number_of[near]] = number

    def _route(self) -> None:
        found = self._found.get(self._down)
        if found is None:  # a link that flaps is down again and again
            found = self._found[self._down] = groups(self.plan, self._number_of, self._down)
        for name, (sets, of) in found.items():
            self.native.set_routes(self._switch_of[name], sets, of)

    def _arm(self) -> None:
        for link, faults in _by_link(self.plan).items():
            if any(fault.shapes for fault in faults):
                self.native.shape(link, shape(faults))
            rules = _laid_out(tuple(faults))
            if not rules.empty:
                self._laid[link] = rules
                named = [(*name, value) for name, value in rules.names.items()]
                self.native.set_rules(link, rules.value, named)

    def stall(self, host: int, at_ns: int, for_ns: int) -> None:
        """Let a host's timers stand still for a while, as when its processor was taken away."""
        for port in self.plan.hosts[host].ports:
            self.native.stall_timers(self._number_of[port], at_ns, for_ns)

    def capture(
        self,
        links: Mapping[int, str],
        snap_bytes: int,
        write: Callable[[bytes], object],
        later: Iterable[Fault] = (),
    ) -> None:
        """From now on see the packets of directed links, given by number and name.

        `write` takes a pcapng file, part by part; what it raises ends `run`.
        `snap_bytes` of each packet; 0: all. `later`: faults that `change` will set meanwhile.
        """
        texts = {fault.rule_id: comments(fault) for fault in (*self.plan.faults, *later)}
        rules = [(rule, lines[0], lines[-1]) for rule, lines in texts.items()]
        self.native.capture(list(links.items()), snap_bytes, rules, write)

    def end_capture(self) -> list[int]:
        """End that file; how many packets each link had, in the order in which they were given."""
        return list(self.native.end_capture())

    def endpoint(self, host: int, rail: int) -> tuple[Any, int]:
        """That of any rail of a host, counted from 0, and the MAC address of its next hop."""
        number = self._number_of[self.plan.hosts[host].ports[rail]]
        return self.native.endpoint(number), self._next_hop_macs[number]

    def change(self, plan: Plan) -> None:
        """From now on the links have the faults of this plan, but for rates and delays.

        Routes stay: it is for links at hosts. A capture must know these faults already.
        """
        before, after = _by_link(self.plan), _by_link(plan)
        for link in before.keys() | after.keys():
            if before.get(link) != after.get(link):
                rules = _laid_out(tuple(after.get(link, ())))
                named = [(*name, value) for name, value in rules.names.items()]
                self.native.set_rules(link, rules.value, named)
        self.plan = plan

    # ---------------------------------------------------------------- links that go down

    def _moments_of_reroutes(self) -> list[int]:
        """A heap, as a sorted list is."""
        return sorted({fault.window.begin_ns + REROUTE_NS for fault in self._downs})

    def _reroute(self, now_ns: int) -> None:
        """Lead routes around the links that were down a moment ago, and look again later."""
        seen_ns = now_ns - REROUTE_NS
        downs = self._downs
        down = frozenset(f.directed_link // 2 for f in downs if f.window.acts(seen_ns))
        later = [t for f in downs if (t := f.window.next_change_ns(seen_ns)) is not None]
        if later:
            heapq.heappush(self._reroutes, min(later) + REROUTE_NS)
        if down != self._down:
            self._down = down
            self._route()

    # ---------------------------------------------------------------- time

    @property
    def now_ns(self) -> int:
        """The virtual time, whole nanoseconds since the beginning."""
        return int(self.native.now_ns)

    def run(self, until_ns: int) -> list[int]:
        """Go on until hosts have events or completions, and return their indices, or until then."""
        while True:
            next_ns = self._reroutes[0] if self._reroutes else until_ns
            found = self.native.run(min(until_ns, next_ns))
            if found:
                return [self._host_of[number] for number in found]
            if next_ns >= until_ns:
                return []
            moment = heapq.heappop(self._reroutes)
            while self._reroutes and self._reroutes[0] == moment:
                heapq.heappop(self._reroutes)
            self._reroute(moment)

    # ---------------------------------------------------------------- what it came to

    def next_hop_mac(self, host: int) -> int:
        """Of the switch's port at the other end of the link of a host's endpoint."""
        return self._next_hop_macs[self._used[host]]

    def links(self) -> Iterator[dict[str, Any]]:
        """What each directed link did, in the order of their numbers."""
        all_totals = _LINK_TOTALS.unpack_all(self.native.link_totals())
        for (number, name), totals in zip(self.link_names.items(), all_totals, strict=True):
            yield {
                "directed_link": number,
                "name": name,
                **totals._asdict(),
                "delivered": totals.taken - totals.on_its_way,
                "delivered_bytes": totals.taken_bytes - totals.bytes_on_its_way,
            }

    def switches(self) -> dict[str, dict[str, int]]:
        """What each switch did."""
        all_totals = _SWITCH_TOTALS.unpack_all(self.native.switch_totals())
        return {
            name: {
                **totals._asdict(),
                "forwarded": totals.received - totals.no_route - totals.ttl_exceeded,
            }
            for name, totals in zip(self._switch_of, all_totals, strict=True)
        }

    def port_totals(self) -> Iterator[tuple[Port, dict[str, int]]]:
        """What each host port sent and received."""
        for port, number in self._number_of.items():
            yield port, self.native.port_totals(number)

    def stopped_ns(self, host: int, rail: int | None = None) -> dict[str, int]:
        """How long a host's endpoint had packets to send while its link was idle, by cause.

        `rail`: of another one than its endpoint's.
        """
        return dict(self.native.stopped_ns(self._port(host, rail)))

    def uplink(self, host: int, rail: int | None = None) -> int:
        """The directed link from a host's endpoint, or from another rail."""
        return self._uplinks[self._port(host, rail)]

    def _port(self, host: int, rail: int | None) -> int:
        if rail is None:
            return self._used[host]
        return self._number_of[self.plan.hosts[host].ports[rail]]

    def hits(self) -> dict[int, list[Hits]]:
        """What each rule did, by directed link."""
        found = {}
        for link, rules in self._laid.items():
            state, named = self.native.rules_state(link)
            found[link] = rule_hits(state, rules.rule_ids) + [named_hits(each) for each in named]
        return found

    def injections(self) -> Drops:
        """All that rules did to packets, in the order of time."""
        return np.frombuffer(self.native.drops, DROP)

    def take_recoveries(self) -> Recoveries:
        """The log of recovery since the last call, if `native.record_recoveries` was called.

        The rows are removed from the fabric, because there may be many.
        """
        found: Recoveries = self.native.take_recoveries().view(RECOVERY)
        return found

    def samples(self) -> samples.Columns:
        """Queues, packets in flight and windows, if `native.record_samples` was called."""
        times, values = self.native.samples
        times_ps = np.frombuffer(times, np.int64)
        hosts = [port.node for port in sorted(self._number_of, key=self._number_of.__getitem__)]
        links = list(self.link_names.values())
        width = len(links) + 2 * len(hosts)
        rows = np.frombuffer(values, np.uint32).reshape(len(times_ps), width)
        return samples.columns(times_ps, rows, links, hosts)

    def repairs(self) -> Repairs:
        """Packets whose first transmission was lost; `native.repairs_not_recorded` more were."""
        return np.frombuffer(self.native.repairs, REPAIR)


def _by_link(plan: Plan) -> dict[int, list[Fault]]:
    found: dict[int, list[Fault]] = {}
    for fault in plan.faults:
        found.setdefault(fault.directed_link, []).append(fault)
    return found


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)
