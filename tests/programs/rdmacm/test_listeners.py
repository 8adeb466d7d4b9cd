# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom the connection manager listens to, and whom it refuses."""

import dataclasses
import errno

import pytest

from softroce_lab.programs.rdmacm.connection import CmState
from softroce_lab.programs.rdmacm.listeners import MOST_PENDING
from softroce_lab.programs.rdmacm.messages import Mad, Path, Rej, RejectReason
from softroce_lab.programs.rdmacm.service import IpHeader
from tests.programs.rdmacm.cm_rig import (
    ACTIVE,
    ADDRESSES,
    MALLORY,
    PASSIVE,
    UDP,
    Wire,
    forged_req,
    message,
    refused,
    state,
)

# Refusals


def test_nobody_listens(wire):
    active = wire.connect()
    wire.settle()
    assert wire.last(ACTIVE, "REJECTED").status == RejectReason.INVALID_SERVICE_ID
    assert state(wire, active, ACTIVE) is CmState.IDLE


def test_a_user_refuses_with_private_data(wire):
    wire.listen()
    active = wire.connect()
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    wire.reject(request.id, private_data=b"no")
    wire.settle()
    rejected = wire.last(ACTIVE, "REJECTED")
    assert rejected.status == RejectReason.CONSUMER_DEFINED
    assert rejected.conn.private_data == b"no".ljust(148, b"\0")
    assert state(wire, active, ACTIVE) is state(wire, request.id, PASSIVE) is CmState.IDLE
    assert message(wire, "REJ").local_comm_id == 0


def test_an_active_user_refuses_the_reply(wire):
    wire.listen()
    active = wire.connect()
    wire.settle()
    wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id)
    wire.settle()
    wire.reject(active, ACTIVE)
    wire.settle()
    assert wire.last(PASSIVE, "REJECTED").status == RejectReason.CONSUMER_DEFINED
    assert message(wire, "REJ").answered == 1


def test_a_passive_user_takes_its_reply_back():
    wire = Wire(lost=lambda carried: carried.kind == "REP")
    wire.listen()
    active = wire.connect()
    wire.settle()
    passive = wire.last(PASSIVE, "CONNECT_REQUEST").id
    wire.accept(passive)
    wire.reject(passive)
    assert state(wire, passive, PASSIVE) is CmState.TIMEWAIT
    # The active side cannot tell whose it is: it knows no comm id of the peer.
    wire.settle()
    assert state(wire, active, ACTIVE) is CmState.REQ_SENT


@pytest.mark.parametrize("mtu", [4, 5])
def test_a_path_mtu_above_the_ports_is_refused(wire, mtu):
    wire.listen()
    wire.sides[ACTIVE].port = dataclasses.replace(wire.sides[ACTIVE].port, active_mtu=mtu)
    wire.connect()
    wire.settle()
    assert wire.last(ACTIVE, "REJECTED").status == RejectReason.INVALID_MTU
    assert message(wire, "REJ").info[0] >> 4 == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"private_data": bytes(92)}, RejectReason.CONSUMER_DEFINED),
        ({"service_id": 1}, RejectReason.INVALID_SERVICE_ID),
        ({"transport_service": 3}, RejectReason.INVALID_TRANSPORT_TYPE),
        ({"path_mtu": 0}, RejectReason.INVALID_MTU),
        ({"path_mtu": 15}, RejectReason.INVALID_MTU),
        ({"primary": Path()}, RejectReason.INVALID_GID),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(wire, changes, reason):
    wire.listen()
    wire.deliver(PASSIVE, forged_req(**changes))
    assert message(wire, "REJ").reason == reason
    assert wire.events[PASSIVE] == []
    assert len(wire.open_ids(PASSIVE)) == 1


# Listeners


def test_a_listener_at_one_address_takes_no_other(wire):
    wire.listen(address=ADDRESSES[PASSIVE])
    header = IpHeader(4000, ADDRESSES[ACTIVE], MALLORY)
    wire.deliver(PASSIVE, forged_req(private_data=header.build()))
    assert message(wire, "REJ").reason == RejectReason.INVALID_SERVICE_ID
    wire.deliver(PASSIVE, forged_req())
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]


def test_a_port_has_one_listener(wire):
    wire.listen()
    with refused(errno.EADDRINUSE):
        wire.listen()
    wire.listen(space=UDP)


def test_nobody_listens_at_anothers_address(wire):
    with refused(errno.EADDRNOTAVAIL):
        wire.listen(address=MALLORY)


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
