# SPDX-License-Identifier: GPL-2.0-or-later
"""MADs of the communication manager, told to one that listens and that connects.

Of each one octet and 256: the octet's bit 0 says from whom it comes, bits 1 and 2 what our user
makes of a request, bits 3 and 4 how much time goes by before.
"""

from __future__ import annotations

import contextlib
import random
from ipaddress import IPv4Address

from softroce_lab.programs.rdmacm.connection import (
    ConnParams,
    Outputs,
    PortIdentity,
    Send,
    Way,
    qp_attributes,
    rdma_cm_event_type,
)
from softroce_lab.programs.rdmacm.manager import MOST_PENDING, ConnectionManager, Target
from softroce_lab.programs.rdmacm.messages import (
    HEADER_BYTES,
    MAD_BYTES,
    LayoutError,
    Mad,
    MadHeader,
    gid_of,
    rdma_port_space,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

OWN, PEER, MALLORY = (IPv4Address(f"10.77.0.{n}") for n in (10, 11, 66))
PORT = 7174
_TCP, _UDP = rdma_port_space.RDMA_PS_TCP, rdma_port_space.RDMA_PS_UDP
_BACKLOG = 8
_TIMES_NS = (0, 10**6, 10**9, 100 * 10**9)
_MOST_TIMEOUTS = 5000
_EVENT = rdma_cm_event_type


def one(data: bytes) -> None:
    """Tell it all of them; then its clock must come to an end."""
    user = User()
    for at in range(0, len(data) - MAD_BYTES, 1 + MAD_BYTES):
        user.receive(data[at], data[at + 1 : at + 1 + MAD_BYTES])
    user.receive(0, data[-300:])  # of another length as a rule
    user.wait()


class User:
    """One who listens, has asked for a connection and for a queue pair, and answers requests."""

    def __init__(self) -> None:
        ports = {gid_of(OWN): PortIdentity(0x5054_00FF_FE00_0001)}
        self.manager = ConnectionManager(ports, random.Random(3))
        self.now_ns = 0
        self._choice = 0
        for space in (_TCP, _UDP):
            self.manager.listen(self.manager.create(), space, PORT, backlog=_BACKLOG)
            asker = self.manager.create()
            self._take(self.manager.resolve_addr(asker, Target(OWN, 4000, PEER, PORT, space)))
            self._take(self.manager.connect(asker, ConnParams(qp_num=0x22), 0))
        self._open = len(self.manager._open)

    def receive(self, how: int, octets: bytes) -> None:
        """A MAD."""
        _obey_the_law(octets)
        self.now_ns += _TIMES_NS[how >> 3 & 3]
        self._take(self.manager.handle_timeout(self.now_ns))
        self._choice = how >> 1 & 3
        way = Way(gid_of(OWN), gid_of(MALLORY if how & 1 else PEER))
        self._take(self.manager.handle_mad(octets, way, self.now_ns))

    def wait(self) -> None:
        """Until nothing is awaited any more."""
        for _ in range(_MOST_TIMEOUTS):
            due_ns = self.manager.next_timeout_ns
            if due_ns is None:
                return
            self.now_ns = max(self.now_ns, due_ns)
            self._take(self.manager.handle_timeout(self.now_ns))
        raise AssertionError("its clock never ends")

    def _take(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                assert Mad.parse(output.mad).build() == output.mad
                continue
            assert output.id in self.manager._open
            with contextlib.suppress(PyverbsRDMAError):
                self._react(output.event, output.id)
        assert len(self.manager._peers) <= 2 * len(self.manager._open)
        assert len(self.manager._open) < MOST_PENDING

    def _react(self, event: rdma_cm_event_type, comm_id: int) -> None:
        manager, now_ns = self.manager, self.now_ns
        match event, self._choice:
            case _EVENT.RDMA_CM_EVENT_CONNECT_REQUEST, 0 | 1:
                self._take(manager.accept(comm_id, ConnParams(qp_num=0x33), now_ns))
            case _EVENT.RDMA_CM_EVENT_CONNECT_REQUEST, 2:
                self._take(manager.reject(comm_id, now_ns))
            case _EVENT.RDMA_CM_EVENT_CONNECT_RESPONSE, _:
                qp_attributes(manager.connection(comm_id))
                self._take(manager.establish(comm_id))
            case _EVENT.RDMA_CM_EVENT_DISCONNECTED, 0:
                self._take(manager.disconnect(comm_id, now_ns))
            case ((_EVENT.RDMA_CM_EVENT_DISCONNECTED | _EVENT.RDMA_CM_EVENT_TIMEWAIT_EXIT), _):
                self._take(manager.destroy(comm_id, now_ns))


def _obey_the_law(octets: bytes) -> None:
    """What is parsed is built again, less what is reserved."""
    try:
        mad = Mad.parse(octets)
    except LayoutError:
        return
    defined = MadHeader.defined() + type(mad.message).defined()
    kept = bytes(a & b for a, b in zip(octets, defined, strict=True))
    assert mad.build() == kept, (mad, HEADER_BYTES)
