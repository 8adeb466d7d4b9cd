# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of programs: two of them, whose MADs the test carries."""

import contextlib
import errno
import random
import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm import program_wire
from softroce_lab.programs.rdmacm.events import ConnParams, rdma_cm_event_type
from softroce_lab.programs.rdmacm.program_service import ProgramService
from softroce_lab.programs.rdmacm.program_wire import Kind, Verb
from softroce_lab.programs.rdmacm.sidr import UDP_QKEY
from softroce_lab.structs import enumerators

GIDS = IPv6Address("::ffff:10.0.0.1"), IPv6Address("::ffff:10.0.0.2")
ANY = IPv6Address(0)
TCP, UDP, PORT = 0x0106, 0x0111, 7471
ACTIVE_QPN, PASSIVE_QPN = 0x11, 0x22
SECOND_NS = 1_000_000_000
LAYOUTS = {
    Kind.MAD: program_wire._MAD,
    Kind.REPLY: program_wire._REPLY,
    Kind.EVENT: program_wire._EVENT,
}


class Program:
    """What native/verbs/rdmacm does, without the RNIC."""

    def __init__(self, gid, seed):
        self.gid = gid
        self.service = ProgramService(random.Random(seed))
        self.mads, self.events, self.replies = [], [], []
        hello = program_wire._HELLO.pack(
            kind=Kind.HELLO, gids=1, guid=seed, mtu=4, ack_delay=15, gid=gid.packed
        )
        assert self.service.handle(hello, 0) == []

    def take(self, messages):
        for message in messages:
            kind = struct.unpack_from("=I", message)[0]
            values = LAYOUTS[kind].unpack(message)[1:]
            if kind == Kind.EVENT:
                values = (*values[:-1], *program_wire._PARAMETERS.unpack(values[-1]))
            taken = {Kind.MAD: self.mads, Kind.EVENT: self.events, Kind.REPLY: self.replies}
            taken[kind].append(values)

    def call(self, verb, number=0, now_ns=0, **given):
        values = {"space": TCP, "source_port": 0, "port": PORT, "source": ANY, "destination": ANY,
                  "qpn": 0, "data": b"", "qkey": 0} | given  # fmt: skip
        message = program_wire._CALL.pack(
            kind=Kind.CALL, verb=verb, id=number, port_space=values["space"], backlog=8,
            source_port=values["source_port"], port=values["port"],
            ack_timeout=program_wire.NO_ACK_TIMEOUT,
            source=values["source"].packed, destination=values["destination"].packed,
            parameters=program_wire._parameters(
                ConnParams(values["data"], qp_num=values["qpn"]), values["qkey"]
            ),
        )  # fmt: skip
        self.take(self.service.handle(message, now_ns))
        return self.replies.pop() if self.replies else None

    def next_event(self):
        event, number, _, status = self.events.pop(0)[:4]
        return rdma_cm_event_type(event).name.removeprefix("RDMA_CM_EVENT_"), number, status


def carry(sender, receiver, now_ns=0):
    """Deliver all MADs that were sent; returns how many."""
    mads, sender.mads = sender.mads, []
    for gid, octets in mads:
        assert IPv6Address(gid) == receiver.gid
        message = program_wire.mad(sender.gid, octets)
        receiver.take(receiver.service.handle(message, now_ns))
    return len(mads)


@pytest.fixture
def pair():
    return Program(GIDS[0], 1), Program(GIDS[1], 2)


def resolved(active, space=TCP):
    number = active.call(Verb.CREATE)[1]
    error = active.call(Verb.RESOLVE_ADDR, number, source=GIDS[0], destination=GIDS[1], space=space,
                        source_port=40000)[0]  # fmt: skip
    assert error == 0
    assert active.next_event() == ("ADDR_RESOLVED", number, 0)
    assert active.call(Verb.RESOLVE_ROUTE, number)[0] == 0
    assert active.next_event() == ("ROUTE_RESOLVED", number, 0)
    return number


def listening(passive, space=TCP):
    number = passive.call(Verb.CREATE)[1]
    assert passive.call(Verb.LISTEN, number, space=space)[0] == 0
    return number


def connected(active, passive):
    """(number at the active side, number at the passive one)."""
    listener, number = listening(passive), resolved(active)
    assert active.call(Verb.CONNECT, number, qpn=ACTIVE_QPN, data=b"ask")[0] == 0
    carry(active, passive)
    event = passive.events[0]
    assert (event[2], event[5]) == (listener, 40000)
    assert [IPv6Address(octets) for octets in event[7:9]] == [GIDS[1], GIDS[0]]
    assert event[-1].startswith(b"ask")
    name, request, _ = passive.next_event()
    assert name == "CONNECT_REQUEST"
    assert passive.call(Verb.ACCEPT, request, qpn=PASSIVE_QPN)[0] == 0
    carry(passive, active)
    assert active.next_event() == ("CONNECT_RESPONSE", number, 0)
    assert active.call(Verb.ESTABLISH, number)[0] == 0
    carry(active, passive)
    assert passive.next_event() == ("ESTABLISHED", request, 0)
    return number, request


@pytest.mark.parametrize(("ours", "theirs"), [(Kind, "cm::Kind"), (Verb, "cm::Verb")])
def test_kinds_and_verbs_are_those_of_the_library(ours, theirs):
    assert {each.name.lower(): each.value for each in ours} == enumerators(theirs)


