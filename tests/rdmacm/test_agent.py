# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent on the real clock, in its own thread, with a port that a test holds."""

import errno
import random
import threading
import time

import pytest

from softroce_lab.rdmacm import CMID, AddrInfo, CmAgent
from softroce_lab.rdmacm.agent import Queue
from softroce_lab.rdmacm.events import CmEvent, Send, rdma_cm_event_type
from softroce_lab.rdmacm.gsi import GsiPort, source_gid, source_index
from softroce_lab.rdmacm.messages import MAD_BYTES
from softroce_lab.rdmacm.service import gid_of
from softroce_lab.rnic.errors import PyverbsRDMAError
from tests.rdmacm.cm_rig import ADDRESSES

PASSIVE = 1
PORT = "7471"


class Crossed:
    """A port whose MADs come out of another one."""

    def __init__(self, address):
        self.gid = gid_of(address)
        self.arrived = []
        self.other = None
        self.failure = None
        self.silences = 0
        self.mute = False

    def send(self, gid, mad):
        if self.mute:
            raise PyverbsRDMAError("Failed to post", errno.ETIMEDOUT)
        self.other.arrived.append((self.gid, mad))

    def poll(self):
        if self.failure:
            raise self.failure
        if self.silences:
            self.silences -= 1
            raise PyverbsRDMAError("Failed to poll", errno.ETIMEDOUT)
        arrived, self.arrived = self.arrived, []
        return arrived

    def close(self):
        pass


@pytest.fixture
def ports():
    made = [Crossed(address) for address in ADDRESSES]
    made[0].other, made[1].other = made[1], made[0]
    return made


@pytest.fixture
def agents(ports, contexts):
    made = [
        CmAgent(context, port=port, stream=random.Random(n))
        for n, (context, port) in enumerate(zip(contexts, ports, strict=True))
    ]
    yield made
    for agent in made:
        agent.close()


def test_threads_connect_and_part(agents):
    listener = CMID(AddrInfo(src=str(ADDRESSES[1]), src_service=PORT, flags=PASSIVE))
    listener.listen()
    client = CMID(AddrInfo(src=str(ADDRESSES[0]), dst=str(ADDRESSES[1]), dst_service=PORT))
    served = []

    def serve():
        server = listener.get_request()
        server.accept()
        server.disconnect()
        served.append(server)

    thread = threading.Thread(target=serve)
    thread.start()
    client.connect()
    client.establish()
    client.disconnect()
    thread.join(10)
    assert served
    for each in (client, listener, *served):
        each.close()


def test_a_closed_agent_leaves_no_thread_and_no_port(agents, contexts, ports):
    agents[0].close()
    assert not [each for each in threading.enumerate() if each is agents[0]._thread]
    with CmAgent(contexts[0], port=ports[0]):
        pass


@pytest.mark.parametrize("kind", [PyverbsRDMAError, KeyError])
def test_those_who_wait_hear_of_an_agent_that_failed(agents, ports, kind):
    listener = CMID(AddrInfo(src=str(ADDRESSES[0]), src_service=PORT, flags=PASSIVE))
    listener.listen()
    listener.timeout_s = 300.0
    ports[0].failure = failure = kind("Failed to poll", errno.EIO)
    began = time.monotonic()
    for call in (listener.get_request, listener.disconnect):
        with pytest.raises(PyverbsRDMAError, match="Failed to reach the CM agent") as raised:
            call()
        assert raised.value.__cause__ is failure
    assert time.monotonic() - began < 100  # no call waited for its time-out
    listener.close()


def test_an_rnic_that_is_silent_for_a_while_is_asked_again(agents, ports):
    for port in ports:
        port.silences = 3
    eventually(lambda: not any(port.silences for port in ports))
    test_threads_connect_and_part(agents)


def test_an_rnic_that_stays_silent_ends_the_agent(agents, ports):
    ports[0].silences = 1000
    eventually(lambda: not agents[0]._thread.is_alive())
    assert ports[0].silences == 996  # asked again three times
    with pytest.raises(PyverbsRDMAError, match="Failed to reach the CM agent") as raised:
        agents[0].check_working()
    assert raised.value.__cause__.error_code == errno.ETIMEDOUT


def test_a_mad_that_a_silent_rnic_did_not_take_is_lost_and_no_more(agents, ports):
    ports[0].mute = True
    queue = Queue()
    comm_id = agents[0].create(queue)
    reported = CmEvent(rdma_cm_event_type.RDMA_CM_EVENT_ESTABLISHED, comm_id)
    agents[0].call(lambda manager, now_ns: [Send(gid_of(ADDRESSES[1]), b""), reported])
    assert queue.wait(60.0) == (agents[0], reported)


def test_a_silent_rnic_costs_no_receives(contexts, pair, monkeypatch):
    ports = [GsiPort(context) for context in contexts]
    for _ in range(4):
        ports[0].send(gid_of(ADDRESSES[1]), bytes(MAD_BYTES))
    pair.run(pair.now_ns + 1_000_000)
    post, posted = ports[1]._post, []

    def post_late(slot):
        posted.append(slot)
        post(slot)
        if len(posted) == 2:
            raise PyverbsRDMAError("Failed to post recv", errno.ETIMEDOUT)

    monkeypatch.setattr(ports[1], "_post", post_late)
    with pytest.raises(PyverbsRDMAError):
        ports[1].poll()
    assert ports[1].poll() == []
    assert sorted(posted) == [0, 1, 2, 3]
    for port in ports:
        port.close()


def eventually(holds):
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_who_sent_a_datagram_is_in_its_head():
    ipv4 = bytes(20) + b"\x45" + bytes(11)
    area = ipv4 + bytes([10, 0, 0, 1]) + bytes([10, 0, 0, 2])
    assert source_gid(area) == gid_of(ADDRESSES[0])
    six = gid_of(ADDRESSES[0]).packed
    assert source_gid(b"\x60" + bytes(7) + six + bytes(16)) == gid_of(ADDRESSES[0])


def test_a_source_is_of_the_destinations_ip_version():
    four, six = gid_of(ADDRESSES[0]), gid_of(ADDRESSES[0]).__class__("fd00::1")
    assert source_index((six, four), gid_of(ADDRESSES[1])) == 1
    assert source_index((four, six), six) == 1
    assert source_index((four,), six) == 0
