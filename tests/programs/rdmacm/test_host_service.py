# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection managers of two hosts and their programs; the test carries MADs."""

import errno
import random
import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm import host_service as service
from softroce_lab.programs.rdmacm.connection import ConnParams, Way, rdma_cm_event_type
from softroce_lab.programs.rdmacm.host_service import (
    KINDS,
    RELISTEN_NS,
    VERBS,
    HostService,
    ToProgram,
)

UDP_QKEY = 0x01234567
GIDS = IPv6Address("::ffff:10.0.0.1"), IPv6Address("::ffff:10.0.0.2")
SECOND_RAIL = IPv6Address("::ffff:10.1.0.2")
ANY = IPv6Address(0)
TCP, UDP, PORT = 0x0106, 0x0111, 7471
ACTIVE_QPN, PASSIVE_QPN = 0x11, 0x22
LAYOUTS = {"reply": service.REPLY, "event": service.EVENT}
KIND_NAMES = {value: name for name, value in KINDS.items()}


class Host:
    """A service, its programs, and the MADs that it has sent."""

    def __init__(self, *gids):
        self.gids = gids
        self.service = HostService(random.Random(int(gids[0])))
        self.programs, self.mads = {}, []
        self.now_ns = 0

    @property
    def program(self):
        """Its first one, started when it is needed."""
        return self.programs.get(0) or self.start()

    def start(self):
        return Program(self)

    def take(self, results):
        for result in results:
            if isinstance(result, ToProgram):
                self.programs[result.program].take(result.message)
            else:
                self.mads.append(result)

    def wake(self):
        self.now_ns = max(self.now_ns, self.service.next_timeout_ns)
        self.take(self.service.handle_timeout(self.now_ns))


class Program:
    """What native/verbs/rdmacm does, without an RNIC."""

    def __init__(self, host):
        self.host, self.number = host, len(host.programs)
        self.events, self.replies = [], []
        host.programs[self.number] = self
        local = [
            service.LOCAL_GID.pack(octets=gid.packed, guid=int(gid) & 0xFFFF, mtu=4, ack_delay=15)
            for gid in host.gids
        ]
        self.send(service.HELLO.pack(kind=KINDS["hello"], gids=len(local), gid=b"".join(local)))

    def send(self, message):
        self.host.take(self.host.service.handle(self.number, message, self.host.now_ns))

    def take(self, message):
        kind = KIND_NAMES[struct.unpack_from("=I", message)[0]]
        values = LAYOUTS[kind].unpack(message)
        (self.events if kind == "event" else self.replies).append(values)

    def call(self, verb, number=0, *, space=TCP, port=PORT, source=ANY, destination=ANY, qpn=0,
             data=b"", qkey=0):  # fmt: skip
        self.send(service.CALL.pack(
            kind=KINDS["call"], verb=VERBS[verb], id=number, port_space=space, backlog=8,
            source_port=40000, port=port, ack_timeout=service.NO_ACK_TIMEOUT,
            source=source.packed, destination=destination.packed,
            parameters=service.pack_parameters(ConnParams(data, qp_num=qpn), qkey),
        ))  # fmt: skip
        return self.replies.pop()

    def next_event(self):
        event = self.events.pop(0)
        name = rdma_cm_event_type(event.event).name.removeprefix("RDMA_CM_EVENT_")
        return name, event.id, event.status

    def end(self):
        self.host.take(self.host.service.leave(self.number, self.host.now_ns))

    # Several calls

    def listening(self, space=TCP, port=PORT, **where):
        number = self.call("create").id
        assert self.call("listen", number, space=space, port=port, **where).error == 0
        return number

    def connecting(self, destination=GIDS[1], space=TCP, port=PORT, **params):
        number = self.call("create").id
        source = self.host.gids[0]
        resolved = self.call("resolve_addr", number, space=space, port=port, source=source,
                             destination=destination)  # fmt: skip
        assert resolved.error == 0
        assert self.next_event() == ("ADDR_RESOLVED", number, 0)
        assert self.call("resolve_route", number).error == 0
        assert self.next_event() == ("ROUTE_RESOLVED", number, 0)
        assert self.call("connect", number, **params).error == 0
        return number

    def accepted(self, qpn=PASSIVE_QPN, **params):
        name, request, _ = self.next_event()
        assert name == "CONNECT_REQUEST"
        assert self.call("accept", request, qpn=qpn, **params).error == 0
        return request

    def established(self, number):
        assert self.next_event() == ("CONNECT_RESPONSE", number, 0)
        assert self.call("establish", number).error == 0


