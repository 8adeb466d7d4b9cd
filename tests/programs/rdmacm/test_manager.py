# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager: connections and UD peers come about and end, and whom it refuses."""

import dataclasses
import errno
import random
from ipaddress import IPv6Address
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm.connection import (
    CmState,
    CmTiming,
    ConnParams,
    qp_attributes,
    time_ns,
)
from softroce_lab.programs.rdmacm.manager import MOST_PENDING, Target
from softroce_lab.programs.rdmacm.messages import (
    Drep,
    Dreq,
    IpHeader,
    Lap,
    Mad,
    Mra,
    Path,
    Rej,
    RejectReason,
    Rep,
    SidrStatus,
    TransportService,
    gid_of,
)
from tests.programs.rdmacm.cm_rig import (
    ACTIVE,
    ADDRESSES,
    MALLORY,
    PASSIVE,
    PORT,
    QPNS,
    TCP,
    TIMING,
    UDP,
    WIRE_NS,
    Wire,
    forged_req,
    message,
    refused,
    state,
    strangers,
    way,
)

# --- Set-up --------------------------------------------------------------------------------------


def requested(wire, **listens):
    """(active id, the request at the passive side)."""
    wire.listen(**listens)
    active = wire.connect()
    wire.settle()
    return active, wire.last(PASSIVE, "CONNECT_REQUEST").id


def attributes(wire, comm_id, side):
    """Of the queue pair."""
    return SimpleNamespace(**qp_attributes(wire.sides[side].connection(comm_id)))


def test_a_connection_takes_three_messages_of_one_transaction(wire):
    active, passive = wire.connected()
    assert wire.kinds() == [("active", "REQ"), ("passive", "REP"), ("active", "RTU")]
    assert len({Mad.parse(each.octets).header.tid for each in wire.sent}) == 1
    assert wire.names(ACTIVE) == ["ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_RESPONSE"]
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST", "ESTABLISHED"]
    assert state(wire, active, ACTIVE) is state(wire, passive, PASSIVE) is CmState.ESTABLISHED
    assert [side.next_timeout_ns for side in wire.sides] == [None, None]


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
    ours = attributes(wire, active, ACTIVE)
    theirs = attributes(wire, request.id, PASSIVE)
    assert (ours.dest_qp_num, theirs.dest_qp_num) == (QPNS[PASSIVE], QPNS[ACTIVE])
    assert (ours.sq_psn, ours.rq_psn) == (theirs.rq_psn, theirs.sq_psn)
    assert (ours.max_rd_atomic, theirs.max_dest_rd_atomic) == (4, 4)
    assert (ours.max_dest_rd_atomic, theirs.max_rd_atomic) == (2, 2)
    assert (ours.path_mtu, theirs.path_mtu) == (2, 2)
    assert (ours.retry_cnt, theirs.retry_cnt) == (4, 4)
    assert (ours.rnr_retry, theirs.rnr_retry) == (6, 7)
    assert (ours.timeout, theirs.timeout) == (16, 16)
    assert [ours.flow_label, theirs.flow_label] == [0x12345, 0x12345]
    assert [ours.gid, theirs.gid] == [gid_of(each).packed for each in reversed(ADDRESSES)]
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
        assert not attributes(wire, active, ACTIVE).reliable


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


def test_a_request_that_fits_no_mad_is_refused_and_nothing_sent(wire):
    active = wire.resolve()
    with refused(errno.EINVAL):
        wire.sides[ACTIVE].connect(active, ConnParams(private_data=bytes(57)), 0)
    assert wire.sent == []
    assert wire.sides[ACTIVE].connect(active, ConnParams(), 0)


