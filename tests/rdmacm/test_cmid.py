# SPDX-License-Identifier: GPL-2.0-or-later
"""pyverbs' face of RDMA CM on two RNICs: connections, messages on them, ends, refusals."""

import errno
import ipaddress
import threading

import pytest

from softroce_lab import _native
from softroce_lab.rdmacm import (
    CMID,
    RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT,
    AddrInfo,
    CmAgent,
    CMEvent,
    CMEventChannel,
    ConnParam,
    UDParam,
    rdma_addrinfo_flags,
    rdma_cm_event_type,
    rdma_port_space,
)
from softroce_lab.rnic import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    Context,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_WC_SUCCESS,
)
from softroce_lab.rnic.errors import PyverbsRDMAError, PyverbsUserError
from softroce_lab.rnic.wr import SGE
from tests.rdmacm.conftest import Clock, agents_of
from tests.rnic.conftest import message_config

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
PORT = "7471"
PASSIVE = rdma_addrinfo_flags.RAI_PASSIVE
TCP, UDP = rdma_port_space.RDMA_PS_TCP, rdma_port_space.RDMA_PS_UDP


def init(qp_type=IBV_QPT_RC, **queues):
    return QPInitAttr(qp_type=qp_type, cap=QPCap(max_send_wr=4, max_recv_wr=4), **queues)


def passive(space=TCP):
    return AddrInfo(src=SERVER, src_service=PORT, port_space=space, flags=PASSIVE)


def active(space=TCP, **more):
    return AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT, port_space=space, **more)


def together(*calls):
    """Run calls that wait for each other, each in a thread of its own; their results."""
    results = [None] * len(calls)

    def run(number):
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


class Synchronous:
    """Both sides of a synchronous connection."""

    def __init__(self, qp_type=IBV_QPT_RC, param=None, answer=None):
        self.listener = CMID(passive(), init(qp_type))
        self.listener.listen()
        self.client = CMID(active(), init(qp_type))

        def serve():
            request = self.listener.get_request()
            request.accept(answer)
            return request

        _, self.server = together(lambda: self.client.connect(param), serve)

    def close(self):
        for each in (self.client, self.server, self.listener):
            each.close()


@pytest.fixture
def pair_of_ids(agents):
    made = Synchronous()
    yield made
    made.close()


def expect_event(channel, name):
    event = CMEvent(channel)
    assert event.event_str() == f"RDMA_CM_EVENT_{name}"
    return event


# Synchronous


def test_a_message_goes_each_way(pair_of_ids):
    client, server = pair_of_ids.client, pair_of_ids.server
    for sender, receiver, text in ((client, server, b"hello"), (server, client, b"world")):
        target, source = receiver.reg_msgs(64), sender.reg_msgs(64)
        receiver.post_recv(target)
        source.write(text, 5)
        sender.post_send(source, length=5)
        assert sender.get_send_comp().status == IBV_WC_SUCCESS
        wc = receiver.get_recv_comp()
        assert (wc.status, wc.byte_len) == (IBV_WC_SUCCESS, 5)
        assert target.read(5, 0) == text


def test_memory_is_written_and_read_from_afar(pair_of_ids):
    client, server = pair_of_ids.client, pair_of_ids.server
    theirs, ours = server.reg_write(64), client.reg_msgs(64)
    ours.write(b"remote", 6)
    client.post_write(ours, 6, theirs.buf, theirs.rkey, flags=2)
    client.get_send_comp()
    assert theirs.read(6, 0) == b"remote"
    readable = server.reg_read(64)
    readable.write(b"answer", 6)
    client.post_read(ours, 6, readable.buf, readable.rkey, flags=2)
    assert client.get_send_comp().status == IBV_WC_SUCCESS
    assert ours.read(6, 0) == b"answer"


