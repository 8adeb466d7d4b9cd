# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager: connections come about and end."""

import errno
from ipaddress import IPv6Address

import pytest

from softroce_lab.programs.rdmacm.connection import CmState, qp_attributes
from softroce_lab.programs.rdmacm.events import ConnParams
from softroce_lab.programs.rdmacm.manager import Target
from softroce_lab.programs.rdmacm.messages import Drep, Dreq, Mad, RejectReason, TransportService
from softroce_lab.programs.rdmacm.service import gid_of
from softroce_lab.programs.rdmacm.settings import CmTiming, time_ns
from tests.programs.rdmacm.cm_rig import (
    ACTIVE,
    ADDRESSES,
    MALLORY,
    PASSIVE,
    PORT,
    QPNS,
    TCP,
    Wire,
    message,
    refused,
    state,
)

# Set-up


def test_a_connection_takes_three_messages(wire):
    active, passive = wire.connected()
    assert wire.kinds() == [("active", "REQ"), ("passive", "REP"), ("active", "RTU")]
    assert wire.names(ACTIVE) == ["ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_RESPONSE"]
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST", "ESTABLISHED"]
    assert state(wire, active, ACTIVE) is state(wire, passive, PASSIVE) is CmState.ESTABLISHED
    assert [side.next_timeout_ns for side in wire.sides] == [None, None]


def test_all_of_a_connection_are_one_transaction(wire):
    wire.connected()
    assert len({Mad.parse(each.octets).header.tid for each in wire.sent}) == 1


def test_each_side_learns_what_its_queue_pair_is_to_be(wire):
    wire.listen()
    timing = CmTiming(packet_life_time=13)
    active = wire.resolve(path_mtu=2, flow_label=0x12345)
    params = ConnParams(qp_num=0x11, responder_resources=3, initiator_depth=5, retry_count=4)
    wire.take(ACTIVE, wire.sides[ACTIVE].connect(active, params, 0, timing))
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    assert (request.conn.responder_resources, request.conn.initiator_depth) == (5, 3)
    wire.accept(request.id, responder_resources=4, initiator_depth=2, rnr_retry_count=6)
    wire.settle()
    ours = qp_attributes(wire.sides[ACTIVE].connection(active))
    theirs = qp_attributes(wire.sides[PASSIVE].connection(request.id))
    assert (ours.dest_qp_num, theirs.dest_qp_num) == (QPNS[PASSIVE], QPNS[ACTIVE])
    assert (ours.sq_psn, ours.rq_psn) == (theirs.rq_psn, theirs.sq_psn)
    assert (ours.max_rd_atomic, theirs.max_dest_rd_atomic) == (4, 4)
    assert (ours.max_dest_rd_atomic, theirs.max_rd_atomic) == (2, 2)
    assert (ours.path_mtu, theirs.path_mtu) == (2, 2)
    assert (ours.retry_cnt, theirs.retry_cnt) == (4, 4)
    assert (ours.rnr_retry, theirs.rnr_retry) == (6, 7)
    assert (ours.timeout, theirs.timeout) == (16, 16)
    assert [ours.flow_label, theirs.flow_label] == [0x12345, 0x12345]
    assert [ours.remote_gid, theirs.remote_gid] == [gid_of(each) for each in reversed(ADDRESSES)]
    assert ours.reliable
    assert theirs.reliable


@pytest.mark.parametrize("transport", list(TransportService))
def test_a_listener_takes_its_own_transport(wire, transport):
    wire.listen(transport_service=TransportService.UC)
    active = wire.connect(transport=transport)
    wire.settle()
    if transport is TransportService.RC:
        rejected = wire.last(ACTIVE, "REJECTED")
        assert rejected.status == RejectReason.INVALID_TRANSPORT_TYPE
    else:
        wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id)
        wire.settle()
        assert not qp_attributes(wire.sides[ACTIVE].connection(active)).reliable