@pytest.mark.parametrize(
    "params",
    [{"private_data": bytes(197)}, {"qp_num": 1 << 24}, {"initiator_depth": 256}, {"srq": 2}],
)
def test_an_answer_that_fits_no_mad_can_be_given_again(wire, params):
    _, passive = requested(wire)
    with refused(errno.EINVAL):
        wire.accept(passive, **params)
    with refused(errno.EINVAL):
        wire.reject(passive, private_data=bytes(149))
    assert state(wire, passive, PASSIVE) is CmState.REQ_RCVD
    wire.accept(passive)
    wire.settle()
    assert wire.names(ACTIVE)[-1] == "CONNECT_RESPONSE"


def test_ids_and_psns_come_from_the_stream():
    first, second, other = Wire(1), Wire(1), Wire(2)
    for each in (first, second, other):
        each.connected()
    assert first.sent == second.sent
    assert first.sent != other.sent


# --- The end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [ACTIVE, PASSIVE])
def test_either_side_disconnects_in_a_transaction_of_its_own(wire, first):
    ids = wire.connected()
    second = 1 - first
    for _ in range(2):  # the second call does nothing
        wire.disconnect(ids[first], first)
    wire.settle()
    assert wire.names(second)[-1] == "DISCONNECTED"
    for _ in range(2):
        wire.disconnect(ids[second], second)
    wire.settle()
    assert [kind for _, kind in wire.kinds()][3:] == ["DREQ", "DREP"]
    tids = [Mad.parse(each.octets).header.tid for each in wire.sent]
    assert tids[3] == tids[4]
    assert (tids[3] == tids[0]) is (first == ACTIVE)
    for side in (ACTIVE, PASSIVE):
        assert state(wire, ids[side], side) is CmState.TIMEWAIT
    connection = wire.sides[first].connection(ids[first])
    assert wire.sides[first].next_timeout_ns == wire.now_ns + time_ns(connection.ack_timeout)
    wire.drive()
    assert wire.names(ACTIVE)[-2:] == wire.names(PASSIVE)[-2:] == ["DISCONNECTED", "TIMEWAIT_EXIT"]


def test_both_disconnect_at_once():
    wire = Wire().willing()
    active, passive = wire.connected()
    wire.disconnect(active)
    wire.disconnect(passive, PASSIVE)
    wire.drive()
    for side in (ACTIVE, PASSIVE):
        assert wire.names(side).count("DISCONNECTED") == 1
        assert wire.names(side)[-1] == "TIMEWAIT_EXIT"


def test_a_destroyed_connection_says_goodbye_once(wire):
    active, passive = wire.connected()
    wire.destroy(active)
    wire.settle()
    assert wire.names(PASSIVE)[-1] == "DISCONNECTED"
    wire.destroy(passive, PASSIVE)
    wire.drive()
    assert wire.kinds()[3:] == [("active", "DREQ"), ("passive", "DREP")]
    assert wire.open_ids(ACTIVE) == {}


@pytest.mark.parametrize("known", ["asked", "waiting", "answered", "replied"])
def test_destroying_early_is_told_to_the_peer(wire, known):
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
    else:
        wire.destroy(passive, PASSIVE)
    wire.settle()
    assert wire.names(PASSIVE if known == "replied" else ACTIVE)[-1] == "REJECTED"


# --- Refusals ------------------------------------------------------------------------------------


def test_a_user_refuses_with_private_data(wire):
    active, passive = requested(wire)
    wire.reject(passive, private_data=b"no")
    wire.settle()
    rejected = wire.last(ACTIVE, "REJECTED")
    assert rejected.status == RejectReason.CONSUMER_DEFINED
    assert rejected.conn.private_data == b"no".ljust(148, b"\0")
    assert state(wire, active, ACTIVE) is state(wire, passive, PASSIVE) is CmState.IDLE
    assert message(wire, "REJ").local_comm_id == 0


def test_an_active_user_refuses_the_reply(wire):
    active, passive = requested(wire)
    wire.accept(passive)
    wire.settle()
    wire.reject(active, ACTIVE)
    wire.settle()
    assert wire.last(PASSIVE, "REJECTED").status == RejectReason.CONSUMER_DEFINED
    assert message(wire, "REJ").answered == 1


