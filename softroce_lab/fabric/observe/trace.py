# SPDX-License-Identifier: GPL-2.0-or-later
"""Which path the switches choose for a flow, computed with the header that their programs use."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.fabric.net.routes import Routes
from softroce_lab.fabric.observe import counters_files
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.topology import routing

End = Literal["arrived", "no route", "loop"]

ROCE_PORT = 4791  # LAB_ROCE_UDP_PORT
FIRST_SPORT = 0xC000  # LAB_UDP_SPORT_BASE: the engine's path n has source port base + n
_SPORT_MASK = 0x3FFF  # of a queue pair's number (QueuePair::address of native/engine/verbs)
PATHS = 8  # that a queue pair stripes over by default
PROTOCOLS = {"tcp": 6, "udp": 17}  # IANA's numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """Everything of a flow but its source port. The addresses are the ports'."""

    source: Port
    target: Port
    protocol: int = PROTOCOLS["udp"]
    dport: int = ROCE_PORT


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    links: tuple[int, ...]
    nodes: tuple[str, ...]
    end: End

    def __str__(self) -> str:
        return " > ".join(self.nodes) + ("" if self.end == "arrived" else f" ({self.end})")


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    links: tuple[int, ...]
    nodes: tuple[str, ...]
    out: Port


def _address(port: Port) -> str:
    assert port.address is not None, f"{port} is not a host's"  # noqa: S101
    return port.address


def _number(port: Port) -> int:
    """The address as the switches' hash sees it, over IPv6 too."""
    return int(ipaddress.IPv4Address(_address(port)))


class Tracer:
    def __init__(self, plan: Plan, routes: Routes) -> None:
        self._plan = plan
        self._routes = routes
        self._peers = locate.peers(plan)
        self._salts = {node.name: routing.salt(plan.seed, node.name) for node in plan.nodes}

    def path(self, flow: Flow, sport: int) -> Path:
        """The one way that every packet of the flow goes; for a plan with `lb: flow`."""
        way = _Way(links=(), nodes=(flow.source.node,), out=flow.source)
        while True:
            walked, ways = self._step(way, flow)
            if isinstance(walked, Path):
                return walked
            chosen = ways[self._choose(walked.nodes[-1], flow, sport, len(ways))]
            way = dataclasses.replace(walked, out=chosen)

    def all_paths(self, flow: Flow, most: int = 1000) -> list[Path]:
        """Every way that equal-cost ports allow, at most so many of them."""
        found: list[Path] = []
        waiting = [_Way(links=(), nodes=(flow.source.node,), out=flow.source)]
        while waiting and len(found) < most:
            walked, ways = self._step(waiting.pop(), flow)
            if isinstance(walked, Path):
                found.append(walked)
            else:
                waiting += [dataclasses.replace(walked, out=out) for out in reversed(ways)]
        return found

    def _step(self, way: _Way, flow: Flow) -> tuple[_Way | Path, tuple[Port, ...]]:
        """Over one link: how far that is, and where it may go on; or the end of the path."""
        number, arrived = self._peers[way.out.ifindex]
        links, nodes = (*way.links, number), (*way.nodes, arrived.node)
        if arrived.node == flow.target.node:
            return Path(links, nodes, "arrived"), ()
        if arrived.node in way.nodes:
            return Path(links, nodes, "loop"), ()
        ways = self._ways(arrived.node, flow)
        if not ways:
            return Path(links, nodes, "no route"), ()
        return _Way(links, nodes, way.out), ways

    def _ways(self, name: str, flow: Flow) -> tuple[Port, ...]:
        node = self._plan.node(name)
        return self._routes(node, _address(flow.target)) if node.kind == "switch" else ()

    def _choose(self, switch: str, flow: Flow, sport: int, ways: int) -> int:
        way: int = _native.route_choose(
            salt=self._salts[switch],
            src=_number(flow.source),
            dst=_number(flow.target),
            proto=flow.protocol,
            sport=sport,
            dport=flow.dport,
            ways=ways,
        )
        return way

    def shares(self, flow: Flow, paths: Sequence[Path]) -> dict[str, dict[str, int]]:
        """At every switch that has a choice: how many of `paths` leave by each of its ports."""
        used = collections.Counter(number for path in paths for number in path.links)
        on_the_way = dict.fromkeys(name for path in paths for name in path.nodes)
        choices = {name: self._ways(name, flow) for name in on_the_way}
        return {
            name: {str(port): used[self._peers[port.ifindex][0]] for port in ports}
            for name, ports in choices.items()
            if len(ports) > 1
        }


def ports_in_use(lab_directory: pathlib.Path, flow: Flow) -> dict[int, list[str]]:
    """Source ports that processes at the flow's first port send from to its target, and by what.

    A queue pair of verbs has one, by its number; a striped endpoint, which is none, has one a path.
    RunError if none does.
    """
    alive = [each for each in counters_files.of_port(lab_directory, flow.source) if each.alive]
    if not alive:
        raise RunError(
            f"no process has queue pairs at {flow.source}",
            hint="without --sport live: the ports that a striped queue pair would use",
        )
    addresses = (flow.target.address, flow.target.address6)
    found: dict[int, list[str]] = collections.defaultdict(list)
    for qp in (qp for each in alive for qp in each.snapshot.qps):
        if qp.type == "UD" or qp.remote_address in addresses:
            found[FIRST_SPORT | qp.number & _SPORT_MASK].append(f"{qp.type} queue pair {qp.number}")
    if not all(each.snapshot.qps for each in alive):
        found |= {FIRST_SPORT + path: [f"striped, path {path}"] for path in range(PATHS)}
    if not found:
        raise RunError(f"no queue pair at {flow.source} is connected to {flow.target}")
    return dict(sorted(found.items()))


def document(tracer: Tracer, flow: Flow, sports: Sequence[int]) -> dict[str, Any]:
    paths = {sport: tracer.path(flow, sport) for sport in sports}
    return {
        "flows": [
            {"sport": sport, "nodes": list(path.nodes), "links": list(path.links), "end": path.end}
            for sport, path in paths.items()
        ],
        "shares": tracer.shares(flow, list(paths.values())),
    }
