# SPDX-License-Identifier: GPL-2.0-or-later
"""A ShiftQP against Linux: two rails of rdma_rxe take over from each other, unchanged.

The peer in the guest (`shift_peer.py`) is a program of rdma-core's verbs: what any RNIC's user can
do. The same program runs here over two RNICs in memory. A peer that is no ShiftQP at all is tried,
too: what fails then surfaces.
"""

import contextlib
import hashlib
import json
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from softroce_lab import rnic, topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from softroce_lab.perftest.rnics import opened
from softroce_lab.rnic import (
    CQ,
    GID,
    MR,
    PD,
    SGE,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    SendWR,
)  # fmt: skip
from softroce_lab.rnic.enums import (
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    ibv_mtu,
)  # fmt: skip
from softroce_lab.shift import Backup, LocalStore, Pump, Sender, Settings, ShiftQP
from softroce_lab.shift.rails import Rails
from tests.interop import rxe, shift_peer, verbs_peer

MS = 1_000_000
SETTINGS = Settings(
    handshake_timeout_ns=5_000 * MS, probe_interval_ns=50 * MS, most_probe_interval_ns=400 * MS,
    drain_timeout_ns=5_000 * MS,
)  # fmt: skip
IN_MEMORY = Settings(probe_interval_ns=MS, most_probe_interval_ns=4 * MS)
SLOT, LONG, SHORT = 1024, 600, 100
PATIENCE_S = 60


class Near:
    """The end with the ShiftQP; `go_on` lets time pass."""

    def __init__(self, contexts, settings, go_on, *, timeout, retry_cnt, in_background=False):
        self.context, self._go_on = contexts[0], go_on
        self.timeout, self.retry_cnt = timeout, retry_cnt
        self.store = LocalStore()
        self.backup = Backup(*contexts, self.store, settings, in_background=in_background)
        self.pd, self.cq = PD(self.context), CQ(self.context, 1024)
        self.memory = np.zeros(1 << 19, np.uint8)
        self.mr = MR(self.pd, self.memory, 15)
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, QPCap(256, 8, 1, 1, 64), 0)
        self.qp = ShiftQP(self.pd, init, backup=self.backup)
        self.posted = self.done = 0

    def here(self):
        """What the peer must know, from the key-value service."""
        gid = str(self.context.query_gid(1, 0))
        backup = self.store.scan(f"qp/{gid}/{self.qp.qp_num}").get(f"qp/{gid}/{self.qp.qp_num}")
        return {"gid": gid, "qpn": self.qp.qp_num, "psn": 5, "backup": backup}

    def connect(self, gid, qpn, psn):
        self.qp.to_rts(
            QPAttr(
                qp_access_flags=15, path_mtu=ibv_mtu.IBV_MTU_1024, dest_qp_num=qpn,
                ah_attr=AHAttr(is_global=1, gr=GlobalRoute(GID(gid))), sq_psn=5, rq_psn=psn,
                timeout=self.timeout, retry_cnt=self.retry_cnt, rnr_retry=7, min_rnr_timer=12,
            )
        )  # fmt: skip

    def know(self, hello):
        """What the peer publishes."""
        self.far = hello
        self.store.put(f"qp/{hello['gid']}/{hello['qpn']}", hello["backup"])
        first, second = hello["rkeys"]
        self.store.put(f"region/{hello['gid']}/{first}", second)

    def rounds(self, count):
        """Of each round a WRITE, a WRITE with immediate and a SEND, and wait for its end."""
        for _ in range(count):
            self.post()
            self.until(lambda: self.done == self.posted)

    def post(self):
        number, at = self.posted, self.posted % 256 * SLOT
        content = np.frombuffer(verbs_peer.content(number, LONG + SHORT), np.uint8)
        self.memory[at : at + LONG + SHORT] = content
        notice = self._request(number, IBV_WR_RDMA_WRITE_WITH_IMM, at + LONG, SHORT)
        word = self._request(number, IBV_WR_SEND, at, 1 + number % LONG, IBV_SEND_SIGNALED)
        data = self._request(number, IBV_WR_RDMA_WRITE, at, LONG)
        for each in (data, notice, word):
            self.qp.post_send(each)
        self.posted += 1

    def _request(self, number, opcode, at, length, flags=0):
        place = [SGE(self.mr.buf + at, length, self.mr.lkey)]
        wr = SendWR(number, opcode, 1, socket.htonl(number), place, flags)
        if opcode != IBV_WR_SEND:
            wr.set_wr_rdma(self.far["rkeys"][0], self.far["addr"] + at)
        return wr

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.qp.machine.sender
            self._go_on()
            for each in self.cq.poll(64)[1]:
                assert each.status == IBV_WC_SUCCESS, self.backup.events
                assert each.wr_id == self.done
                self.done += 1

    @property
    def state(self):
        return self.qp.machine.sender


def expected(rounds):
    """Notifications: the number of each receive, its immediate, and how many bytes."""
    return [
        each for n in range(rounds) for each in ([2 * n, n, SHORT], [2 * n + 1, None, 1 + n % LONG])
    ]