def test_a_passive_user_takes_its_reply_back():
    wire = Wire(lost=lambda carried: carried.kind == "REP")
    active, passive = requested(wire)
    wire.accept(passive)
    wire.reject(passive)
    assert state(wire, passive, PASSIVE) is CmState.TIMEWAIT
    # The active side cannot tell whose it is: it knows no comm id of the peer.
    wire.settle()
    assert state(wire, active, ACTIVE) is CmState.REQ_SENT


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"private_data": bytes(92)}, RejectReason.CONSUMER_DEFINED),
        ({"service_id": 1}, RejectReason.INVALID_SERVICE_ID),
        ({"transport_service": 3}, RejectReason.INVALID_TRANSPORT_TYPE),
        ({"path_mtu": 0}, RejectReason.INVALID_MTU),
        ({"path_mtu": 4}, RejectReason.INVALID_MTU),
        ({"primary": Path()}, RejectReason.INVALID_GID),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(wire, changes, reason):
    wire.listen()
    wire.deliver(PASSIVE, forged_req(**changes))
    assert message(wire, "REJ").reason == reason
    if reason is RejectReason.INVALID_MTU:
        assert message(wire, "REJ").info[0] >> 4 == 3
    assert wire.events[PASSIVE] == []
    assert len(wire.open_ids(PASSIVE)) == 1


def test_a_listener_at_one_address_takes_no_other(wire):
    wire.listen(address=ADDRESSES[PASSIVE])
    header = IpHeader(4000, ADDRESSES[ACTIVE], MALLORY)
    wire.deliver(PASSIVE, forged_req(private_data=header.build()))
    assert message(wire, "REJ").reason == RejectReason.INVALID_SERVICE_ID
    wire.deliver(PASSIVE, forged_req())
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]
    with refused(errno.EADDRNOTAVAIL):
        wire.listen(address=MALLORY)
    wire.listen(space=UDP)
    with refused(errno.EADDRINUSE):
        wire.listen(space=UDP)


@pytest.mark.parametrize("backlog", [2, 0, 10**6])
def test_requests_beyond_the_backlog_find_room_later(wire, backlog):
    wire.listen(backlog=backlog)
    most = backlog if backlog == 2 else MOST_PENDING
    for n in range(most + 5):
        wire.deliver(PASSIVE, forged_req(local_comm_id=100 + n, local_qpn=100 + n))
    assert len(wire.events[PASSIVE]) == most
    assert wire.sides[PASSIVE].dropped["backlog is full"] == 5
    wire.reject(wire.events[PASSIVE][0].id)
    wire.deliver(PASSIVE, forged_req(local_comm_id=7, local_qpn=7))
    assert len(wire.events[PASSIVE]) == most + 1


def test_requests_that_peers_take_back_hold_their_room_until_the_user_saw_them(wire):
    wire.listen(backlog=2)
    guid = (99).to_bytes(8)
    for n in range(50):
        wire.deliver(PASSIVE, forged_req(local_comm_id=100 + n, local_qpn=100 + n))
        gone = Rej(100 + n, 0, 2, 8, RejectReason.TIMEOUT, guid)
        wire.deliver(PASSIVE, Mad.of(1, gone).build())
    assert wire.names(PASSIVE) == 2 * ["CONNECT_REQUEST", "REJECTED"]
    wire.destroy(wire.events[PASSIVE][0].id, PASSIVE)
    wire.deliver(PASSIVE, forged_req(local_comm_id=7, local_qpn=7))
    assert wire.names(PASSIVE)[-1] == "CONNECT_REQUEST"


def test_a_closed_listener_refuses_those_that_wait(wire):
    listener = wire.listen()
    wire.connect()
    wire.settle()
    wire.destroy(listener, PASSIVE)
    wire.settle()
    assert wire.last(ACTIVE, "REJECTED").status == RejectReason.CONSUMER_DEFINED
    assert wire.open_ids(PASSIVE) == {}
    wire.listen()