def test_private_data_goes_both_ways(wire):
    wire.listen()
    active = wire.connect(private_data=b"from active")
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    assert request.conn.private_data == b"from active".ljust(56, b"\0")
    wire.accept(request.id, private_data=b"from passive")
    wire.settle()
    reply = wire.last(ACTIVE, "CONNECT_RESPONSE")
    assert reply.conn.private_data == b"from passive".ljust(196, b"\0")
    wire.establish(active, private_data=b"ready")
    wire.settle()
    assert wire.last(PASSIVE, "ESTABLISHED").conn.private_data == b"ready".ljust(224, b"\0")


def test_private_data_that_is_too_long_is_refused_and_nothing_sent(wire):
    active = wire.resolve()
    params = ConnParams(private_data=bytes(57))
    with refused(errno.EINVAL):
        wire.sides[ACTIVE].connect(active, params, 0)
    assert wire.sent == []
    assert wire.sides[ACTIVE].connect(active, ConnParams(), 0)


@pytest.mark.parametrize(
    "params",
    [{"private_data": bytes(197)}, {"qp_num": 1 << 24}, {"initiator_depth": 256}, {"srq": 2}],
)
def test_an_answer_that_fits_no_mad_can_be_given_again(wire, params):
    wire.listen()
    wire.connect()
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    with refused(errno.EINVAL):
        wire.accept(request.id, **params)
    with refused(errno.EINVAL):
        wire.reject(request.id, private_data=bytes(149))
    assert state(wire, request.id, PASSIVE) is CmState.REQ_RCVD
    wire.accept(request.id)
    wire.settle()
    assert wire.names(ACTIVE)[-1] == "CONNECT_RESPONSE"


def test_ids_and_psns_come_from_the_stream():
    first, second, other = Wire(1), Wire(1), Wire(2)
    for each in (first, second, other):
        each.connected()
    assert first.sent == second.sent
    assert first.sent != other.sent


# The end


def test_the_active_side_disconnects(wire):
    active, passive = wire.connected()
    wire.disconnect(active)
    wire.settle()
    assert wire.names(PASSIVE)[-1] == "DISCONNECTED"
    wire.disconnect(passive, PASSIVE)
    wire.settle()
    assert wire.kinds()[3:] == [("active", "DREQ"), ("passive", "DREP")]
    assert state(wire, active, ACTIVE) is state(wire, passive, PASSIVE) is CmState.TIMEWAIT
    wire.drive()
    assert wire.names(ACTIVE)[-2:] == wire.names(PASSIVE)[-2:] == ["DISCONNECTED", "TIMEWAIT_EXIT"]


def test_the_passive_side_disconnects_in_a_transaction_of_its_own(wire):
    active, passive = wire.connected()
    wire.disconnect(passive, PASSIVE)
    wire.settle()
    wire.disconnect(active)
    wire.settle()
    tids = [Mad.parse(each.octets).header.tid for each in wire.sent]
    assert tids[3] == tids[4] != tids[0]
    assert wire.names(PASSIVE)[-1] == "DISCONNECTED"


def test_both_disconnect_at_once():
    wire = Wire().willing()
    active, passive = wire.connected()
    wire.disconnect(active)
    wire.disconnect(passive, PASSIVE)
    wire.drive()
    for side in (ACTIVE, PASSIVE):
        assert wire.names(side).count("DISCONNECTED") == 1
        assert wire.names(side)[-1] == "TIMEWAIT_EXIT"


def test_time_wait_lasts_an_acknowledgement_timeout(wire):
    active, _ = wire.connected()
    wire.disconnect(active)
    wire.settle()
    connection = wire.sides[ACTIVE].connection(active)
    wire.deliver(ACTIVE, Mad.of(0, Drep(connection.remote_id, active)).build())
    began_ns = wire.now_ns
    assert connection.state is CmState.TIMEWAIT
    assert wire.sides[ACTIVE].next_timeout_ns == began_ns + time_ns(connection.ack_timeout)


def test_disconnecting_twice_says_nothing_twice(wire):
    active, passive = wire.connected()
    wire.disconnect(active)
    wire.disconnect(active)
    wire.settle()
    wire.disconnect(passive, PASSIVE)
    wire.disconnect(passive, PASSIVE)
    wire.settle()
    wire.disconnect(active)
    assert [kind for _, kind in wire.kinds()][3:] == ["DREQ", "DREP"]