def test_the_attributes_are_those_of_the_peer(pair):
    active, passive = pair
    number, request = connected(active, passive)
    for program, own, gid, qpn in (
        (active, number, GIDS[1], PASSIVE_QPN),
        (passive, request, GIDS[0], ACTIVE_QPN),
    ):
        reply = program.call(Verb.ATTRIBUTES, own)
        assert reply[:3] == (0, own, 1)
        assert IPv6Address(reply[3]) == gid
        assert reply[8] == qpn


def test_a_connection_ends_at_both_sides(pair):
    active, passive = pair
    number, request = connected(active, passive)
    assert active.call(Verb.DISCONNECT, number)[0] == 0
    carry(active, passive)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call(Verb.DISCONNECT, request)[0] == 0
    carry(passive, active)
    assert active.next_event() == ("DISCONNECTED", number, 0)


def test_the_end_is_repeated_after_the_program_destroyed_the_id(pair):
    active, passive = pair
    number, request = connected(active, passive)
    assert active.call(Verb.DESTROY, number)[0] == 0
    assert len(active.mads) == 1
    active.mads.clear()  # lost
    assert active.call(Verb.FLUSH) is None
    active.take(active.service.handle_timeout(active.service.next_timeout_ns))
    carry(active, passive)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call(Verb.DISCONNECT, request)[0] == 0
    carry(passive, active)
    assert active.events == []
    assert active.replies.pop()[0] == 0  # of the flush
    assert active.call(Verb.ATTRIBUTES, number)[0] == 0  # in time-wait it answers repeated DREQs
    active.take(active.service.handle_timeout(active.service.next_timeout_ns))
    assert active.call(Verb.ATTRIBUTES, number)[0] == errno.EINVAL


def test_a_flush_without_connections_is_answered_at_once(pair):
    assert pair[0].call(Verb.FLUSH)[0] == 0


def test_nobody_listens(pair):
    active, passive = pair
    number = resolved(active)
    active.call(Verb.CONNECT, number, qpn=ACTIVE_QPN)
    carry(active, passive)
    carry(passive, active)
    assert active.next_event() == ("REJECTED", number, 8)


def test_a_request_between_two_listeners_is_repeated(pair):
    active, passive = pair
    passive.call(Verb.DESTROY, listening(passive))
    number = resolved(active)
    active.call(Verb.CONNECT, number, qpn=ACTIVE_QPN)
    carry(active, passive)
    assert passive.mads == []
    listening(passive)
    now_ns = active.service.next_timeout_ns
    active.take(active.service.handle_timeout(now_ns))
    carry(active, passive, now_ns)
    assert passive.next_event()[0] == "CONNECT_REQUEST"


def test_a_datagram_queue_pair_is_found(pair):
    active, passive = pair
    listening(passive, UDP)
    number = resolved(active, UDP)
    assert active.call(Verb.CONNECT, number)[0] == 0
    carry(active, passive)
    name, request, _ = passive.next_event()
    assert name == "CONNECT_REQUEST"
    assert passive.call(Verb.ACCEPT, request, qpn=PASSIVE_QPN, qkey=UDP_QKEY)[0] == 0
    carry(passive, active)
    event = active.events[0]
    assert (event[4], event[-3], event[-2]) == (1, PASSIVE_QPN, UDP_QKEY)
    assert active.next_event() == ("ESTABLISHED", number, 0)


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb not in (Verb.CREATE, Verb.FLUSH)])
def test_an_id_that_nobody_made(pair, verb):
    error = pair[0].call(verb, 12345, source=GIDS[0], destination=GIDS[1])[0]
    assert error in (0, errno.EINVAL)
    assert error == 0 or verb not in (Verb.DESTROY,)


def test_a_message_before_the_hello():
    service = ProgramService(random.Random(1))
    with pytest.raises(ValueError, match="before the hello"):
        service.handle(program_wire.mad(GIDS[0], bytes(256)), 0)
    assert service.next_timeout_ns is None
    assert service.handle_timeout(0) == []


@given(st.binary(max_size=400), st.sampled_from([*Kind, 0, 99]))
def test_what_is_no_message_is_refused(octets, kind):
    service = Program(GIDS[0], 3).service
    sized = struct.pack("=I", kind) + octets
    with contextlib.suppress(ValueError):
        assert isinstance(service.handle(sized, 0), list)


@given(st.binary(min_size=332, max_size=332))
def test_any_call_has_a_reply(octets):
    program = Program(GIDS[0], 3)
    message = struct.pack("=II", Kind.CALL, octets[0] % 12 + 1) + octets[4:]
    program.take(program.service.handle(message.ljust(336, b"\0"), 0))
    assert len(program.replies) == 1


def test_mads_alone_may_be_lost(pair):
    active, passive = pair
    number = resolved(active)
    listening(passive)
    sent = []
    for program in pair:
        program.take = lambda messages, take=program.take: (sent.extend(messages), take(messages))
    active.call(Verb.CONNECT, number, qpn=ACTIVE_QPN)
    carry(active, passive)
    repeated = {struct.unpack_from("=I", message)[0]: active.service.is_repeated(message)
                for message in sent}  # fmt: skip
    assert repeated == {Kind.MAD: True, Kind.REPLY: False, Kind.EVENT: False}