# --- Wrong calls ---------------------------------------------------------------------------------


def test_calls_need_their_state(wire):
    asking = Wire()
    with refused(errno.EINVAL):  # the peer is not known
        qp_attributes(asking.sides[ACTIVE].connection(asking.connect()))
    active, passive = wire.connected()
    ours = wire.sides[ACTIVE]
    for call in (
        lambda: wire.accept(passive),
        lambda: wire.establish(active),
        lambda: wire.reject(passive),
        lambda: ours.connect(active, ConnParams(), 0),
        lambda: ours.listen(active, TCP, PORT),
        lambda: wire.disconnect(12345),
        lambda: ours.resolve_route(12345),
        lambda: wire.accept(12345),
        lambda: ours.connect(ours.create(), ConnParams(), 0),
    ):
        with refused(errno.EINVAL):
            call()
    assert ours.destroy(12345, 0) == []
    with refused(errno.ENODEV):
        ours.resolve_addr(ours.create(), Target(MALLORY, 1, ADDRESSES[1], PORT, TCP))


def test_an_address_of_another_ip_version_is_an_error(wire):
    comm_id = wire.sides[ACTIVE].create()
    target = Target(ADDRESSES[ACTIVE], 1, IPv6Address("fd00::1"), PORT, TCP)
    wire.take(ACTIVE, wire.sides[ACTIVE].resolve_addr(comm_id, target))
    assert wire.last(ACTIVE, "ADDR_ERROR").status == -errno.EAFNOSUPPORT
    with refused(errno.EINVAL):
        wire.sides[ACTIVE].resolve_route(comm_id)


# --- Service id resolution -----------------------------------------------------------------------


def asked(wire):
    """(listener, the request at the passive side)."""
    listener = wire.listen(space=UDP)
    wire.connect(space=UDP, private_data=b"who?")
    wire.settle()
    return listener, wire.last(PASSIVE, "CONNECT_REQUEST")


def test_a_datagram_queue_pair_is_found(wire):
    _, request = asked(wire)
    assert request.ud.private_data == b"who?".ljust(180, b"\0")
    wire.deliver(PASSIVE, wire.sent[0].octets)
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]  # asked of the user once
    wire.accept(request.id, qkey=0x01234567, private_data=b"me")
    wire.deliver(ACTIVE, wire.sent[-1].octets, MALLORY)
    assert wire.names(ACTIVE)[-1] == "ROUTE_RESOLVED"  # a stranger is not heard
    wire.settle()
    wire.deliver(ACTIVE, wire.sent[-1].octets)
    assert wire.names(ACTIVE).count("ESTABLISHED") == 1
    found = wire.last(ACTIVE, "ESTABLISHED").ud
    assert (found.qp_num, found.qkey) == (QPNS[PASSIVE], 0x01234567)
    assert found.gid == gid_of(ADDRESSES[PASSIVE])
    assert found.private_data == b"me".ljust(136, b"\0")
    assert wire.kinds() == [("active", "SIDR_REQ"), ("passive", "SIDR_REP")]
    assert [side.next_timeout_ns for side in wire.sides] == [None, None]


@pytest.mark.parametrize("how", ["reject", "destroy", "destroy listener", "another service"])
def test_a_datagram_service_is_refused(wire, how):
    if how == "another service":
        wire.listen(space=TCP)
        wire.connect(space=UDP)
    else:
        listener, request = asked(wire)
        if how == "reject":
            wire.reject(request.id, private_data=b"no")
        else:
            wire.destroy(request.id if how == "destroy" else listener, PASSIVE)
    wire.settle()
    why = SidrStatus.UNSUPPORTED if how == "another service" else SidrStatus.REJECT
    assert wire.last(ACTIVE, "UNREACHABLE").status == why