def test_queue_pairs_are_what_was_agreed(agents):
    made = Synchronous(
        param=ConnParam(resources=3, depth=5, retry=6, rnr_retry=4),
        answer=ConnParam(resources=5, depth=2, rnr_retry=1),
    )
    ours, _ = made.client.query_qp(0)
    theirs, _ = made.server.query_qp(0)
    assert (ours.qp_state, theirs.qp_state) == (IBV_QPS_RTS, IBV_QPS_RTS)
    assert (ours.dest_qp_num, theirs.dest_qp_num) == (made.server.qpn, made.client.qpn)
    assert (ours.max_rd_atomic, theirs.max_dest_rd_atomic) == (5, 5)
    assert (ours.max_dest_rd_atomic, theirs.max_rd_atomic) == (2, 2)
    assert (ours.retry_cnt, theirs.retry_cnt) == (6, 6)
    assert (ours.rnr_retry, theirs.rnr_retry) == (1, 4)
    assert ours.path_mtu == theirs.path_mtu == made.client.context.query_port(1).active_mtu
    remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
    assert theirs.qp_access_flags == remote
    made.close()


def test_no_resources_grant_no_reads(agents):
    made = Synchronous(param=ConnParam(resources=0, depth=0), answer=ConnParam(0, 0))
    theirs, _ = made.server.query_qp(0)
    assert theirs.qp_access_flags == IBV_ACCESS_REMOTE_WRITE
    made.close()


def test_an_unreliable_connection(agents):
    made = Synchronous(IBV_QPT_UC)
    target, source = made.server.reg_msgs(64), made.client.reg_msgs(64)
    made.server.post_recv(target)
    source.write(b"uc", 2)
    made.client.post_send(source, length=2)
    assert made.server.get_recv_comp().byte_len == 2
    made.close()


@pytest.mark.parametrize("percent", [5, 30])
def test_connections_come_about_and_end_over_a_lossy_cable(pair, agents, percent):
    for side in range(2):
        pair.cable(side).loss = 2**64 * percent // 100
        pair.cable(side).duplicate = 2**64 // 10
    for _ in range(8):
        made = Synchronous()
        together(made.client.disconnect, made.server.disconnect)
        made.close()
    assert pair.totals(0)["lost"] + pair.totals(1)["lost"] > 0


def test_both_sides_agree_to_the_end(pair_of_ids):
    client, server = pair_of_ids.client, pair_of_ids.server
    together(client.disconnect, server.disconnect)
    for side in (client, server):
        assert side.query_qp(0)[0].qp_state == IBV_QPS_ERR


def test_a_closed_side_is_heard_by_the_other(pair_of_ids):
    client, server = pair_of_ids.client, pair_of_ids.server
    client.close()
    server.disconnect()
    assert server.query_qp(0)[0].qp_state == IBV_QPS_ERR


def test_nobody_listens(agents):
    client = CMID(active(), init())
    with pytest.raises(PyverbsRDMAError, match="REJECTED, status 8") as caught:
        client.connect()
    assert caught.value.error_code == errno.ECONNREFUSED
    client.close()


def test_a_request_is_refused(agents):
    listener, client = CMID(passive(), init()), CMID(active(), init())
    listener.listen()
    code, _ = together(
        lambda: catch(client.connect).error_code, lambda: listener.get_request().reject(b"no")
    )
    assert code == errno.ECONNREFUSED
    for each in (client, listener):
        each.close()


def catch(call):
    with pytest.raises(PyverbsRDMAError) as caught:
        call()
    return caught.value


def test_who_gave_up_before_it_was_heard_is_known_to_have(agents):
    listener = CMID(passive())
    listener.listen()
    client = CMID(active(), init())
    client.timeout_s = 0.0005
    assert catch(client.connect).error_code == errno.ETIMEDOUT
    client.close()
    agents[0].driven()
    request = listener.get_request()
    with pytest.raises(PyverbsRDMAError):
        request.accept()
    listener.timeout_s = 0.01
    assert catch(listener.get_request).error_code == errno.ETIMEDOUT
    for each in (request, listener):
        each.close()


def test_a_peer_that_is_not_there(agents):
    client = CMID(AddrInfo(src=CLIENT, dst="10.0.0.99", dst_service=PORT), init())
    error = catch(client.connect)
    assert (error.error_code, "UNREACHABLE" in str(error)) == (errno.ETIMEDOUT, True)
    client.close()


