# SPDX-License-Identifier: GPL-2.0-or-later
"""A node or links of a lab in every detail, as `lab inspect node` and `link` print it as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.net import routes
from softroce_lab.fabric.net.routes import Routes
from softroce_lab.fabric.observe import counters_files, describe, traffic
from softroce_lab.fabric.observe.traffic import Sample
from softroce_lab.fabric.observe.view import View, moment_ns
from softroce_lab.faults import lines, resolve
from softroce_lab.faults.layout import Hits
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Half, Node, Plan, Port
from softroce_lab.telemetry import published_transitions

_NEWEST = 8  # transitions of a queue pair that are shown


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """State of a running lab; empty for a file."""

    look_up: Routes
    counters: Mapping[int, PortCounters]
    sample: Sample | None
    now_ns: int | None  # the moment of the timeline


@contextlib.contextmanager
def observed(seen: View) -> Iterator[Live]:
    """The state of the lab that is up, or of a file that has none."""
    if not seen.is_up:
        yield Live(routes.planned(seen.plan), {}, None, None)
        return
    with (
        seen.maps() as fabric,
        traffic.metering(seen) as meter,
        routes.current(seen.plan, seen.bpffs) as look_up,
    ):
        yield Live(look_up, fabric.counters(), meter.sample(), moment_ns(fabric))


def node_document(seen: View, name: str) -> dict[str, Any]:
    plan = seen.plan
    if locate.is_link(name):
        raise UserError(f"{name} is a link", hint=f"lab inspect link {shlex.quote(name)}")
    node = locate.node(plan, name)
    with observed(seen) as live:
        hosts = describe.kernel_hosts(plan, seen.condition)
        machine = next((host for host in hosts if host["node"] == node.name), None)
        of_node = {"kernel_host": machine, "shift": _with_backup(seen, node)}
        return _head(plan, seen, live) | {"node": _node(plan, node, live) | of_node}


def link_document(seen: View, pattern: str) -> dict[str, Any]:
    """The directed links of `a->b`, `a<->b`, a node or a node:port; globs. UserError if none."""
    plan = seen.plan
    if locate.is_link(pattern):
        halves = locate.halves(plan, pattern)
    else:
        halves = tuple(plan.halves[number] for number in resolve.links_of(plan, pattern))
    with observed(seen) as live:
        return _head(plan, seen, live) | {"links": [_half(seen, half, live) for half in halves]}


def _head(plan: Plan, seen: View, live: Live) -> dict[str, Any]:
    return {"lab": plan.name, "up": seen.is_up, "timeline_ns": live.now_ns}


# --- Nodes -------------------------------------------------------------------------------------


def _node(plan: Plan, node: Node, live: Live) -> dict[str, Any]:
    peers = locate.peers(plan)
    return {
        "name": node.name,
        "kind": node.kind,
        "tier": node.tier,
        "namespace": node.namespace,
        "ports": [_port(port, peers[port.ifindex][1], live) for port in node.ports],
        "routes": _routes(plan, node, live.look_up) if node.kind == "switch" else [],
    }


def _with_backup(seen: View, node: Node) -> list[dict[str, Any]]:
    """Its queue pairs with a backup that have moved: their states, and their newest transitions."""
    if not (seen.is_up and node.is_host):
        return []
    names = {
        ipaddress.ip_address(address): host.name
        for host in seen.plan.hosts
        for port in host.ports
        for address in filter(None, (port.address, port.address6))
    }
    found, now_ns = [], time.monotonic_ns()
    for port in node.ports:
        rows = counters_files.transitions_of_port(seen.directory, port)
        for row in rows:
            row["peer"] = _host_of(row["peer"], names)
        for state in published_transitions.states(rows):
            own = [row for row in rows if row["qp"] == state["qp"]]
            ago_ns = now_ns - state.pop("since_ns", now_ns)
            found.append({"port": port.name, **state, "ago_ns": ago_ns, "newest": own[-_NEWEST:]})
    return found


def _host_of(gid: str, names: Mapping[Any, str]) -> str:
    """The host with this GID, an IP address of one of its rails."""
    if not gid:
        return ""
    address = ipaddress.IPv6Address(gid)
    return names.get(address.ipv4_mapped or address, gid)


def _port(port: Port, peer: Port, live: Live) -> dict[str, Any]:
    counters = live.counters.get(port.ifindex)
    return {
        "name": port.name,
        "ifindex": port.ifindex,
        "mac": port.mac,
        "address": port.address,
        "address6": port.address6,
        "peer": str(peer),
        "counters": counters._asdict() if counters else None,
    }


def _routes(plan: Plan, switch: Node, look_up: Routes) -> list[dict[str, Any]]:
    rails = [port for host in plan.hosts for port in host.ports if port.address]
    return [
        {
            "destination": rail.address,
            "host": rail.node,
            "ports": [port.name for port in look_up(switch, rail.address or "")],
        }
        for rail in rails
    ]


# --- Links -------------------------------------------------------------------------------------


def _half(seen: View, half: Half, live: Live) -> dict[str, Any]:
    number, near, far = half
    sample = live.sample
    on_link = [fault for fault in seen.plan.faults if fault.directed_link == number]
    found = sample.hits.get(number, ()) if sample else ()
    hits = {hit.rule_id: hit for hit in found}
    return {
        "directed_link": number,
        "from": _end(near),
        "to": _end(far),
        "faults": [_fault(group, hits, live.now_ns) for group in lines.grouped(on_link)],
        "tc": lines.commands(on_link, near.name, seen.plan.mtu) if on_link else [],
        "counters": sample.counts[number]._asdict() if sample else None,
        "queued_bytes": sample.queued_bytes[number] if sample else None,
    }


def _end(port: Port) -> dict[str, Any]:
    return {"port": str(port), "mac": port.mac, "ifindex": port.ifindex, "address": port.address}


def _fault(group: Sequence[Fault], hits: Mapping[int, Hits], now_ns: int | None) -> dict[str, Any]:
    first = group[0]
    found = [hits[fault.rule_id] for fault in group if fault.rule_id in hits]
    return {
        "rule": first.rule,
        "text": lines.line(group),
        "key": first.key,
        "seen": found[0].seen if found else None,
        "hits": sum(hit.hits for hit in found) if found else None,
        "acts": None if now_ns is None else first.window.acts(now_ns),
        "moment": lines.moment(first.window, now_ns),
    }
