# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs of rdma-core and perftest in the guest, our end of them here.

They meet over TCP, as they do with each other; the bytes on it are softroce_lab.perftest.oob's.
"""

import contextlib
import itertools
import time

import pytest

from softroce_lab.perftest.oob import (
    OobServer,
    OobSocket,
    PingpongDest,
    pingpong_client,
    pingpong_server_receives,
    pingpong_server_sends,
)
from softroce_lab.perftest.oob_perftest import BwReport, Conversation, PerftestDest, PerftestPeer
from softroce_lab.rnic import GID
from tests.interop.rxe import KERNEL, RECV, SOFT
from tests.interop.test_cm import address, set_loss
from tests.interop.verbs_peer import GRH_BYTES

ROUNDS, SIZE, STRIDE = 100, 1000, 2048
PROGRAM_S, MEET_S = 60, 30
GID_INDEX = "1"
SOURCE, TARGET = 0, 4 << 20
MTU_1024 = 3
_psns = itertools.count(0x1000, 0x1000)


@pytest.fixture(params=[0, 1], ids=lambda percent: f"loss{percent}")
def loss(conversation, request):
    set_loss(conversation, request.param)
    return request.param


class Here:
    """Our end: verbs, and the host's ordinary sockets."""

    def __init__(self, conversation):
        self._lab = conversation.lab
        self.soft = conversation.soft
        self.place = conversation.places["soft"]
        self.address = address(self.place["gid"])
        self.there = address(conversation.places["kernel"]["gid"])
        self.guest = conversation.lab.guest(KERNEL)

    def connect(self):
        with self._lab.enter(SOFT):
            return OobSocket.connect(self.there, timeout_s=MEET_S)

    def listen(self):
        with self._lab.enter(SOFT):
            return OobServer(address=self.address)

    def perftest_dest(self, qpn, psn):
        gid = GID(self.place["gid"])
        return PerftestDest(qpn, psn, gid, self.place["rkey"], self.place["addr"] + TARGET)


@pytest.fixture
def here(conversation):
    return Here(conversation)


# Pingpongs


def pingpong(here, kind, *, first):
    """All rounds: who is first sends first."""
    soft = here.soft
    sent = received = 0
    if first:
        soft.post(opcode="send", at=SOURCE, length=SIZE)
    while sent < ROUNDS or received < ROUNDS:
        completions = soft.poll(count=1, timeout_s=PROGRAM_S)["completions"]
        assert completions, f"{sent} sent, {received} received"
        for done in completions:
            assert done[1] == 0, done
            if done[2] != RECV:
                sent += 1
                continue
            received += 1
            assert done[3] == SIZE + (GRH_BYTES if kind == "ud" else 0)
            if not first or received < ROUNDS:
                soft.post(opcode="send", at=SOURCE, length=SIZE)


def prepared(here, kind):
    psn = next(_psns)
    qpn = here.soft.create(kind=kind, psn=psn)["qpn"]
    return PingpongDest(qpn, psn, GID(here.place["gid"]))


def brought_to_rts(here, remote):
    here.soft.connect(gid=str(remote.gid), qpn=remote.qpn, psn=remote.psn, mtu=1024)
    here.soft.receive(at=TARGET, length=SIZE + GRH_BYTES, count=ROUNDS, stride=STRIDE)


def program(kind):
    return [f"ibv_{kind}_pingpong", "-g", GID_INDEX, "-n", str(ROUNDS), "-s", str(SIZE)]


@pytest.mark.parametrize("kind", ["rc", "uc", "ud"])
def test_pingpong_of_linux_plays_with_us_as_server(here, kind):
    own = prepared(here, kind)
    with here.listen() as server, here.guest.start([*program(kind), here.address]) as client:
        with server.accept(MEET_S, MEET_S) as peer:
            brought_to_rts(here, pingpong_server_receives(peer))
            pingpong_server_sends(peer, own)
            pingpong(here, kind, first=False)
        ended = client.wait(PROGRAM_S)
    assert ended.exit_code == 0, ended
    assert f"{ROUNDS} iters in" in ended.text


@pytest.mark.parametrize("kind", ["rc", "uc", "ud"])
def test_pingpong_of_linux_plays_with_us_as_client(here, kind):
    own = prepared(here, kind)
    with here.guest.start(program(kind)) as server:
        with here.connect() as peer:
            brought_to_rts(here, pingpong_client(peer, own))
            pingpong(here, kind, first=True)
        ended = server.wait(PROGRAM_S)
    assert ended.exit_code == 0, ended
    assert f"{ROUNDS} iters in" in ended.text


