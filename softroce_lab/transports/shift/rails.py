# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with a NIC on each of two rails, in this process's memory and on one clock."""

from __future__ import annotations

from typing import Any

from softroce_lab import _native
from softroce_lab.transports.shift.backup import Backup
from softroce_lab.transports.shift.store import LocalStore
from softroce_lab.verbs import Context

_ADDRESSES = ((0x0A000001, 0x0A000002), (0x0A010001, 0x0A010002))  # by rail
_ENDLESS = 2**64 - 1  # packets


def config(address: int) -> Any:
    """Of an RNIC with this address."""
    made = _native.MessageConfig()
    made.address = address
    return made


class Rails:
    """Both rails. A context: the NICs are closed with it.

    `pairs` of RNICs by rail, `contexts` by host and rail. `backups` of the hosts that have one.
    """

    def __init__(self, *, delay_ns: int = 0, packet_time_ns: int = 0, seed: int = 1) -> None:
        """Cables of one delay one way, and of a packet in so much time."""
        self.pairs = [_native.Pair(*map(config, two), seed) for two in _ADDRESSES]
        for pair in self.pairs:
            for side in range(2):
                cable = pair.cable(side)
                cable.delay_ns, cable.packet_time_ns = delay_ns, packet_time_ns
        self.contexts = [[Context(pair.side(host)) for pair in self.pairs] for host in range(2)]
        self.store = LocalStore()
        self.backups: list[Backup] = []

    def __enter__(self) -> Rails:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all NICs."""
        for host in self.contexts:
            for context in host:
                context.close()

    def backup(
        self,
        host: int,
        settings: _native.shift.Settings | None = None,
        *,
        in_background: bool = False,
    ) -> Backup:
        """The second NIC of a host, for QPs of the first; `advance` does what is due of it."""
        first, second = self.contexts[host]
        made = Backup(first, second, self.store, settings, in_background=in_background)
        self.backups.append(made)
        return made

    @property
    def now_ns(self) -> int:
        """The time of both rails."""
        return int(self.pairs[0].now_ns)

    def pass_time(self, ns: int) -> None:
        """Let so much time pass on both rails."""
        until = self.now_ns + ns
        for pair in self.pairs:
            pair.run(until)

    def advance(self) -> None:
        """What is due of the backups."""
        for backup in self.backups:
            backup.advance()

    def cut(self, rail: int = 0, down: bool = True) -> None:
        """Take a rail down, or up again."""
        for side in range(2):
            cable = self.pairs[rail].cable(side)
            cable.down, cable.carries = down, _ENDLESS
