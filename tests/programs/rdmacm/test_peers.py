# SPDX-License-Identifier: GPL-2.0-or-later
"""Peers that say things twice, lost their memory, or are none."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm.connection import CmState
from softroce_lab.programs.rdmacm.messages import MAD_BYTES, Dreq, Lap, Mad, Mra, RejectReason, Rep
from softroce_lab.programs.rdmacm.service import gid_of
from softroce_lab.programs.rdmacm.settings import time_ns
from tests.programs.rdmacm.cm_rig import (
    ACTIVE,
    ADDRESSES,
    MALLORY,
    PASSIVE,
    QPNS,
    TIMING,
    WIRE_NS,
    Wire,
    forged_req,
    message,
    state,
    strangers,
)

# Duplicates, delays, stale peers


def test_a_repeated_request_is_answered_by_a_delay(wire):
    wire.listen()
    active = wire.connect()
    wire.settle()
    passive = wire.last(PASSIVE, "CONNECT_REQUEST").id
    req = wire.sent[0].octets
    wire.deliver(PASSIVE, req)
    wire.deliver(PASSIVE, req)
    wire.settle()
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]
    assert [kind for _, kind in wire.kinds()] == ["REQ", "MRA", "MRA"]
    assert state(wire, active, ACTIVE) is CmState.MRA_REQ_RCVD
    patience_ns = time_ns(TIMING.mra_timeout)
    assert wire.sides[ACTIVE].next_timeout_ns - wire.now_ns > patience_ns - WIRE_NS
    wire.accept(passive)
    wire.settle()
    assert wire.names(ACTIVE)[-1] == "CONNECT_RESPONSE"


def test_a_repeated_reply_is_answered_by_a_delay_then_by_an_rtu(wire):
    wire.listen()
    active = wire.connect()
    wire.settle()
    wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id)
    wire.settle()
    rep = wire.sent[1].octets
    wire.deliver(ACTIVE, rep)
    wire.settle()
    assert wire.kinds()[-1] == ("active", "MRA")
    wire.establish(active, private_data=b"yes")
    wire.settle()
    first = wire.sent[-1].octets
    wire.deliver(ACTIVE, rep)
    assert wire.sent[-1].octets == first
    assert wire.names(ACTIVE).count("CONNECT_RESPONSE") == 1


def test_repeated_rtu_and_drep_say_nothing_new(wire):
    active, passive = wire.connected()
    wire.deliver(PASSIVE, wire.sent[2].octets)
    wire.disconnect(active)
    wire.settle()
    wire.disconnect(passive, PASSIVE)
    wire.settle()
    wire.deliver(ACTIVE, wire.sent[4].octets)
    assert wire.names(PASSIVE).count("ESTABLISHED") == 1
    assert wire.names(ACTIVE).count("DISCONNECTED") == 1


def test_a_repeated_dreq_is_answered_in_time_wait(wire):
    active, passive = wire.connected()
    wire.disconnect(active)
    wire.settle()
    dreq = wire.sent[3].octets
    wire.deliver(PASSIVE, dreq)
    assert len(wire.sent) == 4  # our user has not agreed yet
    wire.disconnect(passive, PASSIVE)
    wire.deliver(PASSIVE, dreq)
    assert wire.sent[4].octets == wire.sent[5].octets
    assert wire.names(PASSIVE).count("DISCONNECTED") == 1


def test_a_delay_that_is_about_nothing_open_changes_nothing(wire):
    active, passive = wire.connected()
    wire.deliver(ACTIVE, Mad.of(0, Mra(passive, active, 0, 24)).build())
    wire.deliver(ACTIVE, Mad.of(0, Mra(passive, active, 2, 24)).build())
    assert wire.sides[ACTIVE].next_timeout_ns is None


def test_a_delay_has_a_bound(wire):
    active = wire.connect()
    wire.flight.clear()
    wire.deliver(ACTIVE, Mad.of(0, Mra(5, active, 0, 31)).build())
    assert wire.sides[ACTIVE].next_timeout_ns < 71e9


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


def test_a_reply_from_a_stale_queue_pair_is_refused(wire):
    active, passive = wire.connected()
    second = wire.connect()
    wire.flight.clear()
    guid = wire.sides[PASSIVE].port.ca_guid
    rep = Rep(local_comm_id=4711, remote_comm_id=second, local_qpn=QPNS[PASSIVE])
    rep = dataclasses.replace(rep, local_ca_guid=guid)
    wire.deliver(ACTIVE, Mad.of(0, rep).build())
    rej = message(wire, "REJ")
    assert (rej.reason, rej.answered, rej.local_comm_id) == (RejectReason.STALE_CONN, 1, second)
    assert state(wire, active, ACTIVE) is CmState.DREQ_SENT
    assert state(wire, second, ACTIVE) is CmState.REQ_SENT
    assert passive


def test_a_reply_with_a_comm_id_in_use_is_not_heard(wire):
    _, passive = wire.connected()
    second = wire.connect()
    wire.flight.clear()
    guid = wire.sides[PASSIVE].port.ca_guid
    rep = dataclasses.replace(Rep(passive, second, local_qpn=0x77), local_ca_guid=guid)
    wire.deliver(ACTIVE, Mad.of(0, rep).build())
    assert wire.sides[ACTIVE].dropped["REP with a comm id in use"] == 1
    assert state(wire, second, ACTIVE) is CmState.REQ_SENT


# Strangers


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
    outputs = wire.sides[PASSIVE].handle_mad(
        Mad.of(0, Dreq(active, passive, QPNS[PASSIVE])).build(), gid_of(MALLORY), 0
    )
    assert outputs[0].gid == gid_of(MALLORY)
    assert state(wire, passive, PASSIVE) is CmState.ESTABLISHED


def test_alternate_paths_are_refused(wire):
    active, passive = wire.connected()
    wire.deliver(PASSIVE, Mad.of(3, Lap(active, passive)).build())
    assert message(wire, "APR").ap_status == 2
    wire.deliver(PASSIVE, Mad.of(3, Lap(active, passive + 1)).build())
    assert message(wire, "APR").ap_status == 1


@given(octets=st.binary(max_size=300))
def test_any_octets_at_all_are_dropped(octets):
    wire = Wire()
    wire.deliver(PASSIVE, octets)
    assert wire.sides[PASSIVE].dropped == {"malformed": 1}


@given(kind=st.integers(0x10, 0x1A), body=st.binary(min_size=232, max_size=232), data=st.data())
def test_any_message_at_all_leaves_a_connection_alone_and_no_memory_behind(kind, body, data):
    wire = Wire()
    _, passive = wire.connected()
    header = Mad.parse(wire.sent[0].octets).header
    head = dataclasses.replace(header, attribute_id=kind).build()
    mutated = bytearray(head + body)
    if data.draw(st.booleans()):  # aim at the connection
        mutated[28:32] = passive.to_bytes(4)
    assert len(mutated) == MAD_BYTES
    held = len(wire.open_ids(PASSIVE))
    outputs = wire.sides[PASSIVE].handle_mad(bytes(mutated), gid_of(MALLORY), 0)
    assert len(outputs) <= 1
    assert all(output.gid == gid_of(MALLORY) for output in outputs)
    assert len(wire.open_ids(PASSIVE)) == held
    assert state(wire, passive, PASSIVE) is CmState.ESTABLISHED


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


@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_peer_makes_no_memory_grow(seed):
    stream = random.Random(seed)
    wire = Wire(seed)
    wire.listen(backlog=8)
    active = wire.connect()
    wire.settle()
    passive = wire.last(PASSIVE, "CONNECT_REQUEST").id
    wire.accept(passive)
    wire.settle()
    manager = wire.sides[PASSIVE]
    for _ in range(5000):
        octets = variations(stream, wire, active, passive)
        outputs = manager.handle_mad(octets, gid_of(ADDRESSES[ACTIVE]), wire.now_ns)
        assert len(outputs) <= 2
        wire.now_ns += stream.choice([0, 10**6, 10**9])
        manager.handle_timeout(wire.now_ns)
    assert len(manager._open) <= 2 + 8
    assert len(manager._peers) <= 2 * (2 + 8)
    assert len(manager._asked) <= 8
    assert len(manager._timers) <= 200
    assert len(manager.dropped) < 20


def test_repeated_mads_leave_one_timer(wire):
    wire.listen()
    wire.connect()
    wire.settle()
    wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id)
    for _ in range(1000):
        wire.deliver(PASSIVE, wire.sent[0].octets)
    assert len(wire.sides[PASSIVE]._timers) == 1
