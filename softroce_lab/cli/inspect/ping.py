# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect path --ping`: round trips between two hosts of a lab."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import typer

from softroce_lab import units
from softroce_lab.cli.options import warn_of_damage
from softroce_lab.errors import ExitCode, RunError
from softroce_lab.fabric import guests
from softroce_lab.fabric.observe import describe, ping, view
from softroce_lab.fabric.rights import needing_root
from softroce_lab.plan.plan import Port


def send(
    seen: view.View,
    ends: tuple[Port, Port],
    *,
    count: int,
    interval: str,
    size: int,
    timeout: str,
    ipv6: bool,
    as_json: bool,
) -> None:
    """Send ICMP echo requests, and print the replies. Exits with 1 if no reply arrives."""
    times = {
        name: units.parse_time_ns(text)
        for name, text in (("interval_ns", interval), ("timeout_ns", timeout))
    }
    ping.check_size(size, seen.plan.mtu, ipv6=ipv6)
    if not as_json:
        print(f"{_name(ends[0], ipv6=ipv6)} to {_name(ends[1], ipv6=ipv6)}, {size} bytes")
    say = (lambda _: None) if as_json else _say
    warn_of_damage(seen.damage())
    run = _from_guest if seen.plan.node(ends[0].node) in seen.plan.guests else _from_here
    outcome = run(seen, *ends, ipv6=ipv6, count=count, size_bytes=size, say=say, **times)
    if as_json:
        print(json.dumps(_document(ends, outcome, ipv6=ipv6), indent=1))
    else:
        _print(outcome)
    if not outcome.replies:
        raise typer.Exit(ExitCode.FAILED)


def _from_here(
    seen: view.View, source: Port, target: Port, *, ipv6: bool, **options: Any
) -> ping.Outcome:
    with _opened(seen, source, target, ipv6=ipv6) as pinger:
        return ping.run(pinger, **options)


def _from_guest(seen: view.View, source: Port, target: Port, **options: Any) -> ping.Outcome:
    kind = guests.kind(seen.plan.node(source.node).kind)
    with seen.guest(source.node) as guest:
        return kind.ping(guest, source, target, **options)


def _opened(seen: view.View, source: Port, target: Port, *, ipv6: bool) -> ping.Pinger:
    try:
        with seen.inside(source.node), needing_root():
            return ping.Pinger(source, target, ipv6=ipv6)
    except OSError as error:
        raise RunError(f"cannot send from {source}: {error.strerror}") from error


def _name(port: Port, *, ipv6: bool) -> str:
    return f"{port} ({port.address6 if ipv6 else port.address})"


def _say(reply: ping.Reply) -> None:
    note = ", duplicate" if reply.duplicate else ""
    hops = f"{reply.hops} hop{'' if reply.hops == 1 else 's'}"
    print(
        f"{reply.sequence:6}  {units.format_duration(reply.rtt_ns):>10}  {hops}{note}", flush=True
    )


def _print(outcome: ping.Outcome) -> None:
    duplicates = len(outcome.replies) - len(outcome.firsts)
    extra = f", {duplicates} duplicates" if duplicates else ""
    lost = f"{100 * outcome.loss:.3g} % lost"
    print(f"{outcome.sent} sent, {len(outcome.firsts)} received, {lost}{extra}")
    times = outcome.rtt_ns()
    if times is not None:
        shown = ", ".join(f"{name} {units.format_duration(each)}" for name, each in times.items())
        print(f"round trip: {shown}")


def _document(ends: tuple[Port, ...], outcome: ping.Outcome, *, ipv6: bool) -> dict[str, Any]:
    names = [
        {"host": port.node, "port": port.name, "address": port.address6 if ipv6 else port.address}
        for port in ends
    ]
    return {
        "schema_version": describe.SCHEMA_VERSION,
        "from": names[0],
        "to": names[1],
        "sent": outcome.sent,
        "received": len(outcome.firsts),
        "duplicates": len(outcome.replies) - len(outcome.firsts),
        "loss": outcome.loss,
        "rtt_ns": outcome.rtt_ns(),
        "replies": [dataclasses.asdict(reply) for reply in outcome.replies],
    }