# --- Peers that say things twice, or lost their memory -------------------------------------------


def test_a_repeated_request_is_answered_by_a_delay(wire):
    active, passive = requested(wire)
    for _ in range(2):
        wire.deliver(PASSIVE, wire.sent[0].octets)
    wire.settle()
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]
    assert [kind for _, kind in wire.kinds()] == ["REQ", "MRA", "MRA"]
    assert state(wire, active, ACTIVE) is CmState.MRA_REQ_RCVD
    patience_ns = time_ns(TIMING.mra_timeout)
    assert wire.sides[ACTIVE].next_timeout_ns - wire.now_ns > patience_ns - WIRE_NS
    wire.accept(passive)
    for _ in range(1000):
        wire.deliver(PASSIVE, wire.sent[0].octets)
    assert len(wire.sides[PASSIVE]._timers) == 1
    wire.settle()
    assert wire.names(ACTIVE)[-1] == "CONNECT_RESPONSE"


def test_repeated_messages_are_answered_and_say_nothing_new(wire):
    active, passive = requested(wire)
    wire.accept(passive)
    wire.settle()
    rep = wire.sent[1].octets
    wire.deliver(ACTIVE, rep)
    wire.settle()
    assert wire.kinds()[-1] == ("active", "MRA")
    wire.establish(active, private_data=b"yes")
    rtu = wire.sent[-1].octets
    wire.settle()
    wire.deliver(ACTIVE, rep)
    assert wire.sent[-1].octets == rtu
    wire.settle()
    wire.disconnect(active)
    dreq = wire.sent[-1].octets
    wire.settle()
    wire.deliver(PASSIVE, dreq)
    assert wire.sent[-1].octets == dreq  # our user has not agreed yet
    wire.disconnect(passive, PASSIVE)
    wire.deliver(PASSIVE, dreq)
    assert wire.sent[-1].octets == wire.sent[-2].octets
    wire.settle()
    assert wire.names(ACTIVE).count("CONNECT_RESPONSE") == 1
    assert wire.names(PASSIVE).count("ESTABLISHED") == 1
    for side in (ACTIVE, PASSIVE):
        assert wire.names(side).count("DISCONNECTED") == 1


def test_delays_have_a_bound_and_concern_what_is_open(wire):
    active = wire.connect()
    wire.flight.clear()
    wire.deliver(ACTIVE, Mad.of(0, Mra(5, active, 0, 31)).build())
    assert wire.sides[ACTIVE].next_timeout_ns < 71e9
    other = Wire()
    active, passive = other.connected()
    for answered in (0, 2):
        other.deliver(ACTIVE, Mad.of(0, Mra(passive, active, answered, 24)).build())
    assert other.sides[ACTIVE].next_timeout_ns is None


def test_a_peer_that_lost_its_memory_ends_the_old_connection(wire):
    _, passive = wire.connected()
    wire.sides[ACTIVE] = Wire(seed=9).sides[ACTIVE]
    again = wire.connect()
    wire.settle()
    assert wire.last(ACTIVE, "REJECTED").id == again
    assert wire.last(ACTIVE, "REJECTED").status == RejectReason.STALE_CONN
    assert ("passive", "DREQ") in wire.kinds()
    assert state(wire, passive, PASSIVE) is CmState.TIMEWAIT
    wire.connect()
    wire.settle()
    assert wire.names(PASSIVE)[-1] == "CONNECT_REQUEST"