def carry(sender, receiver):
    """Deliver all MADs that were sent; returns how many."""
    mads, sender.mads = sender.mads, []
    for each in mads:
        assert each.way.local in sender.gids
        assert each.way.peer in receiver.gids
        back = Way(each.way.peer, each.way.local)
        receiver.take(receiver.service.handle_mad(each.mad, back, receiver.now_ns))
    return len(mads)


@pytest.fixture
def hosts():
    return Host(GIDS[0]), Host(GIDS[1], SECOND_RAIL)


def connect(active, passive, qpns=(ACTIVE_QPN, PASSIVE_QPN), **where):
    """Programs, of which the second listens: (number at the active one, at the passive one)."""
    number = active.connecting(qpn=qpns[0], data=b"ask", **where)
    carry(active.host, passive.host)
    assert passive.events[0].parameters[16:].startswith(b"ask")
    request = passive.accepted(qpns[1])
    carry(passive.host, active.host)
    active.established(number)
    carry(active.host, passive.host)
    assert passive.next_event() == ("ESTABLISHED", request, 0)
    return number, request


def connected(hosts):
    active, passive = (host.program for host in hosts)
    passive.listening()
    return active, passive, *connect(active, passive)


def test_a_request_says_where_it_came_to_and_from(hosts):
    active, passive = (host.program for host in hosts)
    listener = passive.listening()
    active.connecting(destination=SECOND_RAIL)
    assert hosts[0].mads[0].way == Way(GIDS[0], SECOND_RAIL)
    carry(*hosts)
    (event,) = passive.events
    assert (event.listen_id, event.peer_port) == (listener, 40000)
    assert IPv6Address(event.local_gid) == SECOND_RAIL
    assert IPv6Address(event.peer_gid) == GIDS[0]
    passive.accepted()
    assert hosts[1].mads[0].way == Way(SECOND_RAIL, GIDS[0])


def test_the_attributes_are_those_of_the_peer(hosts):
    active, passive, number, request = connected(hosts)
    for program, own, gid, qpn in (
        (active, number, GIDS[1], PASSIVE_QPN),
        (passive, request, GIDS[0], ACTIVE_QPN),
    ):
        reply = program.call("attributes", own)
        assert (reply.error, reply.id, reply.reliable) == (0, own, 1)
        assert IPv6Address(reply.gid) == gid
        assert reply.dest_qp_num == qpn


def test_a_connection_ends_at_both_sides(hosts):
    active, passive, number, request = connected(hosts)
    assert active.call("disconnect", number).error == 0
    carry(*hosts)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call("disconnect", request).error == 0
    carry(*reversed(hosts))
    assert active.next_event() == ("DISCONNECTED", number, 0)


def is_over(host, program, number):
    return program.call("attributes", number).error == errno.EINVAL and not host.service._orphans


@pytest.mark.parametrize("way", ["destroy", "end"])
def test_the_end_is_repeated_when_the_program_has_the_id_no_more(hosts, way):
    active, passive, number, request = connected(hosts)
    if way == "destroy":
        assert active.call("destroy", number).error == 0
    else:
        active.end()
    assert len(hosts[0].mads) == 1
    hosts[0].mads.clear()  # lost
    assert hosts[0].service.is_disconnecting
    hosts[0].wake()
    carry(*hosts)
    assert passive.next_event() == ("DISCONNECTED", request, 0)
    assert passive.call("disconnect", request).error == 0
    carry(*reversed(hosts))
    assert not hosts[0].service.is_disconnecting
    assert active.events == []
    hosts[0].wake()  # until then it answers repeated DREQs
    assert hosts[0].service.next_timeout_ns is None
    assert not hosts[0].service._orphans


