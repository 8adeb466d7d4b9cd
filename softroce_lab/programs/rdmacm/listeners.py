# SPDX-License-Identifier: GPL-2.0-or-later
"""Listeners, and requests that no listener can take."""

from __future__ import annotations

import dataclasses
import errno

from softroce_lab.programs.rdmacm.layout import LayoutError
from softroce_lab.programs.rdmacm.messages import RejectReason, Req, SidrReq
from softroce_lab.programs.rdmacm.service import Address, IpHeader, gid_of
from softroce_lab.programs.rdmacm.settings import PortIdentity
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

MOST_PENDING = 1024
"""Requests that wait at a listener at most, as in Linux's ucma."""


@dataclasses.dataclass(slots=True)
class Listener:
    """Who takes requests for a service."""

    comm_id: int
    service_id: int
    address: Address | None  # None: all of the port's
    transport_service: int | None  # None: UD
    backlog: int
    waiting: set[int] = dataclasses.field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more are taken."""
        most = self.backlog if 0 < self.backlog < MOST_PENDING else MOST_PENDING
        return len(self.waiting) >= most


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Why no listener takes a request, and the value to use instead (IBA table 109)."""

    reason: RejectReason
    info: bytes = b""


class Listeners:
    """All listeners of a port."""

    def __init__(self, port: PortIdentity) -> None:
        self._port = port
        self._listeners: dict[tuple[int, Address | None], Listener] = {}

    def add(self, listener: Listener) -> None:
        """EADDRNOTAVAIL, EADDRINUSE: the address is not local, or in use."""
        address = listener.address
        if address is not None and gid_of(address) not in self._port.gids:
            raise PyverbsRDMAError("Failed to listen", errno.EADDRNOTAVAIL)
        if (listener.service_id, address) in self._listeners:
            raise PyverbsRDMAError("Failed to listen", errno.EADDRINUSE)
        self._listeners[listener.service_id, address] = listener

    def remove(self, listener: Listener) -> None:
        """It takes no more requests."""
        del self._listeners[listener.service_id, listener.address]

    def for_connection(self, req: Req) -> Listener | Refused:
        """The listener that takes a REQ, or why none does."""
        try:
            listener = self._find(req)
        except LayoutError:
            return Refused(RejectReason.CONSUMER_DEFINED)
        if listener is None:
            return Refused(RejectReason.INVALID_SERVICE_ID)
        if req.transport_service != listener.transport_service:
            return Refused(RejectReason.INVALID_TRANSPORT_TYPE)
        if req.primary.remote_gid not in self._port.gids:
            return Refused(RejectReason.INVALID_GID, self._port.gids[0].packed)
        if not 1 <= req.path_mtu <= self._port.active_mtu:
            return Refused(RejectReason.INVALID_MTU, bytes([self._port.active_mtu << 4]))
        return listener

    def for_datagrams(self, req: SidrReq) -> Listener | None:
        """Who takes a SIDR_REQ."""
        try:
            listener = self._find(req)
        except LayoutError:
            return None
        return listener if listener and listener.transport_service is None else None

    def _find(self, req: Req | SidrReq) -> Listener | None:
        address = IpHeader.parse(req.private_data).destination
        one = self._listeners.get((req.service_id, address))
        return one or self._listeners.get((req.service_id, None))
