# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a capture of the lab's own traffic was taken: at the sender, at the receiver, or between.

What follows from a packet that is *not* there depends on it. A host sends with a hop limit of 64
and switches take one off, so a packet with 64 is on the link of its sender; what runs the other
way on that link arrives at this host.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence
from softroce_lab.telemetry.packets import Packets

Numbers: TypeAlias = npt.NDArray[np.uint64]

INITIAL_HOPS = 64  # of the engine's packets (native/engine/codec/packet.hpp)


class Taps:
    """Which rows leave their sender there, and which reach their receiver."""

    def __init__(self, evidence: Evidence, rows: npt.NDArray[np.int64]) -> None:
        """Of `rows`, indices of packets with the lab's header."""
        packets = evidence.packets
        self._names = evidence.interface_names()
        sources, destinations = (
            addresses(packets, "source", rows),
            addresses(packets, "destination", rows),
        )
        interfaces = packets["interface"][rows].astype(np.uint64)
        fresh = packets["hop_limit"][rows] == INITIAL_HOPS
        uplinks = self._uplinks(fresh, sources, interfaces)
        downlinks = {
            (self._reverse_of(number), host) for number, host in uplinks if number in self._known
        }
        hosts = hosts_of(evidence)
        self.leaves = _among(interfaces, sources, uplinks)
        self.arrives = _among(interfaces, destinations, downlinks)
        at_hosts = [n for n, name in self._names.items() if ends(name)[1] in hosts]
        self.arrives |= np.isin(interfaces, np.array(at_hosts, dtype=np.uint64))

    def _uplinks(
        self,
        fresh: npt.NDArray[np.bool_],
        sources: Numbers,
        interfaces: Numbers,
    ) -> set[tuple[int, int]]:
        self._known = set(np.unique(interfaces).tolist())
        pairs = np.unique(np.stack([interfaces[fresh], sources[fresh]], axis=1), axis=0)
        return {(int(number), int(host)) for number, host in pairs}

    def _reverse_of(self, interface: int) -> int:
        """The interface of the same link's other direction; itself, where one has both."""
        name = self._names.get(interface)
        if name is None or "->" not in name:
            return interface
        tail, _, head = name.partition("->")
        other = f"{head}->{tail}"
        return next((n for n, each in self._names.items() if each == other), -1)


def hosts_of(evidence: Evidence) -> set[str]:
    """Those that talked, if the capture is of a run."""
    if evidence.run is None:
        return set()
    facts = evidence.run.manifest
    two = {facts[end] for end in ("source", "destination") if isinstance(facts.get(end), str)}
    return two | set(facts.get("hosts", ()))


def ends(name: str) -> tuple[str, str]:
    """The nodes of a directed link: `s1:p2->s2:p2` is ("s1", "s2")."""
    tail, _, head = name.partition("->")
    return tail.partition(":")[0], head.partition(":")[0]


def addresses(packets: Packets, field: str, rows: npt.NDArray[np.int64]) -> Numbers:
    """A number for the GID of each of these rows: one half with the other mixed in."""
    halves = packets[field][rows].view("<u8").reshape(-1, 2)
    return mix(halves[:, 0].astype(np.uint64), halves[:, 1])


def mix(number: Numbers, other: Numbers) -> Numbers:
    """Two numbers as one, 64 bits wide (the finaliser of splitmix64 between them)."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ number >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ number >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = (number ^ number >> np.uint64(31)) ^ other
    return mixed


def _among(
    interfaces: Numbers, hosts: Numbers, pairs: set[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    wanted = np.array([(number, host) for number, host in pairs if number >= 0], dtype=np.uint64)
    wanted = wanted.reshape(-1, 2)
    return np.isin(mix(interfaces, hosts), mix(wanted[:, 0], wanted[:, 1]))