def test_a_peer_that_is_never_heard_again_is_given_up(hosts):
    active, *_ = connected(hosts)
    active.end()
    while hosts[0].service.next_timeout_ns is not None:
        hosts[0].wake()
    assert hosts[0].now_ns < 30e9
    assert not hosts[0].service.is_disconnecting
    assert not hosts[0].service._orphans


def test_both_ends_may_end_at_once(hosts):
    connected(hosts)
    for host in hosts:
        host.program.end()
    while carry(*hosts) + carry(*reversed(hosts)):
        pass
    assert not any(host.service.is_disconnecting for host in hosts)


def test_requests_of_a_program_that_ends_are_withdrawn_or_rejected(hosts):
    active, passive = (host.program for host in hosts)
    passive.listening()
    number = active.connecting()
    carry(*hosts)
    passive.end()
    carry(*reversed(hosts))
    assert active.next_event()[:2] == ("REJECTED", number)
    other = hosts[1].start()
    other.listening()
    active.connecting()
    carry(*hosts)
    request = other.accepted()
    active.end()
    carry(*hosts)
    assert other.next_event()[:2] == ("REJECTED", request)


# --- Several programs of a host ------------------------------------------------------------------


def test_each_program_gets_the_requests_that_it_listens_for(hosts):
    client, first = (host.program for host in hosts)
    second = hosts[1].start()
    first.listening()
    second.listening(port=PORT + 1)
    one = connect(client, first)
    other = connect(client, second, (ACTIVE_QPN + 1, PASSIVE_QPN + 1), port=PORT + 1)
    assert len({one[1], other[1]}) == 2
    assert first.events == second.events == []
    second.end()
    carry(*reversed(hosts))
    assert client.next_event() == ("DISCONNECTED", other[0], 0)
    assert first.call("attributes", one[1]).dest_qp_num == ACTIVE_QPN
    assert client.events == []


def test_two_programs_connect_to_one_and_one_of_them_is_killed(hosts):
    first, server = (host.program for host in hosts)
    second = hosts[0].start()
    server.listening()
    one = connect(first, server)
    other = connect(second, server, (ACTIVE_QPN + 1, PASSIVE_QPN + 1))
    assert one[0] != other[0]
    first.end()
    carry(*hosts)
    assert server.next_event() == ("DISCONNECTED", one[1], 0)
    assert server.call("disconnect", other[1]).error == 0
    carry(*reversed(hosts))
    assert second.next_event() == ("DISCONNECTED", other[0], 0)


def test_programs_of_one_host_connect_to_each_other(hosts):
    host = hosts[1]
    server, client = host.program, host.start()
    server.listening()
    number = client.connecting()
    carry(host, host)
    server.accepted()
    carry(host, host)
    client.established(number)


def test_a_port_belongs_to_one_program(hosts):
    first, second = hosts[1].program, hosts[1].start()
    first.listening()
    number = second.call("create").id
    assert second.call("listen", number).error == errno.EADDRINUSE
    first.end()
    assert second.call("listen", number).error == 0


def test_ports_that_are_chosen_are_free(hosts):
    first, second = hosts[1].program, hosts[1].start()
    taken = set()
    for program in 100 * [first, second]:
        number = program.call("create").id
        port = program.call("bind", number).port
        assert 32768 <= port < 61000
        assert program.call("listen", number, port=port).error == 0
        taken.add(port)
    assert len(taken) == 200