def test_a_wait_has_an_end(agents):
    listener = CMID(passive(), init())
    listener.listen()
    listener.timeout_s = 0.05
    assert catch(listener.get_request).error_code == errno.ETIMEDOUT
    listener.close()


V6_ADDRESSES = (0xFD536C61_62000000_00000000_0A000001, 0xFD536C61_62000000_00000000_0A000002)


def test_a_connection_over_ipv6():
    pair = _native.Pair(*(message_config(each) for each in V6_ADDRESSES), 1)
    contexts = [Context(pair.side(which)) for which in range(2)]
    here, there = (str(ipaddress.ip_address(each)) for each in V6_ADDRESSES)
    with agents_of(Clock(pair), contexts):
        listener = CMID(AddrInfo(src=there, src_service=PORT, flags=PASSIVE), init())
        listener.listen()
        client = CMID(AddrInfo(dst=there, dst_service=PORT, src=here), init())
        together(client.connect, lambda: listener.get_request().accept())
        assert str(client.query_qp(0)[0].ah_attr.gr.dgid) == ipaddress.ip_address(there).exploded
        v4 = CMID(CMEventChannel())
        v4.resolve_addr(AddrInfo(src=here, dst=SERVER, dst_service=PORT))
        expect_event(v4._channel, "ADDR_ERROR")


# Asynchronous


def test_events_tell_what_happens(agents):
    channels = [CMEventChannel(), CMEventChannel()]
    listener = CMID(channels[1])
    listener.bind_addr(passive())
    listener.listen()
    client = CMID(channels[0])
    client.resolve_addr(active())
    expect_event(channels[0], "ADDR_RESOLVED")
    client.resolve_route()
    expect_event(channels[0], "ROUTE_RESOLVED")
    client.create_qp(init())
    asked = ConnParam()
    asked.set_private_data(b"who is there?")
    client.connect(asked)
    request = expect_event(channels[1], "CONNECT_REQUEST")
    assert request.private_data.rstrip(b"\0") == b"who is there?"
    server = CMID(request, listen_id=listener)
    request.ack_cm_event()
    server.create_qp(init())
    server.accept(ConnParam())
    expect_event(channels[0], "ESTABLISHED")
    expect_event(channels[1], "ESTABLISHED")
    server.disconnect()
    expect_event(channels[0], "DISCONNECTED")
    client.disconnect()
    expect_event(channels[1], "DISCONNECTED")
    for channel in channels:
        expect_event(channel, "TIMEWAIT_EXIT")
    for each in (client, server, listener):
        each.close()


@pytest.mark.parametrize("fetched", [False, True])
def test_requests_end_with_their_listener(agents, fetched):
    """Neither an entry of theirs stays, nor an event of what is no more."""
    channels = [CMEventChannel(), CMEventChannel()]
    listener, client = CMID(channels[1]), CMID(channels[0])
    listener.bind_addr(passive())
    listener.listen()
    client.resolve_addr(active())
    client.resolve_route()
    for _ in range(2):
        CMEvent(channels[0])
    client.connect(ConnParam(qp_num=1))
    queue = channels[1].queue
    while not queue.events:
        agents[1].driven()
    if fetched:
        CMEvent(channels[1])
    listener.close()
    assert not queue.events
    assert not agents[1]._queues
    expect_event(channels[0], "REJECTED")
    client.close()
    assert not agents[0]._queues


def test_events_end_with_their_id(agents):
    channel = CMEventChannel()
    client, other = CMID(channel), CMID(channel)
    for each in (client, other):
        each.resolve_addr(active())
    client.close()
    expect_event(channel, "ADDR_RESOLVED")
    assert not channel.queue.events
    other.close()


