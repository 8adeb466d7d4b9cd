# SPDX-License-Identifier: GPL-2.0-or-later
"""Two connection managers on a wire without time of its own: MADs arrive when the rig says so."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import random
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from softroce_lab.programs.rdmacm.connection import (
    CmEvent,
    CmTiming,
    ConnParams,
    PortIdentity,
    Send,
    Way,
    rdma_cm_event_type,
)
from softroce_lab.programs.rdmacm.manager import ConnectionManager, Target
from softroce_lab.programs.rdmacm.messages import (
    Apr,
    Drep,
    IpHeader,
    Mad,
    Mra,
    Path,
    Rej,
    RejectReason,
    Rep,
    Req,
    Rtu,
    gid_of,
    rdma_port_space,
    service_id,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

ADDRESSES = (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
PORT = 7174
TCP, UDP = rdma_port_space.RDMA_PS_TCP, rdma_port_space.RDMA_PS_UDP
ACTIVE, PASSIVE = 0, 1
QPNS = (0x11, 0x22)
WIRE_NS = 10_000
TIMING = CmTiming()
EVENTS = {each.name.removeprefix("RDMA_CM_EVENT_"): each for each in rdma_cm_event_type}


def way(side, peer=None):
    """From a side to the other one, or to a stranger."""
    return Way(gid_of(ADDRESSES[side]), gid_of(peer or ADDRESSES[1 - side]))


@dataclasses.dataclass(frozen=True)
class Carried:
    """A MAD that one side sent."""

    side: int
    number: int  # of its kind from this side, from 0
    kind: str
    octets: bytes


class Wire:
    """Both sides, the clock, and what is under way between them."""

    def __init__(self, seed=1, timing=TIMING, lost: Callable[[Carried], bool] = lambda _: False,
                 copies=1):  # fmt: skip
        self.now_ns = 0
        self.lost, self.copies = lost, copies
        self.sides = [
            ConnectionManager(
                {gid_of(address): PortIdentity(0x5054_00FF_FE00_0000 + n)},
                random.Random(seed * 2 + n),
                timing,
            )
            for n, address in enumerate(ADDRESSES)
        ]
        self.events: list[list[CmEvent]] = [[], []]
        self.sent: list[Carried] = []
        self.flight: collections.deque[tuple[int, int, bytes]] = collections.deque()
        self._kinds: collections.Counter[tuple[int, str]] = collections.Counter()
        self.reactions: dict[tuple[int, str], Callable[[CmEvent], None]] = {}

    def take(self, side, outputs):
        """Carry out what a side returned."""
        for output in outputs:
            if isinstance(output, Send):
                self._carry(side, output)
            else:
                self.events[side].append(output)
                name = output.event.name.removeprefix("RDMA_CM_EVENT_")
                if reaction := self.reactions.get((side, name)):
                    reaction(output)

    def _carry(self, side, send):
        assert send.way == way(side)
        kind = Mad.parse(send.mad).message.ATTRIBUTE.name
        carried = Carried(side, self._kinds[side, kind], kind, send.mad)
        self._kinds[side, kind] += 1
        self.sent.append(carried)
        if not self.lost(carried):
            self.flight.extend(self.copies * [(self.now_ns + WIRE_NS, 1 - side, send.mad)])

    def deliver(self, side, octets, source=None):
        self.take(side, self.sides[side].handle_mad(octets, way(side, source), self.now_ns))

    def step(self):
        """The next thing that happens. False: nothing ever will."""
        due = [(each.next_timeout_ns, n) for n, each in enumerate(self.sides)]
        timers = [(at_ns, n) for at_ns, n in due if at_ns is not None]
        if self.flight and (not timers or self.flight[0][0] <= min(timers)[0]):
            self.now_ns, side, octets = self.flight.popleft()
            self.deliver(side, octets)
        elif timers:
            at_ns, side = min(timers)
            self.now_ns = max(self.now_ns, at_ns)
            self.take(side, self.sides[side].handle_timeout(self.now_ns))
        return bool(self.flight or timers)

    def settle(self):
        """Deliver all that is under way, without waiting for any timer."""
        for _ in range(1000):
            if not self.flight:
                return
            self.step()
        raise AssertionError("the sides never stop talking")

    def drive(self, until_ns=None):
        """Run to the end of everything, or to a time."""
        for _ in range(10_000):
            if until_ns is not None and self._next_ns() > until_ns:
                self.now_ns = until_ns
                return
            if not self.step():
                return
        raise AssertionError("the sides never stop talking")

    def _next_ns(self):
        times = [each.next_timeout_ns for each in self.sides] + [t for t, _, _ in self.flight]
        return min((each for each in times if each is not None), default=1 << 62)

    def names(self, side):
        return [each.event.name.removeprefix("RDMA_CM_EVENT_") for each in self.events[side]]

    def kinds(self):
        return [("active" if c.side == ACTIVE else "passive", c.kind) for c in self.sent]

    def last(self, side, name):
        return next(each for each in reversed(self.events[side]) if each.event is EVENTS[name])

    # What users do

    def listen(self, side=PASSIVE, space=TCP, **options):
        comm_id = self.sides[side].create()
        self.sides[side].listen(comm_id, space, PORT, **options)
        return comm_id

    def resolve(self, side=ACTIVE, space=TCP, **options):
        comm_id = self.sides[side].create()
        target = Target(ADDRESSES[side], 4000, ADDRESSES[1 - side], PORT, space, **options)
        self.take(side, self.sides[side].resolve_addr(comm_id, target))
        self.take(side, self.sides[side].resolve_route(comm_id))
        return comm_id

    def connect(
        self, side=ACTIVE, space=TCP, timing=None, private_data=b"", transport=0, **options
    ):
        comm_id = self.resolve(side, space, **options)
        params = ConnParams(qp_num=QPNS[side], private_data=private_data)
        self.take(side, self.sides[side].connect(comm_id, params, self.now_ns, timing, transport))
        return comm_id

    def accept(self, comm_id, side=PASSIVE, qkey=0, **params):
        made = ConnParams(**{"qp_num": QPNS[side], **params})
        self.take(side, self.sides[side].accept(comm_id, made, self.now_ns, qkey))

    def establish(self, comm_id, side=ACTIVE, private_data=b""):
        self.take(side, self.sides[side].establish(comm_id, private_data))

    def reject(self, comm_id, side=PASSIVE, private_data=b""):
        self.take(side, self.sides[side].reject(comm_id, self.now_ns, private_data))

    def disconnect(self, comm_id, side=ACTIVE):
        self.take(side, self.sides[side].disconnect(comm_id, self.now_ns))

    def destroy(self, comm_id, side=ACTIVE):
        self.take(side, self.sides[side].destroy(comm_id, self.now_ns))

    def open_ids(self, side):
        return self.sides[side]._open

    def willing(self):
        """Both users say yes to everything at once; both agree to the end."""
        self.reactions[PASSIVE, "CONNECT_REQUEST"] = lambda event: self.accept(event.id)
        self.reactions[ACTIVE, "CONNECT_RESPONSE"] = lambda event: self.establish(event.id)
        for side in (ACTIVE, PASSIVE):
            self.reactions[side, "DISCONNECTED"] = lambda event, side=side: self.disconnect(
                event.id, side
            )
        return self

    def connected(self):
        """(active id, passive id) of a connection that both sides know of."""
        self.listen()
        active = self.connect()
        self.settle()
        passive = self.last(PASSIVE, "CONNECT_REQUEST").id
        if not self.reactions:
            self.accept(passive)
            self.settle()
            self.establish(active)
            self.settle()
        return active, passive


MALLORY = IPv4Address("10.0.0.66")


@contextlib.contextmanager
def refused(code):
    with pytest.raises(PyverbsRDMAError) as caught:
        yield
    assert caught.value.error_code == code


def state(wire, comm_id, side):
    return wire.sides[side].connection(comm_id).state


def message(wire, kind):
    """The last message of a kind that was sent."""
    octets = next(each.octets for each in reversed(wire.sent) if each.kind == kind)
    return Mad.parse(octets).message


def forged_req(**changes):
    header = IpHeader(4000, *ADDRESSES)
    path = Path(local_gid=gid_of(ADDRESSES[0]), remote_gid=gid_of(ADDRESSES[1]))
    fields = {
        "local_comm_id": 77,
        "local_ca_guid": 99,
        "local_qpn": 5,
        "service_id": service_id(TCP, PORT),
        "path_mtu": 3,
        "primary": path,
        "private_data": header.build(),
    }
    return Mad.of(1, Req(**fields | changes)).build()


def strangers(active, passive):
    return [
        Rep(passive, active, local_qpn=7),
        Rtu(active, passive),
        Mra(active, passive, 1, 20),
        Rej(active, passive, 2, reason=RejectReason.CONSUMER_DEFINED),
        Drep(active, passive),
        Apr(active, passive),
    ]
