# SPDX-License-Identifier: GPL-2.0-or-later
"""What became of the programs of a run, in words: as the manifest's `programs` has them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

from softroce_lab import units

UNSEEN = "programs do not show their messages"
NO_PACKET = "no RoCE packet left the host; `roce: false` if none needs to"


def ended(status: int | None) -> str:
    """How a command ended; a negative status is a signal's, as `subprocess` has it."""
    if status is None:
        return "did not begin"
    return f"ended with {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"


def fate(program: Mapping[str, Any]) -> str:
    """How it ended, when, and why it was killed if it was."""
    if program["status"] is None:
        return ended(None)
    why = program.get("killed")
    because = f" because {why}" if why else ""
    return f"{ended(program['status'])} after {program['took_s']} s{because}"


def process_name(pid: int, rank: int | None) -> str:
    return f"process {pid}" + ("" if rank is None else f", rank {rank}")


def rnic(process: Mapping[str, Any]) -> str:
    """What the RNIC of a process counted, as `processes` of the manifest has it."""
    return (
        f"RNIC of {process['program']} ({process_name(process['pid'], process.get('rank'))}): "
        f"{units.format_count(process['queue_pairs'], 'queue pair')}, "
        f"{units.format_count(process['packets_sent'], 'data packet')} sent, "
        f"{process['retransmitted']:,} of them retransmitted"
    )


def lines(run: str, programs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """For each program of a run a line, and one with what it printed that was asked for."""
    for host, each in programs.items():
        yield f"{run} {host}: {fate(each)}, {each['roce_packets']:,} RoCE packets"
        for process in each.get("processes", ()):
            yield f"{run} {process.get('host', host)}: {rnic(process)}"
        if each.get("matched"):
            yield f"{run} {host} printed: {' '.join(each['matched'].split())}"