def test_replies_with_numbers_in_use_are_not_taken(wire):
    """A comm id in use is not heard; a queue pair in use is stale."""
    active, passive = wire.connected()
    second = wire.connect()
    wire.flight.clear()
    guid = next(iter(wire.sides[PASSIVE].ports.values())).ca_guid
    rep = dataclasses.replace(Rep(passive, second, local_qpn=0x77), local_ca_guid=guid)
    wire.deliver(ACTIVE, Mad.of(0, rep).build())
    assert wire.sides[ACTIVE].dropped["REP with a comm id in use"] == 1
    rep = dataclasses.replace(rep, local_comm_id=4711, local_qpn=QPNS[PASSIVE])
    wire.deliver(ACTIVE, Mad.of(0, rep).build())
    rej = message(wire, "REJ")
    assert (rej.reason, rej.answered, rej.local_comm_id) == (RejectReason.STALE_CONN, 1, second)
    assert state(wire, active, ACTIVE) is CmState.DREQ_SENT
    assert state(wire, second, ACTIVE) is CmState.REQ_SENT


# --- Strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("source", [ADDRESSES[ACTIVE], MALLORY], ids=["unknown ids", "stranger"])
def test_what_is_about_no_connection_is_dropped_with_a_reason(wire, number, source):
    active, passive = wire.connected()
    if source is not MALLORY:
        active, passive = 1, 2
    mad = Mad.of(0, strangers(active, passive)[number])
    wire.deliver(PASSIVE, mad.build(), source)
    assert wire.sides[PASSIVE].dropped.total() == 1
    assert len(wire.sent) == 3


def test_a_stranger_cannot_end_a_connection(wire):
    active, passive = wire.connected()
    dreq = Mad.of(0, Dreq(active, passive, QPNS[PASSIVE])).build()
    outputs = wire.sides[PASSIVE].handle_mad(dreq, way(PASSIVE, MALLORY), 0)
    answer = Mad.parse(outputs[0].mad).message  # lets one get on whom nobody here remembers
    assert isinstance(answer, Drep)
    assert (answer.local_comm_id, answer.remote_comm_id) == (passive, active)
    wire.deliver(PASSIVE, Mad.of(9, Dreq(active, passive, 0x999)).build())  # another queue pair
    assert state(wire, passive, PASSIVE) is CmState.ESTABLISHED


def test_alternate_paths_are_refused(wire):
    active, passive = wire.connected()
    for remote, status in ((passive, 2), (passive + 1, 1)):
        wire.deliver(PASSIVE, Mad.of(3, Lap(active, remote)).build())
        assert message(wire, "APR").ap_status == status


@given(octets=st.binary(max_size=300))
def test_any_octets_at_all_are_dropped(octets):
    wire = Wire()
    wire.deliver(PASSIVE, octets)
    assert wire.sides[PASSIVE].dropped == {"malformed": 1}


def variations(stream, wire, active, passive):
    """MADs that a peer could say, some of them mutated, as from the peer itself."""
    sent = [each.octets for each in wire.sent]
    messages = [
        *sent,
        *(Mad.of(1, each).build() for each in strangers(active, passive)),
        Mad.of(1, Dreq(active, passive, QPNS[PASSIVE])).build(),
        Mad.of(1, Mra(active, passive, 0, 31)).build(),
        forged_req(local_comm_id=stream.getrandbits(3), local_qpn=stream.getrandbits(3)),
    ]
    octets = bytearray(stream.choice(messages))
    for _ in range(stream.choice([0, 0, 1, 8])):
        octets[stream.randrange(len(octets))] = stream.getrandbits(8)
    return bytes(octets)


def test_a_hostile_peer_makes_no_memory_grow(wire):
    stream = random.Random(1)
    active, passive = requested(wire, backlog=8)
    wire.accept(passive)
    wire.settle()
    manager = wire.sides[PASSIVE]
    for _ in range(2000):
        octets = variations(stream, wire, active, passive)
        outputs = manager.handle_mad(octets, way(PASSIVE), wire.now_ns)
        assert len(outputs) <= 2
        wire.now_ns += stream.choice([0, 10**6, 10**9])
        manager.handle_timeout(wire.now_ns)
    assert len(manager._open) <= 2 + 8
    assert len(manager._peers) <= 2 * (2 + 8)
    assert len(manager._asked) <= 8
    assert len(manager._timers) <= 200
    assert len(manager.dropped) < 20