def test_an_id_of_another_program(hosts):
    active, passive, number, _ = connected(hosts)
    stranger = hosts[0].start()
    for verb in set(VERBS) - {"create"}:
        assert stranger.call(verb, number).error == errno.EINVAL
    assert active.call("disconnect", number).error == 0
    assert passive.events == []


# --- Nobody listens ------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [TCP, UDP])
def test_nobody_listens_there(hosts, space):
    active, passive = (host.program for host in hosts)
    passive.listening(port=PORT + 1)
    number = active.connecting(space=space)
    carry(*hosts)
    carry(*reversed(hosts))
    status = 8 if space == TCP else 1
    name = "REJECTED" if space == TCP else "UNREACHABLE"
    assert active.next_event() == (name, number, status)


@pytest.mark.parametrize("who", ["has not listened", "has listened", "has ended"])
def test_a_request_before_a_listener_is_repeated(hosts, who):
    active, passive = (host.program for host in hosts)
    hosts[1].start().listening(port=PORT + 1)  # whoever listens elsewhere has no say
    if who == "has listened":
        passive.call("destroy", passive.listening())
    elif who == "has ended":
        for program in hosts[1].programs.values():
            program.end()
        hosts[1].now_ns = 10 * RELISTEN_NS
    active.connecting()
    carry(*hosts)
    assert hosts[1].mads == []
    late = hosts[1].start()
    late.listening()
    hosts[0].wake()
    carry(*hosts)
    assert late.next_event()[0] == "CONNECT_REQUEST"


def test_a_program_that_never_listens_is_not_awaited_for_ever(hosts):
    active, _ = (host.program for host in hosts)
    hosts[1].now_ns = RELISTEN_NS
    number = active.connecting()
    carry(*hosts)
    carry(*reversed(hosts))
    assert active.next_event() == ("REJECTED", number, 8)


def test_a_datagram_queue_pair_is_found(hosts):
    active, passive = (host.program for host in hosts)
    passive.listening(UDP)
    number = active.connecting(space=UDP)
    carry(*hosts)
    passive.accepted(qkey=UDP_QKEY)
    carry(*reversed(hosts))
    (event,) = active.events
    parameters = service.PARAMETERS.unpack(event.parameters)
    assert (event.datagram, parameters.qp_num, parameters.qkey) == (1, PASSIVE_QPN, UDP_QKEY)
    assert active.next_event() == ("ESTABLISHED", number, 0)


# --- What makes no sense -------------------------------------------------------------------------


def test_what_is_no_message_is_refused():
    fresh = HostService(random.Random(1))
    call = service.CALL.pack(kind=KINDS["call"], verb=VERBS["create"])
    with pytest.raises(ValueError, match="before the hello"):
        fresh.handle(0, call, 0)
    program = Host(GIDS[0]).program
    for octets, why in (
        (b"", "0 bytes of kind 0"),
        (struct.pack("=I", 99) + bytes(400), "404 bytes of kind 99"),
        (call + b"x", "are no message"),
        (service.HELLO.pack(kind=KINDS["hello"], gids=17), "17 GIDs"),
        (service.CALL.pack(kind=KINDS["call"], verb=99), "99 is no verb"),
    ):
        with pytest.raises(ValueError, match=why):
            program.send(octets)


@given(st.binary(min_size=service.CALL.size, max_size=service.CALL.size))
def test_any_call_has_a_reply(octets):
    program = Host(GIDS[0]).program
    program.call("create")
    program.send(struct.pack("=II", KINDS["call"], octets[0] % len(VERBS) + 1) + octets[8:])
    assert len(program.replies) == 1


def test_mads_for_another_host_are_dropped(hosts):
    active, passive = (host.program for host in hosts)
    passive.listening()
    active.connecting()
    stray = Way(IPv6Address("::ffff:10.0.0.9"), GIDS[0])
    hosts[1].take(hosts[1].service.handle_mad(hosts[0].mads[0].mad, stray, 0))
    assert passive.events == hosts[1].mads == []
