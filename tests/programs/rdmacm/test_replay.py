# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux's recorded exchanges, with our connection manager in the place of either side.

What we say is what Linux said, byte by byte; only the transaction id of what we begin is our own.
Comm ids, PSNs, the flow label and the source port are random at either end: they are dealt out as
the recording has them.
"""

from ipaddress import IPv4Address

import pytest

from softroce_lab.programs.rdmacm.connection import (
    CmEvent,
    CmTiming,
    ConnParams,
    PortIdentity,
    Send,
    Way,
)
from softroce_lab.programs.rdmacm.manager import ConnectionManager, Target
from softroce_lab.programs.rdmacm.messages import IpHeader, Mad, gid_of, rdma_port_space
from tests.programs.rdmacm.test_messages import captured

ACTIVE, PASSIVE = IPv4Address("10.77.0.11"), IPv4Address("10.77.0.10")
GUIDS = {ACTIVE: 0x505400FFFE770011, PASSIVE: 0x505400FFFE770010}
PORT = 0x1C06
TIMING = CmTiming(packet_life_time=18)  # kernel 6.1's
TID = slice(8, 16)


class Dealt:
    """Random numbers that are not."""

    def __init__(self, *numbers):
        self._numbers = list(numbers)

    def getrandbits(self, k):
        number = self._numbers.pop(0)
        assert number < 1 << k
        return number


def manager(address, *numbers):
    ports = {gid_of(address): PortIdentity(GUIDS[address])}
    return ConnectionManager(ports, Dealt(*numbers), TIMING)


def output(outputs):
    (send,) = [each for each in outputs if isinstance(each, Send)]
    return send.mad


def reported(outputs):
    return [each.event.name for each in outputs if isinstance(each, CmEvent)]


def masked(octets):
    return octets[: TID.start] + bytes(8) + octets[TID.stop :]


def message(octets):
    return Mad.parse(octets).message


@pytest.fixture
def recorded():
    return captured("rxe_rc")


def test_our_passive_side_answers_as_linux_did(recorded):
    req, rep, rtu, dreq, drep = recorded
    answer = message(rep)
    ours = manager(PASSIVE, answer.local_comm_id - 1, 0, answer.starting_psn)
    ours.listen(ours.create(), rdma_port_space.RDMA_PS_TCP, PORT)
    way = Way(gid_of(PASSIVE), gid_of(ACTIVE))
    (request,) = ours.handle_mad(req, way, 0)
    params = ConnParams(qp_num=answer.local_qpn)
    assert output(ours.accept(request.id, params, 0)) == rep
    assert reported(ours.handle_mad(rtu, way, 0)) == ["RDMA_CM_EVENT_ESTABLISHED"]
    assert reported(ours.handle_mad(dreq, way, 0)) == ["RDMA_CM_EVENT_DISCONNECTED"]
    assert output(ours.disconnect(request.id, 0)) == drep


def test_our_active_side_says_what_linux_said(recorded):
    req, rep, rtu, dreq, drep = recorded
    asked = message(req)
    label = asked.primary.flow_label
    ours = manager(ACTIVE, asked.local_comm_id, 0, asked.starting_psn, label)
    header = IpHeader.parse(asked.private_data)
    comm_id = ours.create()
    target = Target(ACTIVE, header.port, PASSIVE, PORT, rdma_port_space.RDMA_PS_TCP)
    ours.resolve_addr(comm_id, target)
    params = ConnParams(qp_num=asked.local_qpn)
    assert masked(output(ours.connect(comm_id, params, 0))) == masked(req)
    way = Way(gid_of(ACTIVE), gid_of(PASSIVE))
    assert reported(ours.handle_mad(rep, way, 0)) == ["RDMA_CM_EVENT_CONNECT_RESPONSE"]
    assert masked(output(ours.establish(comm_id))) == masked(rtu)
    assert masked(output(ours.disconnect(comm_id, 0))) == masked(dreq)
    assert reported(ours.handle_mad(drep, way, 0)) == ["RDMA_CM_EVENT_DISCONNECTED"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_service_id_is_resolved_as_linux_does(number):
    req, rep = captured("rxe_ud")[number], captured("rxe_ud")[2 + number]
    asked, answered = message(req), message(rep)
    header = IpHeader.parse(asked.private_data)
    theirs = manager(PASSIVE, 1, 0)
    theirs.listen(theirs.create(), rdma_port_space.RDMA_PS_UDP, PORT)
    (request,) = theirs.handle_mad(req, Way(gid_of(PASSIVE), gid_of(ACTIVE)), 0)
    params = ConnParams(qp_num=answered.qpn)
    assert output(theirs.accept(request.id, params, 0, answered.qkey)) == rep

    ours = manager(ACTIVE, asked.request_id, 0)
    comm_id = ours.create()
    target = Target(ACTIVE, header.port, PASSIVE, PORT, rdma_port_space.RDMA_PS_UDP)
    ours.resolve_addr(comm_id, target)
    assert masked(output(ours.connect(comm_id, ConnParams(), 0))) == masked(req)
    (found,) = ours.handle_mad(rep, Way(gid_of(ACTIVE), gid_of(PASSIVE)), 0)
    assert (found.ud.qp_num, found.ud.qkey) == (answered.qpn, answered.qkey)
