# SPDX-License-Identifier: GPL-2.0-or-later
"""The device: an RNIC that somebody drives, as verbs see it."""

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING

from softroce_lab.rnic.addr import GID
from softroce_lab.rnic.base import Closable, table
from softroce_lab.rnic.errors import PyverbsRDMAError

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

_pd_numbers = itertools.count(1)  # 0 is for those who use an endpoint without verbs


class Context(Closable):
    """Verbs of an endpoint: a `Host` on the real clock, a side of a `Pair`, a `FrameEndpoint`.

    The endpoint stays its owner's: closing the context closes what was made of it, and leaves the
    endpoint running. The fabric is routed, so that all that leaves goes to one `next_hop_mac`.
    """

    def __init__(self, endpoint: Endpoint, *, next_hop_mac: int = 0) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.next_hop_mac = next_hop_mac
        self._messages_user: Closable | None = None

    @property
    def completion_fd(self) -> int:
        """Readable after completions were pushed (a `Host` only)."""
        return int(self.endpoint.completion_fd)

    def query_gid(self, port_num: int, index: int) -> GID:
        """The port's GID: its IP address, IPv4 mapped (annex A17.4.5)."""
        if (port_num, index) != (1, 0):
            raise PyverbsRDMAError(
                "Failed to query gid", errno.EINVAL, hint="port 1 has GID 0 only"
            )
        return GID.of_address(self.endpoint.address)

    def new_pd_number(self) -> int:
        """What tells a protection domain from all others."""
        return next(_pd_numbers)

    def take_messages(self, user: Closable | None) -> None:
        """Reserve the RNIC's message engine for `user`; None gives it back. EBUSY: it is taken."""
        if user is not None and self._messages_user is not None:
            raise PyverbsRDMAError("Failed to create a message endpoint", errno.EBUSY)
        self._messages_user = user

    def __str__(self) -> str:
        return "Context\n" + table([("GID", self.query_gid(1, 0)), ("ports", 1)])
