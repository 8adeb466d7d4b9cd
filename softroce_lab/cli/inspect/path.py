# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect path`: which paths the fabric chooses between two hosts; with --ping round trips."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, LabOrFile, print_document, warn_of_damage
from softroce_lab.errors import ExitCode, RunError, UserError
from softroce_lab.fabric import guests
from softroce_lab.fabric.net import routes
from softroce_lab.fabric.observe import ping as pinging
from softroce_lab.fabric.observe import trace, view
from softroce_lab.fabric.rights import needing_root
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
        options: dict[str, Any] = {"count": count, "size_bytes": size, "ipv6": ipv6}
        options["interval_ns"] = units.parse_time_ns(interval)
        options["timeout_ns"] = units.parse_time_ns(timeout)
        _ping(seen, _ends(seen, source, target, rail), as_json=as_json, **options)
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
        print_document(**document)
    else:
        _print(document, {n: near for n, (near, _) in locate.half_names(seen.plan).items()})


def _ends(seen: view.View, source: str, target: str, rail: int) -> tuple[Port, Port]:
    ends = locate.rail(seen.plan, source, rail), locate.rail(seen.plan, target, rail)
    if ends[0].node == ends[1].node:
        raise UserError(f"{ends[0].node} is named as both ends", hint="name two hosts")
    return ends


def _flow(
    seen: view.View, source: str, target: str, rail: int, proto: Protocol, dport: int | None
) -> trace.Flow:
    ends = _ends(seen, source, target, rail)
    if dport is None and proto is not Protocol.ROCE:
        raise UserError(f"--proto {proto.value} needs a destination port", hint="add --dport N")
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
    head = {
        "lab": seen.plan.name,
        "up": seen.is_up,
        "load_balancing": seen.plan.load_balancing,
        "from": _end(flow.source, ipv6=ipv6),
        "to": _end(flow.target, ipv6=ipv6),
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


# --- Round trips ---------------------------------------------------------------------------------


def _end(port: Port, *, ipv6: bool) -> dict[str, Any]:
    address = port.address6 if ipv6 else port.address
    return {"host": port.node, "port": port.name, "address": address}


def _ping(
    seen: view.View, ends: tuple[Port, Port], *, as_json: bool, ipv6: bool, **options: Any
) -> None:
    """Send ICMP echo requests, and print the replies. Exits with 1 if no reply arrives."""
    size_bytes = options["size_bytes"]
    pinging.check_size(size_bytes, seen.plan.mtu, ipv6=ipv6)
    documents = [_end(port, ipv6=ipv6) for port in ends]
    if not as_json:
        names = [f"{port} ({each['address']})" for port, each in zip(ends, documents, strict=True)]
        print(f"{' to '.join(names)}, {size_bytes} bytes")
    options["say"] = (lambda _: None) if as_json else _print_reply
    warn_of_damage(seen.damage())
    source = seen.plan.node(ends[0].node)
    if source in seen.plan.guests:
        with seen.guest(source.name) as guest:
            outcome = guests.kind(source.kind).ping(guest, *ends, ipv6=ipv6, **options)
    else:
        with _opened(seen, *ends, ipv6=ipv6) as pinger:
            outcome = pinging.run(pinger, **options)
    duplicates = len(outcome.replies) - len(outcome.firsts)
    if as_json:
        counts = {"sent": outcome.sent, "received": len(outcome.firsts), "duplicates": duplicates}
        replies = [dataclasses.asdict(reply) for reply in outcome.replies]
        facts = {"loss": outcome.loss, "rtt_ns": outcome.rtt_ns(), "replies": replies}
        print_document(**{"from": documents[0], "to": documents[1]}, **counts, **facts)
    else:
        extra = f", {duplicates} duplicates" if duplicates else ""
        lost = f"{100 * outcome.loss:.3g} % lost"
        print(f"{outcome.sent} sent, {len(outcome.firsts)} received, {lost}{extra}")
        times = (outcome.rtt_ns() or {}).items()
        if times:
            shown = ", ".join(f"{name} {units.format_duration(each)}" for name, each in times)
            print(f"round trip: {shown}")
    if not outcome.replies:
        raise typer.Exit(ExitCode.FAILED)


def _opened(seen: view.View, source: Port, target: Port, *, ipv6: bool) -> pinging.Pinger:
    try:
        with seen.inside(source.node), needing_root():
            return pinging.Pinger(source, target, ipv6=ipv6)
    except OSError as error:
        raise RunError(f"cannot send from {source}: {error.strerror}") from error


def _print_reply(reply: pinging.Reply) -> None:
    note = ", duplicate" if reply.duplicate else ""
    hops = units.format_count(reply.hops, "hop")
    print(
        f"{reply.sequence:6}  {units.format_duration(reply.rtt_ns):>10}  {hops}{note}", flush=True
    )