def test_queue_pairs_made_elsewhere(agents, contexts):
    channels = [CMEventChannel(), CMEventChannel()]
    listener, client = CMID(channels[1]), CMID(channels[0])
    listener.bind_addr(passive())
    listener.listen()
    client.resolve_addr(active())
    client.resolve_route()
    for _ in range(2):
        CMEvent(channels[0])
    pds = [PD(context) for context in contexts]
    cqs = [CQ(context, 8) for context in contexts]
    qps = [QP(pd, init(scq=cq, rcq=cq)) for pd, cq in zip(pds, cqs, strict=True)]
    client.connect(ConnParam(qp_num=qps[0].qp_num))
    server = CMID(expect_event(channels[1], "CONNECT_REQUEST"), listen_id=listener)
    server.accept(ConnParam(qp_num=qps[1].qp_num))
    to_rts(server, qps[1])
    expect_event(channels[0], "CONNECT_RESPONSE")
    to_rts(client, qps[0])
    client.establish()
    expect_event(channels[1], "ESTABLISHED")
    memory = [MR(pd, 64, IBV_ACCESS_LOCAL_WRITE) for pd in pds]
    qps[1].post_recv(RecvWR(num_sge=1, sg=[SGE(memory[1].buf, 64, memory[1].lkey)]))
    memory[0].write(b"external", 8)
    qps[0].post_send(SendWR(num_sge=1, sg=[SGE(memory[0].buf, 8, memory[0].lkey)]))
    assert agents[1].poll_until(cqs[1], 1.0).byte_len == 8
    assert memory[1].read(8, 0) == b"external"
    for each in (client, server, listener):
        each.close()


def to_rts(cmid, qp):
    for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
        attr, mask = cmid.init_qp_attr(state)
        qp.modify(attr, mask)


def test_an_acknowledgement_timeout_can_be_set(agents):
    channels = [CMEventChannel(), CMEventChannel()]
    listener, client = CMID(channels[1]), CMID(channels[0])
    listener.bind_addr(passive())
    listener.listen()
    client.resolve_addr(active())
    client.resolve_route()
    client.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 21, 1)
    for _ in range(2):
        CMEvent(channels[0])
    client.connect(ConnParam(qp_num=1))
    server = CMID(expect_event(channels[1], "CONNECT_REQUEST"), listen_id=listener)
    assert server.init_qp_attr(IBV_QPS_RTS)[0].timeout == 21
    server.reject(b"enough", 3)
    rejected = expect_event(channels[0], "REJECTED")
    assert (rejected.status, rejected.private_data.rstrip(b"\0")) == (28, b"eno")
    for each in (client, server, listener):
        each.close()


def test_a_queue_pair_that_cannot_be_connected_is_an_error(agents):
    channels = [CMEventChannel(), CMEventChannel()]
    listener, client = CMID(channels[1]), CMID(channels[0])
    listener.bind_addr(passive())
    listener.listen()
    client.resolve_addr(active())
    client.resolve_route()
    for _ in range(2):
        CMEvent(channels[0])
    client.create_qp(init())
    client.connect()
    server = CMID(expect_event(channels[1], "CONNECT_REQUEST"), listen_id=listener)
    server.accept(ConnParam(qp_num=7))
    client.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), 1)
    failed = expect_event(channels[0], "CONNECT_ERROR")
    assert failed.status == -errno.EINVAL
    assert expect_event(channels[1], "REJECTED").status == 28
    for each in (client, server, listener):
        each.close()


def test_a_datagram_queue_pair_is_found_and_answers(agents):
    channels = [CMEventChannel(), CMEventChannel()]
    listener = CMID(channels[1], port_space=UDP)
    listener.bind_addr(passive(UDP))
    listener.listen()
    client = CMID(channels[0], port_space=UDP)
    client.resolve_addr(active(UDP))
    client.resolve_route()
    for _ in range(2):
        CMEvent(channels[0])
    client.create_qp(init(IBV_QPT_UD))
    client.connect()
    server = CMID(expect_event(channels[1], "CONNECT_REQUEST"), listen_id=listener)
    server.create_qp(init(IBV_QPT_UD))
    target = server.reg_msgs(104)
    server.post_recv(target)
    server.accept()
    found = UDParam(expect_event(channels[0], "ESTABLISHED"))
    assert (found.qp_num, found.qkey) == (server.qpn, 0x01234567)
    source = client.reg_msgs(104)
    source.write(b"datagram", 8)
    route = AH(client.pd, attr=found.ah_attr)
    client.post_ud_send(source, route, rqpn=found.qp_num, length=8)
    wc = server.get_recv_comp()
    assert target.read(8, 40) == b"datagram"
    back = AH(server.pd, wc=wc, grh=target.buf, port_num=1)
    client.post_recv(source)
    server.post_ud_send(target, back, rqpn=wc.src_qp, length=8)
    assert client.get_recv_comp().byte_len == 48
    for each in (client, server, listener):
        each.close()


