# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM with Linux: unmodified programs of librdmacm in the guest, ours at the other end."""

import contextlib
import errno
import socket
import threading
import time

import pytest

from softroce_lab.rdmacm import (
    CMID,
    AddrInfo,
    CmAgent,
    CMEvent,
    CMEventChannel,
    ConnParam,
    UDParam,
    rdma_addrinfo_flags,
    rdma_port_space,
)
from softroce_lab.rnic import AH, SGE, SendWR
from softroce_lab.rnic.enums import IBV_QPT_UD, IBV_WC_SUCCESS, IBV_WR_SEND_WITH_IMM
from softroce_lab.rnic.errors import PyverbsRDMAError
from softroce_lab.rnic.qp import QPCap, QPInitAttr
from tests.interop import rping, rxe

PINGS = 5
PROGRAM_S, START_S, RETRY_S = 60, 10, 0.1
UDP = rdma_port_space.RDMA_PS_UDP


@pytest.fixture(scope="module")
def ends(conversation):
    """(address here, address there, guest), with an agent for ours."""
    context = conversation.soft.pd.ctx
    here, there = (conversation.places[each]["gid"] for each in ("soft", "kernel"))
    with contextlib.closing(CmAgent(context)):
        yield address(here), address(there), conversation.lab.guest(rxe.KERNEL)


@pytest.fixture(params=[0, 1, 5], ids=lambda percent: f"loss{percent}")
def loss(conversation, request):
    set_loss(conversation, request.param)
    return request.param


def set_loss(conversation, percent):
    conversation.set_link(rxe.Cell("soft", "rc", "send", 1024, 1024, percent))


def address(gid):
    words = gid.split(":")
    return ".".join(str(int(word[at : at + 2], 16)) for word in words[-2:] for at in (0, 2))


def aside(call):
    """Do something in a thread; what it makes is in the list that comes back, when it is done."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


def test_rping_of_linux_pings_us(ends, loss):
    here, _, guest = ends
    with contextlib.closing(rping.listener(here)) as listening:
        thread, served = aside(lambda: rping.serve(listening, PINGS))
        argv = ["rping", "-c", "-a", here, "-C", str(PINGS), "-v", "-V"]
        completed = guest.run(argv, timeout_s=PROGRAM_S)
        thread.join(PROGRAM_S)
    assert completed.exit_code == 0, completed
    assert completed.text.count("ping data: rdma-ping-") == PINGS
    (texts,) = served
    assert [text[:12] for text in texts] == [b"rdma-ping-%d:" % n for n in range(PINGS)]


def test_we_ping_rping_of_linux(ends, loss):
    here, there, guest = ends
    texts = [b"rdma-ping-%d: " % n + b"x" * 45 for n in range(PINGS)]
    with guest.start(["rping", "-s", "-a", there, "-C", str(PINGS), "-v"]) as server:
        connect_when_it_listens(lambda: rping.ping(here, there, texts))
        ended = server.wait(PROGRAM_S)
    assert ended.text.count("server ping data: rdma-ping-") == PINGS


def connect_when_it_listens(connect):
    deadline = time.monotonic() + START_S
    while True:
        try:
            return connect()
        except PyverbsRDMAError as error:
            if error.error_code != errno.ECONNREFUSED or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def test_linux_refuses_where_nobody_listens(ends):
    here, there, _ = ends
    with pytest.raises(PyverbsRDMAError, match="REJECTED, status 8"):
        rping.ping(here, there, [b"x"])


def test_we_refuse_linux_where_nobody_listens(ends):
    here, _, guest = ends
    completed = guest.run(["rping", "-c", "-a", here, "-C", "1", "-v"], timeout_s=PROGRAM_S)
    assert "RDMA_CM_EVENT_REJECTED" in completed.stderr.decode() + completed.text
    assert completed.exit_code != 0


def datagrams():
    return QPInitAttr(qp_type=IBV_QPT_UD, cap=QPCap(max_send_wr=16, max_recv_wr=16))


def test_udaddy_of_linux_finds_us(ends):
    """Service id resolution, then datagrams both ways."""
    here, _, guest = ends
    channel = CMEventChannel()
    listener = CMID(channel, port_space=UDP)
    listener.bind_addr(
        AddrInfo(src=here, src_service="7174", port_space=UDP,
                 flags=rdma_addrinfo_flags.RAI_PASSIVE)
    )  # fmt: skip
    listener.listen()

    def serve():
        event = CMEvent(channel)
        server = CMID(event, listen_id=listener)
        server.create_qp(datagrams())
        region = server.reg_msgs(140)
        server.post_recv(region)
        server.accept(ConnParam(qp_num=server.qpn))
        wc = server.get_recv_comp()
        route = AH(server.pd, wc=wc, grh=region.buf, port_num=1)
        reply = server.reg_msgs(100)
        server.post_ud_send(reply, route, rqpn=wc.src_qp)
        assert server.get_send_comp().status == IBV_WC_SUCCESS
        return server, wc

    thread, served = aside(serve)
    argv = ["udaddy", "-s", here, "-c", "1", "-C", "1", "-S", "100"]
    completed = guest.run(argv, timeout_s=PROGRAM_S)
    thread.join(PROGRAM_S)
    ((server, wc),) = served
    assert completed.exit_code == 0, completed
    assert "data transfers complete" in completed.text
    assert wc.byte_len == 140
    server.close()
    listener.close()


def test_we_find_udaddy_of_linux(ends):
    here, there, guest = ends
    with guest.start(["udaddy", "-c", "1", "-C", "1", "-S", "100"]) as server:

        def connect():
            channel = CMEventChannel()
            client = CMID(channel, port_space=UDP)
            client.resolve_addr(AddrInfo(src=here, dst=there, dst_service="7174", port_space=UDP))
            client.resolve_route()
            client.create_qp(datagrams())
            client.connect()
            for _ in range(2):
                CMEvent(channel)
            return client, CMEvent(channel)

        deadline = time.monotonic() + START_S
        client, event = connect()
        while event.event_str() != "RDMA_CM_EVENT_ESTABLISHED":  # it does not listen yet
            assert time.monotonic() < deadline, event.event_str()
            client.close()
            time.sleep(RETRY_S)
            client, event = connect()
        client.timeout_s = START_S
        found = UDParam(event)
        region = client.reg_msgs(140)
        client.post_recv(region)
        message = client.reg_msgs(100)
        route = AH(client.pd, attr=found.ah_attr)
        # Its replies go to the queue pair that the immediate data name.
        element = SGE(message.buf, message.length, message.lkey)
        request = SendWR(
            opcode=IBV_WR_SEND_WITH_IMM, num_sge=1, sg=[element], imm_data=socket.htonl(client.qpn)
        )
        request.set_wr_ud(route, found.qp_num, found.qkey)
        client.qp.post_send(request)
        assert client.get_recv_comp().byte_len == 140
        ended = server.wait(PROGRAM_S)
        client.close()
    assert "data transfers complete" in ended.text, ended
