# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect path`: which paths the fabric chooses for flows between two hosts."""

from __future__ import annotations

import collections
import contextlib
import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.inspect import ping as pinging
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, LabOrFile
from softroce_lab.errors import UserError
from softroce_lab.fabric.net import routes
from softroce_lab.fabric.observe import describe, trace, view
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Port

app = typer.Typer(add_completion=False)


class Protocol(enum.StrEnum):
    """What the flows carry."""

    ROCE = "roce"
    UDP = "udp"
    TCP = "tcp"


_OF_PING = ("count", "interval", "size", "timeout")


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--ping", flag("ping"), ("sport", "dport", "proto")),
        Mode("without --ping", lambda params: not params["ping"], _OF_PING),
    )


@app.command(cls=_Command)
def path(
    source: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A host, or its port: h1:eth2.", autocompletion=completion.hosts
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="B", help="Another host.", autocompletion=completion.hosts)
    ],
    sport: Annotated[
        str | None,
        typer.Option(
            help="Source ports: N, N-M, or live: those of active queue pairs from A to B; "
            "default: those of a striped queue pair."
        ),
    ] = None,
    dport: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Destination port; default with roce: 4791."),
    ] = None,
    proto: Annotated[Protocol, typer.Option(help="Protocol of the flows.")] = Protocol.ROCE,
    rail: Annotated[int, typer.Option(min=1, help="Rail at both hosts.")] = 1,
    ipv6: Annotated[bool, typer.Option("--ipv6", "-6", help="Use IPv6.")] = False,
    ping: Annotated[
        bool,
        typer.Option(
            "--ping", help="Send ICMP echo requests from A to B; exit with 1 if no reply arrives."
        ),
    ] = False,
    count: Annotated[
        int,
        typer.Option("-c", "--count", min=1, max=65535, help="With --ping: number of requests."),
    ] = 5,
    interval: Annotated[
        str,
        typer.Option("-i", "--interval", metavar="TIME", help="With --ping: between requests."),
    ] = "200ms",
    size: Annotated[
        int,
        typer.Option("-s", "--size", min=0, max=65000, help="With --ping: bytes of data of each."),
    ] = 56,
    timeout: Annotated[
        str,
        typer.Option(
            "-W", "--timeout", metavar="TIME", help="With --ping: wait for the last reply."
        ),
    ] = "1s",
    lab: LabOrFile = None,
    as_json: Json = False,
) -> None:
    """Show the path of every flow (UDP source port) from A to B under the current routes.

    With --ping: measure round trips.
    """
    if ping:
        seen = view.of_lab(lab)
        pinging.send(
            seen, _ends(seen, source, target, rail), count=count, interval=interval, size=size,
            timeout=timeout, ipv6=ipv6, as_json=as_json,
        )  # fmt: skip
        return
    seen = view.of(lab)
    flow = _flow(seen, source, target, rail, proto, dport)
    live = sport == "live"
    used = _used(seen, flow, proto) if live else {}
    sports = list(used) if live else _sports(sport)
    with contextlib.ExitStack() as stack:
        known = routes.planned(seen.plan)
        if seen.is_up:
            known = stack.enter_context(routes.current(seen.plan, seen.bpffs))
        tracer = trace.Tracer(seen.plan, known)
        document = _document(seen, tracer, flow, sports, proto, ipv6=ipv6)
    for each in document.get("flows", ()) if live else ():
        each["queue_pairs"] = used[each["sport"]]
    if as_json:
        print(json.dumps({"schema_version": describe.SCHEMA_VERSION, **document}, indent=1))
    else:
        _print(document, {n: near for n, (near, _) in locate.half_names(seen.plan).items()})


def _ends(seen: view.View, source: str, target: str, rail: int) -> tuple[Port, Port]:
    ends = locate.rail(seen.plan, source, rail), locate.rail(seen.plan, target, rail)
    if ends[0].node == ends[1].node:
        raise UserError(f"{ends[0].node} is both ends", hint="name two hosts")
    return ends


def _flow(
    seen: view.View, source: str, target: str, rail: int, proto: Protocol, dport: int | None
) -> trace.Flow:
    ends = _ends(seen, source, target, rail)
    if dport is None and proto is not Protocol.ROCE:
        raise UserError(f"{proto.value} without a destination port", hint="say --dport N")
    number = trace.PROTOCOLS["tcp" if proto is Protocol.TCP else "udp"]
    return trace.Flow(ends[0], ends[1], number, dport or trace.ROCE_PORT)