@pytest.mark.parametrize("percent", [1, 5])
def test_a_reliable_pingpong_with_loss(conversation, here, percent):
    """The program leaves with our last message: its last acknowledgement has to arrive."""
    conversation.lose_towards_kernel(percent)
    test_pingpong_of_linux_plays_with_us_as_server(here, "rc")


# perftest


def perftest(test, *options):
    return [f"ib_{test}", "-d", "rxe0", "-x", GID_INDEX, "-F", "-s", str(SIZE),
            "-n", str(ROUNDS), "-m", "1024", *options]  # fmt: skip


class Program:
    """Our end of a perftest program, with one queue pair."""

    def __init__(self, here, test, socket, *, client):
        self.here, self.test = here, test
        self.talk = Conversation(PerftestPeer(socket, client=client), test)
        self.client = client
        psn = next(_psns)
        qpn = here.soft.create(kind="rc", psn=psn)["qpn"]
        self.own = here.perftest_dest(qpn, psn)

    def meet(self):
        agreed = self.talk.peer.negotiate(MTU_1024)
        assert agreed.mtu == MTU_1024
        (self.remote,) = self.talk.meet([self.own])
        remote = self.remote
        self.here.soft.connect(gid=str(remote.gid), qpn=remote.qpn, psn=remote.psn, mtu=1024)
        if self.test.startswith("send"):
            self.here.soft.receive(at=TARGET, length=SIZE, count=ROUNDS, stride=STRIDE)
        self.talk.connected([self.own])
        self.talk.before_run(self.own)

    def part(self, report):
        self.talk.after_run(self.own, report)
        return self.talk.part(self.own, report)

    def run(self):
        """What the test is about, where we are the ones to do it."""
        began = time.monotonic()
        if self.test == "send_lat":
            pingpong(self.here, "rc", first=self.client)
        elif self.test == "send_bw":
            self._count(RECV) if not self.client else self._post("send")
        elif self.client:
            self._post(self.test.split("_")[0])
        rate = ROUNDS / (time.monotonic() - began)
        return BwReport(SIZE, ROUNDS, rate * SIZE / 2**20, rate * SIZE / 2**20, rate / 1e6)

    def _post(self, opcode):
        window = 4  # READs outstanding, as -o says
        for _ in range(ROUNDS // window):
            self.here.soft.post(opcode=opcode, at=SOURCE, length=SIZE, count=window,
                                there=self.remote.vaddr, rkey=self.remote.rkey)  # fmt: skip
            self._wait(window)

    def _count(self, opcode):
        done = self._wait(ROUNDS)
        assert all(each[2] == opcode for each in done)

    def _wait(self, count):
        done = self.here.soft.poll(count=count, timeout_s=PROGRAM_S)["completions"]
        assert [each[1] for each in done] == count * [0], done
        return done


TESTS = ["write_bw", "read_bw", "send_bw", "send_lat", "read_lat"]
OUTSTANDING = {"read_bw": ["-o", "4"], "read_lat": ["-o", "4"]}


@pytest.mark.parametrize("test", TESTS)
def test_perftest_of_linux_runs_against_us(here, loss, test):
    argv = [*perftest(test, *OUTSTANDING.get(test, [])), here.address]
    with here.listen() as server, here.guest.start(argv) as client:
        with server.accept(MEET_S, PROGRAM_S) as socket:
            ours = Program(here, test, socket, client=False)
            ours.meet()
            report = ours.part(ours.run())
        ended = client.wait(PROGRAM_S)
    assert ended.exit_code == 0, ended
    assert f" {SIZE} " in ended.text
    if test in ("write_bw", "read_bw"):
        assert (report.size_bytes, report.iterations) == (SIZE, ROUNDS)


@pytest.mark.parametrize("test", TESTS)
def test_we_run_against_perftest_of_linux(here, test):
    argv = perftest(test, *OUTSTANDING.get(test, []))
    with here.guest.start(argv) as server:
        with contextlib.closing(here.connect()) as socket:
            ours = Program(here, test, socket, client=True)
            ours.meet()
            ours.part(ours.run())
        ended = server.wait(PROGRAM_S)
    assert ended.exit_code == 0, ended
    if test in ("write_bw", "read_bw"):  # what the server prints is our report
        assert f" {SIZE}       {ROUNDS}" in ended.text
