# SPDX-License-Identifier: GPL-2.0-or-later
"""Proof by counters that the chosen transport, and not RC, carried what programs sent.

The counters are those of each process's RNIC (program_records.py). A process that ends by _exit(2)
leaves those of up to 0.1 s before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from softroce_lab import units
from softroce_lab.experiment.hosts.program_records import OfProcess
from softroce_lab.experiment.hosts.program_words import process_name


def problems(
    transport: str, processes: Mapping[str, Sequence[OfProcess]], senders: Collection[str]
) -> Iterator[str]:
    """A line for each process that sent RC packets, or whose RC queue pairs carried nothing.

    `processes`: by host. `senders`: hosts that had to send; at others queue pairs may be idle.
    """
    for host, found in processes.items():
        for each in found:
            who = f"{host}: {each.program} ({process_name(each.snapshot.pid, each.snapshot.rank)})"
            if each.rc_packets:
                packets = units.format_count(each.rc_packets, "packet")
                yield (
                    f"{who} sent {packets} over rc, not over {transport}: "
                    "leave SOFTROCE_TRANSPORT in its environment as it is"
                )
            elif host in senders and each.has_rc and not each.message_packets:
                yield f"{who} has RC queue pairs, and {transport} carried nothing for them"
