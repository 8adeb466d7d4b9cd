# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of programs: two of them, whose MADs the test carries."""

import errno
import random
import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm import program_service as service
from softroce_lab.programs.rdmacm.connection import ConnParams, rdma_cm_event_type
from softroce_lab.programs.rdmacm.program_service import KINDS, RELISTEN_NS, VERBS, ProgramService

UDP_QKEY = 0x01234567
GIDS = IPv6Address("::ffff:10.0.0.1"), IPv6Address("::ffff:10.0.0.2")
ANY = IPv6Address(0)
TCP, UDP, PORT = 0x0106, 0x0111, 7471
ACTIVE_QPN, PASSIVE_QPN = 0x11, 0x22
SECOND_NS = 1_000_000_000
LAYOUTS = {"mad": service.MAD, "reply": service.REPLY, "event": service.EVENT}
KIND_NAMES = {value: name for name, value in KINDS.items()}


class Program:
    """What native/verbs/rdmacm does, without the RNIC."""

    def __init__(self, gid, seed):
        self.gid = gid
        self.service = ProgramService(random.Random(seed))
        self.mads, self.events, self.replies = [], [], []
        hello = service.HELLO.pack(
            kind=KINDS["hello"], gids=1, guid=seed, mtu=4, ack_delay=15, gid=gid.packed
        )
        assert self.service.handle(hello, 0) == []

    def take(self, messages):
        taken = {"mad": self.mads, "event": self.events, "reply": self.replies}
        for message in messages:
            kind = KIND_NAMES[struct.unpack_from("=I", message)[0]]
            values = LAYOUTS[kind].unpack(message)[1:]
            if kind == "event":
                values = (*values[:-1], *service.PARAMETERS.unpack(values[-1]))
            taken[kind].append(values)

    def call(self, verb, number=0, now_ns=0, **given):
        values = {"space": TCP, "source_port": 0, "port": PORT, "source": ANY, "destination": ANY,
                  "qpn": 0, "data": b"", "qkey": 0} | given  # fmt: skip
        message = service.CALL.pack(
            kind=KINDS["call"], verb=VERBS[verb], id=number, port_space=values["space"], backlog=8,
            source_port=values["source_port"], port=values["port"],
            ack_timeout=service.NO_ACK_TIMEOUT,
            source=values["source"].packed, destination=values["destination"].packed,
            parameters=service.pack_parameters(
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
        message = service.pack_mad(sender.gid, octets)
        receiver.take(receiver.service.handle(message, now_ns))
    return len(mads)


@pytest.fixture
def both():
    return Program(GIDS[0], 1), Program(GIDS[1], 2)


def resolved(active, space=TCP):
    number = active.call("create")[1]
    error = active.call("resolve_addr", number, source=GIDS[0], destination=GIDS[1], space=space,
                        source_port=40000)[0]  # fmt: skip
    assert error == 0
    assert active.next_event() == ("ADDR_RESOLVED", number, 0)
    assert active.call("resolve_route", number)[0] == 0
    assert active.next_event() == ("ROUTE_RESOLVED", number, 0)
    return number


def listening(passive, space=TCP):
    number = passive.call("create")[1]
    assert passive.call("listen", number, space=space)[0] == 0
    return number


def connected(active, passive):
    """(number at the active side, number at the passive one)."""
    listener, number = listening(passive), resolved(active)
    assert active.call("connect", number, qpn=ACTIVE_QPN, data=b"ask")[0] == 0
    carry(active, passive)
    event = passive.events[0]
    assert (event[2], event[5]) == (listener, 40000)
    assert [IPv6Address(octets) for octets in event[7:9]] == [GIDS[1], GIDS[0]]
    assert event[-1].startswith(b"ask")
    name, request, _ = passive.next_event()
    assert name == "CONNECT_REQUEST"
    assert passive.call("accept", request, qpn=PASSIVE_QPN)[0] == 0
    carry(passive, active)
    assert active.next_event() == ("CONNECT_RESPONSE", number, 0)
    assert active.call("establish", number)[0] == 0
    carry(active, passive)
    assert passive.next_event() == ("ESTABLISHED", request, 0)
    return number, request


def test_the_attributes_are_those_of_the_peer(both):
    active, passive = both
    number, request = connected(active, passive)
    for program, own, gid, qpn in (
        (active, number, GIDS[1], PASSIVE_QPN),
        (passive, request, GIDS[0], ACTIVE_QPN),
    ):
        reply = program.call("attributes", own)
        assert reply[:3] == (0, own, 1)
        assert IPv6Address(reply[3]) == gid
        assert reply[8] == qpn


def test_a_connection_ends_at_both_sides(both):
    active, passive = both
    number, request = connected(active, passive)
    assert active.call("disconnect", number)[0] == 0
    carry(active, passive)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call("disconnect", request)[0] == 0
    carry(passive, active)
    assert active.next_event() == ("DISCONNECTED", number, 0)


def test_the_end_is_repeated_after_the_program_destroyed_the_id(both):
    active, passive = both
    number, request = connected(active, passive)
    assert active.call("destroy", number)[0] == 0
    assert len(active.mads) == 1
    active.mads.clear()  # lost
    assert active.call("flush") is None
    active.take(active.service.handle_timeout(active.service.next_timeout_ns))
    carry(active, passive)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call("disconnect", request)[0] == 0
    carry(passive, active)
    assert active.events == []
    assert active.replies.pop()[0] == 0  # of the flush
    assert active.call("attributes", number)[0] == 0  # in time-wait it answers repeated DREQs
    active.take(active.service.handle_timeout(active.service.next_timeout_ns))
    assert active.call("attributes", number)[0] == errno.EINVAL
    assert not active.service._orphans


def test_a_flush_without_connections_is_answered_at_once(both):
    assert both[0].call("flush")[0] == 0


def test_a_flush_ends_what_the_program_left_open(both):
    active, passive = both
    number, _ = connected(active, passive)
    assert passive.call("flush") is None
    carry(passive, active)
    assert active.next_event() == ("DISCONNECTED", number, 0)
    assert active.call("disconnect", number)[0] == 0
    carry(active, passive)
    assert passive.replies.pop()[0] == 0


@pytest.mark.parametrize(("listens_elsewhere", "after_ns"), [(True, 0), (False, RELISTEN_NS)])
def test_nobody_listens(both, listens_elsewhere, after_ns):
    active, passive = both
    if listens_elsewhere:
        listening(passive, UDP)
    number = resolved(active)
    active.call("connect", number, qpn=ACTIVE_QPN)
    carry(active, passive, after_ns)
    carry(passive, active)
    assert active.next_event() == ("REJECTED", number, 8)


@pytest.mark.parametrize("had_listened", [False, True])
def test_a_request_before_a_listener_is_repeated(both, had_listened):
    active, passive = both
    if had_listened:
        passive.call("destroy", listening(passive))
    number = resolved(active)
    active.call("connect", number, qpn=ACTIVE_QPN)
    carry(active, passive)
    assert passive.mads == []
    listening(passive)
    now_ns = active.service.next_timeout_ns
    active.take(active.service.handle_timeout(now_ns))
    carry(active, passive, now_ns)
    assert passive.next_event()[0] == "CONNECT_REQUEST"


def test_a_datagram_queue_pair_is_found(both):
    active, passive = both
    listening(passive, UDP)
    number = resolved(active, UDP)
    assert active.call("connect", number)[0] == 0
    carry(active, passive)
    name, request, _ = passive.next_event()
    assert name == "CONNECT_REQUEST"
    assert passive.call("accept", request, qpn=PASSIVE_QPN, qkey=UDP_QKEY)[0] == 0
    carry(passive, active)
    event = active.events[0]
    assert (event[4], event[-3], event[-2]) == (1, PASSIVE_QPN, UDP_QKEY)
    assert active.next_event() == ("ESTABLISHED", number, 0)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("create", "flush")])