def test_a_forgotten_connection_says_goodbye_once(wire):
    active, passive = wire.connected()
    wire.destroy(active)
    wire.settle()
    assert wire.names(PASSIVE)[-1] == "DISCONNECTED"
    wire.destroy(passive, PASSIVE)
    wire.drive()
    assert wire.kinds()[3:] == [("active", "DREQ"), ("passive", "DREP")]
    assert wire.open_ids(ACTIVE) == {}


def test_a_dreq_for_what_is_forgotten_is_answered(wire):
    wire.deliver(PASSIVE, Mad.of(9, Dreq(1, 2, 3)).build())
    drep = message(wire, "DREP")
    assert (drep.local_comm_id, drep.remote_comm_id) == (2, 1)


def test_a_dreq_for_another_queue_pair_is_not_heard(wire):
    active, passive = wire.connected()
    wire.deliver(PASSIVE, Mad.of(9, Dreq(active, passive, 0x999)).build())
    assert state(wire, passive, PASSIVE) is CmState.ESTABLISHED


@pytest.mark.parametrize("known", ["asked", "waiting", "answered", "replied"])
def test_forgetting_early_is_told_to_the_peer(wire, known):
    wire.listen()
    active = wire.connect()
    if known == "asked":
        wire.destroy(active)
        wire.flight.rotate(1)  # the REJ overtakes the REQ, and finds nothing
        wire.settle()
        assert message(wire, "REJ").reason == RejectReason.TIMEOUT
        assert wire.sides[PASSIVE].dropped["unmatched REJ"] == 1
        return
    wire.settle()
    passive = wire.last(PASSIVE, "CONNECT_REQUEST").id
    if known != "waiting":
        wire.accept(passive)
        if known == "replied":
            wire.settle()
            wire.destroy(active)
            wire.settle()
            assert wire.names(PASSIVE)[-1] == "REJECTED"
            return
    wire.destroy(passive, PASSIVE)
    wire.settle()
    assert wire.names(ACTIVE)[-1] == "REJECTED"


# Wrong calls


def test_calls_need_their_state(wire):
    active, passive = wire.connected()
    for call in (
        lambda: wire.accept(passive),
        lambda: wire.establish(active),
        lambda: wire.reject(passive),
        lambda: wire.sides[ACTIVE].connect(active, ConnParams(), 0),
        lambda: wire.sides[ACTIVE].listen(active, TCP, PORT),
        lambda: wire.disconnect(12345),
        lambda: wire.sides[ACTIVE].resolve_route(12345),
        lambda: wire.accept(12345),
        lambda: wire.sides[ACTIVE].connect(wire.sides[ACTIVE].create(), ConnParams(), 0),
    ):
        with refused(errno.EINVAL):
            call()


def test_attributes_are_not_known_before_the_peer_is(wire):
    active = wire.connect()
    with refused(errno.EINVAL):
        qp_attributes(wire.sides[ACTIVE].connection(active))


def test_destroying_an_unknown_id_is_nothing(wire):
    assert wire.sides[ACTIVE].destroy(12345, 0) == []


def test_an_address_of_another_ip_version_is_an_error(wire):
    comm_id = wire.sides[ACTIVE].create()
    target = Target(ADDRESSES[ACTIVE], 1, IPv6Address("fd00::1"), PORT, TCP)
    wire.take(ACTIVE, wire.sides[ACTIVE].resolve_addr(comm_id, target))
    assert wire.last(ACTIVE, "ADDR_ERROR").status == -errno.EAFNOSUPPORT
    with refused(errno.EINVAL):
        wire.sides[ACTIVE].resolve_route(comm_id)


def test_a_source_that_is_not_ours_is_no_device(wire):
    comm_id = wire.sides[ACTIVE].create()
    with refused(errno.ENODEV):
        wire.sides[ACTIVE].resolve_addr(comm_id, Target(MALLORY, 1, ADDRESSES[1], PORT, TCP))