# Wrong use


def test_devices_are_found_by_address(agents, contexts):
    assert CMID(passive()).context is contexts[1]
    assert CMID(active()).context is contexts[0]
    for info in (AddrInfo(src="10.9.9.9", src_service=PORT, flags=PASSIVE), passive_anywhere()):
        assert catch(lambda info=info: CMID(info)).error_code == errno.ENODEV


def passive_anywhere():
    return AddrInfo(src_service=PORT, flags=PASSIVE)


def test_one_agent_has_a_port(agents, contexts):
    assert catch(lambda: CmAgent(contexts[0])).error_code == errno.EBUSY


def test_what_is_bound_to_no_device_can_do_nothing(agents):
    cmid = CMID(CMEventChannel())
    for call in (
        cmid.connect,
        cmid.accept,
        cmid.listen,
        cmid.disconnect,
        cmid.resolve_route,
        cmid.establish,
        cmid.reject,
        cmid.get_send_comp,
        cmid.get_recv_comp,
        lambda: cmid.create_qp(init()),
        lambda: cmid.init_qp_attr(IBV_QPS_INIT),
        lambda: cmid.query_qp(0),
        lambda: cmid.reg_msgs(1),
        lambda: cmid.resolve_addr(passive()),
        cmid.get_request,
    ):
        assert catch(call).error_code == errno.EINVAL


@pytest.mark.parametrize("creator", [1, "10.0.0.1", object()])
def test_a_cmid_is_made_of_what_pyverbs_says(creator):
    with pytest.raises(PyverbsUserError, match="Cannot create CM ID from"):
        CMID(creator)


def test_options_are_checked(agents):
    cmid = CMID(CMEventChannel())
    with pytest.raises(PyverbsUserError):
        cmid.set_option(RDMA_OPTION_ID, 0, 1, 1)
    for value, length in ((32, 1), (-1, 1), (3, 4)):
        code = catch(
            lambda value=value, length=length: cmid.set_option(
                RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, value, length
            )
        )
        assert code.error_code == errno.EINVAL


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"dst": "not an address.invalid"},
        {"dst": SERVER, "dst_service": "no such service"},
        {"dst": "not.numeric", "flags": rdma_addrinfo_flags.RAI_NUMERICHOST},
    ],
)
def test_an_address_that_is_none(arguments):
    assert catch(lambda: AddrInfo(**arguments)).error_code == errno.EINVAL


def test_what_addresses_and_parameters_say_of_themselves():
    info = AddrInfo(src=b"10.0.0.1", dst="10.0.0.2", dst_service="7471")
    assert (str(info.src), str(info.dst), info.dst_port) == (CLIENT, SERVER, 7471)
    assert "RDMA_PS_TCP" in str(info)
    param = ConnParam()
    assert (param.params.retry_count, param.params.rnr_retry_count) == (5, 5)
    param.qpn = 17
    assert param.qpn == 17
    assert "qp number" in str(param)


def test_an_event_is_acknowledged_once_and_says_no_more(agents):
    channel = CMEventChannel()
    client = CMID(channel)
    client.resolve_addr(active())
    event = expect_event(channel, "ADDR_RESOLVED")
    assert event.event_type == rdma_cm_event_type.RDMA_CM_EVENT_ADDR_RESOLVED
    event.close()
    assert (event.event_str(), event.private_data) == ("", b"")
    with pytest.raises(PyverbsUserError):
        UDParam(event)
    with pytest.raises(PyverbsUserError):
        CMID(event, listen_id=client)
    client.close()
