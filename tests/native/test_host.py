# SPDX-License-Identifier: GPL-2.0-or-later
"""A host on the real clock: it stops while other threads ask it for something, and it ends."""

import ipaddress
import secrets
import socket
import threading
import time

import numpy as np
import pytest

from softroce_lab import _native, topology
from softroce_lab.experiment.hosts import rnics
from softroce_lab.experiment.hosts.processes import mac_number
from softroce_lab.experiment.hosts.report import taken
from softroce_lab.fabric import lab as fabric
from softroce_lab.transports import registry
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import DATA, IBV_ACCESS_LOCAL_WRITE, QKEY, config

CALLERS = 3
ETH_P_ALL = 3
PACKETS = 8  # of a message
STOPS = 1_000


@pytest.fixture
def lab():
    made = fabric.up(topology.load("two-hosts", name=f"t{secrets.token_hex(3)}"), ephemeral=True)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def host(lab):
    with lab.enter("h1"):
        made = _native.Host(rnics.config(lab, lab.plan.node("h1"), path_mtu=1024))
    yield made
    made.close()


def test_whoever_calls_while_the_engine_stops_is_answered(host):
    over = threading.Event()
    calls, unanswered = [], []

    def keep_calling():
        count = 0
        try:
            while not over.is_set():
                host.query_qp(2)
                count += 1
        except OSError as error:  # ETIMEDOUT after 5 s: what was asked for never ran
            unanswered.append(error)
        calls.append(count)

    callers = [threading.Thread(target=keep_calling) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(STOPS):
            host.start()
            host.query_qp(2)
            host.stop()
    finally:
        over.set()
    for caller in callers:
        caller.join(30)
    assert not unanswered
    assert len(calls) == CALLERS
    assert min(calls) > 0
    assert host.failure == ""


def test_a_port_is_free_once_its_device_is_closed_whoever_still_holds_that(lab):
    with rnics.opened(lab, "h1") as first:
        held = first.endpoint
    with rnics.opened(lab, "h1"):
        pass
    with pytest.raises(RuntimeError, match="closed does not start again"):
        held.start()
    assert set(held.port_statistics()) >= {"rx_dropped", "tx_invalid"}


# ---------------------------------------------------------------- losses


class Opposite:
    """The end at h2. The test carries its frames by hand, and so decides when they arrive."""

    def __init__(self, lab, host, host_config):
        self._epoch_ns = host_config.epoch_ns
        ports = [lab.plan.node(name).ports[0] for name in ("h1", "h2")]
        addresses = [int(ipaddress.ip_address(str(port.address))) for port in ports]
        macs = [mac_number(port.mac) for port in ports]
        self.endpoint = _native.FrameEndpoint(with_csa_ud(config(addresses[1])), macs[1])
        for here, there, other in ((self.endpoint, 0, host), (host, 1, self.endpoint)):
            here.set_qkey(QKEY)
            here.connect(addresses[there], macs[there], other.data_qp, other.recovery_qp, QKEY)
        with lab.enter("h2"):
            self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.wire.bind((ports[1].name, ETH_P_ALL))
        self.wire.settimeout(2)

    def data(self, packets):
        """The data frames that the host sends, by message and index, once there are so many."""
        found = {}
        while len(found) < packets:
            frame, origin = self.wire.recvfrom(1 << 16)
            if origin[2] == socket.PACKET_OUTGOING:
                continue
            fields = _native.decode_frame(frame, True)
            if fields and fields.get("kind") == DATA:
                found[fields["message"], fields["index"]] = frame
        return found

    def answers(self, *frames):
        now_ns = time.monotonic_ns() - self._epoch_ns
        for frame in frames:
            self.endpoint.handle_frame(frame, now_ns)
        said = []
        while (frame := self.endpoint.poll_frame(now_ns)) is not None:
            said.append(frame)
        return said


def with_csa_ud(messages):
    for name, value in registry.find("csa_ud").engine({}).items():
        setattr(messages, name, value)
    messages.path_mtu, messages.paths, messages.schedule = 1024, 1, "fifo"
    DEFAULT_TIMING.apply(messages)
    return messages


def test_losses_are_decided_on_at_once_though_more_frames_wait(lab):
    """Two NACKs wait when a turn begins. The session's clock stands still while it handles what a
    turn brought, so the decisions are of two times only if the first loss did not wait.
    """
    with lab.enter("h1"):
        made = rnics.config(lab, lab.plan.node("h1"), path_mtu=1024)
        made.messages = with_csa_ud(made.messages)
        host = _native.Host(made)
    opposite = Opposite(lab, host, made)
    memory = np.zeros(PACKETS * (1024 - 40), np.uint8)
    keys = [
        end.register_memory(memory.ctypes.data, len(memory), IBV_ACCESS_LOCAL_WRITE)
        for end in (host, opposite.endpoint)
    ]
    host.record_decisions()
    for number in (0, 1):
        opposite.endpoint.post_receive(0, (1, 2, number), keys[1], 0, len(memory), number)
        host.post_send(0, (1, 2, number), keys[0], 0, len(memory), number)
    try:
        host.start()
        frames = opposite.data(2 * PACKETS)
        host.stop()
        nacks = [
            opposite.answers(*(frames[number, index] for index in range(PACKETS) if index != 3))
            for number in (0, 1)
        ]
        for nack in nacks:
            for frame in nack:
                opposite.wire.send(frame)
        time.sleep(0.1)  # until they wait at the host
        before_ns = time.monotonic_ns() - made.epoch_ns
        host.start()
        time.sleep(0.1)
        host.stop()
    finally:
        host.close()
        opposite.wire.close()
    rows = [row for row in taken([host]) if row["time_ns"] >= before_ns]
    gaps = [row for row in rows if _native.DECISIONS[row["kind"]] == "retransmit_gap"]
    assert [row["message"] for row in gaps[:2]] == [0, 1]
    assert gaps[0]["time_ns"] < gaps[1]["time_ns"]