def test_an_id_that_nobody_made(both, verb):
    error = both[0].call(verb, 12345, source=GIDS[0], destination=GIDS[1])[0]
    assert error in (0, errno.EINVAL)
    assert error == 0 or verb != "destroy"


def test_what_is_no_message_is_refused():
    program = ProgramService(random.Random(1))
    with pytest.raises(ValueError, match="before the hello"):
        program.handle(service.pack_mad(GIDS[0], bytes(256)), 0)
    assert program.next_timeout_ns is None
    assert program.handle_timeout(0) == []
    for octets, why in (
        (b"", "0 bytes of kind 0"),
        (struct.pack("=I", 99) + bytes(400), "404 bytes of kind 99"),
        (service.MAD.pack(kind=KINDS["mad"]) + b"x", "are no message"),
        (service.HELLO.pack(kind=KINDS["hello"], gids=5), "5 GIDs"),
        (service.CALL.pack(kind=KINDS["call"], verb=99), "99 is no verb"),
    ):
        with pytest.raises(ValueError, match=why):
            program.handle(octets, 0)


@given(st.binary(min_size=332, max_size=332))
def test_any_call_has_a_reply(octets):
    program = Program(GIDS[0], 3)
    message = struct.pack("=II", KINDS["call"], octets[0] % 12 + 1) + octets[4:]
    program.take(program.service.handle(message.ljust(336, b"\0"), 0))
    assert len(program.replies) == 1


def test_mads_alone_may_be_lost():
    is_repeated = ProgramService(random.Random(1)).is_repeated
    assert is_repeated(service.pack_mad(GIDS[0], bytes(256)))
    assert not is_repeated(service.reply(0))
    assert not is_repeated(service.EVENT.pack(kind=KINDS["event"]))