def _used(seen: view.View, flow: trace.Flow, proto: Protocol) -> dict[int, list[str]]:
    """Source ports that queue pairs use now, and those queue pairs. UserError, RunError."""
    if proto is not Protocol.ROCE:
        raise UserError("--sport live finds ports of RoCE", hint="leave --proto out")
    if not seen.is_up:
        raise UserError(
            f"{seen.plan.name} is not up", hint="without --sport live: the ports of a file"
        )
    return trace.ports_in_use(seen.directory, flow)


def _sports(text: str | None) -> Sequence[int]:
    """`N` or `N-M`."""
    if text is None:
        return range(trace.FIRST_SPORT, trace.FIRST_SPORT + trace.PATHS)
    match = re.fullmatch(r"(0x[0-9a-fA-F]{1,4}|\d{1,5})(?:-(0x[0-9a-fA-F]{1,4}|\d{1,5}))?", text)
    if match is None:
        raise UserError(f"{text!r} is no range of ports", hint="such as 49152-49159")
    first = int(match[1], 0) if match[1].startswith("0x") else int(match[1])
    last = first if match[2] is None else int(match[2], 16 if match[2].startswith("0x") else 10)
    if not first <= last <= 65535:
        raise UserError(f"{text!r} is no range of ports", hint="0 to 65535, the lesser one first")
    return range(first, last + 1)


def _document(
    seen: view.View,
    tracer: trace.Tracer,
    flow: trace.Flow,
    sports: Sequence[int],
    proto: Protocol,
    *,
    ipv6: bool,
) -> dict[str, Any]:
    ends = [
        {"host": port.node, "port": port.name, "address": port.address6 if ipv6 else port.address}
        for port in (flow.source, flow.target)
    ]
    head = {
        "lab": seen.plan.name,
        "up": seen.is_up,
        "load_balancing": seen.plan.load_balancing,
        "from": ends[0],
        "to": ends[1],
        "proto": proto.value,
        "dport": flow.dport,
    }
    if seen.plan.load_balancing == "flow":
        return head | trace.document(tracer, flow, sports)
    paths = tracer.all_paths(flow)
    return head | {
        "paths": [{"nodes": path.nodes, "links": path.links, "end": path.end} for path in paths]
    }


def _print(document: dict[str, Any], starts: Mapping[int, str]) -> None:
    ends = [document[end] for end in ("from", "to")]
    where = " to ".join(f"{end['host']} ({end['address']})" for end in ends)
    routes_of = "present routes" if document["up"] else "planned routes"
    print(f"{document['proto']} from {where}, port {document['dport']}, by {routes_of}")
    if "flows" not in document:
        _print_spread(document, starts)
        return
    print(f"{'sport':>6}  path")
    for flow in document["flows"]:
        owners = ", ".join(flow.get("queue_pairs", ()))
        print(f"{flow['sport']:6}  {_way(flow, starts)}{owners and f'  ({owners})'}")
    counts = collections.Counter(_way(flow, starts) for flow in document["flows"])
    flows = units.format_count(len(document["flows"]), "flow")
    print(f"\n{flows} over {units.format_count(len(counts), 'path')}")
    for way, count in counts.most_common():
        print(f"{count:6}  {way}")
    for switch, ports in document["shares"].items():
        shares = ", ".join(f"{port} {count}" for port, count in ports.items())
        print(f"{switch} chooses: {shares}")


def _print_spread(document: dict[str, Any], starts: Mapping[int, str]) -> None:
    how = {
        "spray": "packets of one flow spread evenly over all of these",
        "adaptive": "each packet goes where the queue is shortest, among these",
    }
    print(f"lb {document['load_balancing']}: {how[document['load_balancing']]}")
    for path in document["paths"]:
        print(f"        {_way(path, starts)}")


def _way(path: dict[str, Any], starts: Mapping[int, str]) -> str:
    """The nodes on the way; of parallel links, the port by which it leaves."""
    end = "" if path["end"] == "arrived" else f"  ({path['end']})"
    return " > ".join([*(starts[number] for number in path["links"]), path["nodes"][-1]]) + end
