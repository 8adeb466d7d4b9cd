# SPDX-License-Identifier: GPL-2.0-or-later
"""What kept senders from an idle link while they had packets to send; on the virtual clock.

The engine adds up these times, by cause (native/engine/stops.hpp). A share is a time over that in
which hosts had packets to send: their uplinks were busy, or they were stopped.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Shares: TypeAlias = dict[str, dict[str, float]]
"""By transport, by cause."""

LEAST_SHARE = 0.1
"""Of the time; causes with less are not named."""

WORDS = {
    "window": "window",
    "in_order_cap": "PSN cap",
    "single_path": "single path",
    "credit": "credit",
    "congestion_control": "congestion control",
}
"""The causes that are named. The others, `queue` and `recovery`, are the fabric's."""


def shares(hosts: Iterable[tuple[str, int, Mapping[str, int]]]) -> Shares:
    """Of hosts: the transport, how long the uplink was busy, and the stopped times by cause; ns."""
    times_ns: dict[str, collections.Counter[str]] = {}
    whole_ns: collections.Counter[str] = collections.Counter()
    for transport, busy_ns, stopped_ns in hosts:
        times = times_ns.setdefault(transport, collections.Counter())
        whole_ns[transport] += busy_ns
        for cause, ns in stopped_ns.items():
            if ns:
                times[cause] += ns
                whole_ns[transport] += ns
    return {
        transport: {cause: ns / whole_ns[transport] for cause, ns in of.items()}
        for transport, of in times_ns.items()
    }


def named(found: Shares) -> list[dict[str, Any]]:
    """The causes that held a transport back, the largest share of each transport first."""
    return [
        {"transport": transport, "by": cause, "share": share}
        for transport, of in found.items()
        for cause, share in sorted(of.items(), key=lambda each: -each[1])
        if cause in WORDS and share >= LEAST_SHARE
    ]