def check(near, report, digest):
    """Once, in order, and all bytes in their places."""
    assert report["notified"] == expected(near.posted)
    pieces, wanted = [], []
    for n in range(near.posted):
        content = verbs_peer.content(n, LONG + SHORT)
        pieces.append([n * SLOT, LONG + SHORT])
        wanted.append(content)
        receive = shift_peer.RECEIVES + (2 * n + 1) % 256 * shift_peer.RECEIVE_BYTES
        if near.posted - n <= 64:
            pieces.append([receive, 1 + n % LONG])
            wanted.append(content[: 1 + n % LONG])
    found = digest(pieces=pieces)["digests"]
    assert found == [hashlib.sha256(each).hexdigest() for each in wanted]


def talk(near, set_link, goes_on):
    """Before, over the backup, and back; the rail fails while requests are posted."""
    near.rounds(6)
    for _ in range(4):
        near.post()
    set_link("down")
    for _ in range(4):
        near.post()
    near.until(lambda: near.done == near.posted)
    assert near.state is Sender.FALLBACK
    near.rounds(6)
    set_link("up")
    near.until(lambda: near.state is not Sender.FALLBACK)
    near.rounds(2)
    near.until(lambda: near.state is Sender.DEFAULT and near.qp.machine.plain)
    near.rounds(6)
    goes_on()


def test_the_peer_is_one_over_rnics_in_memory():
    """What the guest's program does is right where nothing but the lab is concerned."""
    with Rails(delay_ns=1000) as rails:
        peer = shift_peer.Peer(rails.contexts[1], rnic, 0, timeout=5)

        def go_on():
            rails.pass_time(20_000)
            near.backup.advance()
            while peer.step():
                pass

        near = Near(rails.contexts[0], IN_MEMORY, go_on, timeout=3, retry_cnt=1)
        near.know(peer.hello())
        peer.connect(**near.here())
        near.connect(peer.gids[0], peer.qps[0].qp_num, peer.psns[0])
        talk(near, lambda word: rails.cut(down=word == "down"), go_on)
        assert [epoch for epoch, *_ in peer.moves] == [1, 2]
        check(near, peer.report(), peer.digest)


# ---------------------------------------------------------------- Linux


@pytest.fixture(scope="module")
def lab():
    made = fabric.up(topology.load("kernel-rails", name="shift-rxe"), ephemeral=True)
    yield made
    made.down()


def link(lab, word):
    links = links_of(lab.plan, "h1:eth1")
    wanted = live.parse_impairments([word])
    lab.faults.change(lambda plan: live.set_on(plan, links, wanted), time.monotonic_ns)


@contextlib.contextmanager
def rails_of(lab):
    """Both of the soft host."""
    with (
        opened(lab, "h1", path_mtu=1024) as first,
        opened(lab, "h1", path_mtu=1024, rail="eth2") as second,
    ):
        yield first, second


def program(guest, source, *arguments):
    """A peer in the guest, which does what it is asked."""
    return contextlib.closing(rxe.Remote(guest, Path(source.__file__), *arguments))


def test_two_rails_of_rxe_take_over_from_each_other(lab):
    with rails_of(lab) as contexts, program(lab.guest("k1"), shift_peer) as remote:
        near = Near(contexts, SETTINGS, lambda: time.sleep(0.001), timeout=16, retry_cnt=4)
        far = remote.hello()
        near.know(far)
        with Pump(near.backup) as pump:
            remote.connect(**near.here())
            near.connect(far["gid"], far["qpn"], far["psn"])
            near._go_on = lambda: remote.work(seconds=0.02)
            talk(near, lambda word: link(lab, word), near._go_on)
            assert pump.error is None
        report = remote.report()
        assert [epoch for epoch, *_ in report["moves"]] == [1, 2]
        check(near, report, remote.digest)
    print(json.dumps({"moves": report["moves"]}))


def test_a_program_without_a_backup_is_a_peer_until_the_rail_fails(lab):
    """It publishes nothing: set-up in the background goes on waiting, and a failure surfaces."""
    with rails_of(lab) as contexts, program(lab.guest("k1"), verbs_peer, "rxe0") as remote:
        near = Near(contexts, SETTINGS, lambda: time.sleep(0.001), timeout=16, retry_cnt=4,
                    in_background=True)  # fmt: skip
        hello, psn = remote.hello(), 77
        qpn = remote.create(kind="rc", psn=psn)["qpn"]
        near.far = {"rkeys": [hello["rkey"]], "addr": hello["addr"]}
        with Pump(near.backup):
            near.connect(hello["gid"], qpn, psn)
            remote.connect(gid=near.here()["gid"], qpn=near.qp.qp_num, psn=5, mtu=1024)
            near.qp.post_send(near._request(0, IBV_WR_RDMA_WRITE, 0, LONG, IBV_SEND_SIGNALED))
            near.until(lambda: near.done == 1)
            link(lab, "down")
            try:
                near.qp.post_send(near._request(1, IBV_WR_RDMA_WRITE, 0, LONG, IBV_SEND_SIGNALED))
                until = time.monotonic() + PATIENCE_S
                found = []
                while not found and time.monotonic() < until:
                    time.sleep(0.01)
                    found = near.cq.poll(8)[1]
            finally:
                link(lab, "up")
        assert [each.status for each in found] == [IBV_WC_RETRY_EXC_ERR]
        assert near.state is Sender.FAILED
