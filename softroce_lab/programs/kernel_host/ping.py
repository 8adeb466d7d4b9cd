# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP echoes that a kernel host sends: by ping(8) of the guest, whose lines are read."""

from __future__ import annotations

import re
from collections.abc import Callable

from softroce_lab.errors import RunError
from softroce_lab.fabric.observe.ping import INITIAL_TTL, Outcome, Reply
from softroce_lab.plan.plan import Port
from softroce_lab.programs.kernel_host.guest import Guest

_REPLY = re.compile(rb"icmp_seq=(\d+) (?:ttl|hlim)=(\d+) time=([\d.]+) ms( \(DUP!\))?")
_SENT = re.compile(rb"(\d+) packets transmitted")
_NO_REPLY = 1  # ping's exit status
_OK = (0, _NO_REPLY)


def run(
    guest: Guest,
    source: Port,
    target: Port,
    *,
    ipv6: bool,
    count: int,
    interval_ns: int,
    size_bytes: int,
    timeout_ns: int,
    say: Callable[[Reply], None],
) -> Outcome:
    """As ping.run, from the guest `source`. RunError if its ping fails."""
    address, near = (target.address6, source.address6) if ipv6 else (target.address, source.address)
    argv = ["ping", "-n", "-c", str(count), "-i", f"{interval_ns / 1e9:g}", "-s", str(size_bytes)]
    argv += ["-W", f"{timeout_ns / 1e9:g}", "-I", str(near), str(address)]
    outcome, complaints, rest = Outcome(), bytearray(), bytearray()

    def take(kind: str, data: bytes) -> None:
        if kind == "err":
            complaints.extend(data)
            return
        *lines, rest[:] = (rest + data).split(b"\n")
        for line in lines:
            _read(line, outcome, say)

    with guest.start(argv) as command:
        code = command.stream(take)
    if code not in _OK or not outcome.sent:
        output = complaints.decode("utf-8", "replace").strip()
        raise RunError(f"ping ended with {code} in {guest.node}: {output}")
    return outcome


def _read(line: bytes, outcome: Outcome, say: Callable[[Reply], None]) -> None:
    if match := _REPLY.search(line):
        sequence, ttl, time_ms, duplicate = match.groups()
        rtt_ns = round(float(time_ms) * 1e6)
        reply = Reply(int(sequence), rtt_ns, INITIAL_TTL - int(ttl), duplicate is not None)
        outcome.replies.append(reply)
        say(reply)
    elif match := _SENT.search(line):
        outcome.sent = int(match[1])
