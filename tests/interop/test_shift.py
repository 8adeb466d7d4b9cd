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

from softroce_lab import topology, verbs
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.fabric import lab as fabric
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from softroce_lab.transports.shift import Backup, LocalStore, Pump, Sender, Settings, ShiftQP
from softroce_lab.transports.shift.rails import Rails
from softroce_lab.verbs import (
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
    RecvWR,
    SendWR,
)  # fmt: skip
from softroce_lab.verbs.enums import (
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    ibv_mtu,
)  # fmt: skip
from tests.interop import rxe, shift_peer, verbs_peer

MS = 1_000_000
SETTINGS = Settings(
    handshake_timeout_ns=5_000 * MS, probe_interval_ns=50 * MS, most_probe_interval_ns=400 * MS,
    drain_timeout_ns=5_000 * MS,
)  # fmt: skip
IN_MEMORY = Settings(probe_interval_ns=MS, most_probe_interval_ns=4 * MS)
SLOT, LONG, SHORT = 1024, 600, 100
PATIENCE_S = 60
DEPTH = 64  # receives


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
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, QPCap(256, DEPTH, 1, 1, 64), 0)
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
            assert time.monotonic() < deadline, self.qp.sender
            self._go_on()
            for each in self.cq.poll(64)[1]:
                assert each.status == IBV_WC_SUCCESS, self.backup.events
                assert each.wr_id == self.done
                self.done += 1

    @property
    def state(self):
        return self.qp.sender


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
    near.until(lambda: near.state is Sender.DEFAULT and near.qp.plain)
    near.rounds(6)
    goes_on()


def joined(rails, kind, *, timeout):
    """(near end of this class, peer, what goes on while either waits), connected in memory."""
    peer = shift_peer.Peer(rails.contexts[1], verbs, 0, timeout=timeout)

    def go_on():
        rails.pass_time(20_000)
        near.backup.advance()
        while peer.step():
            pass

    near = kind(rails.contexts[0], IN_MEMORY, go_on, timeout=3, retry_cnt=1)
    near.know(peer.hello())
    peer.connect(**near.here())
    near.connect(peer.gids[0], peer.qps[0].qp_num, peer.psns[0])
    return near, peer, go_on


def test_the_peer_is_one_over_rnics_in_memory():
    """What the guest's program does is right where nothing but the lab is concerned."""
    with Rails(delay_ns=1000) as rails:
        near, peer, go_on = joined(rails, Near, timeout=5)
        talk(near, lambda word: rails.cut(down=word == "down"), go_on)
        assert [epoch for epoch, *_ in peer.moves] == [1, 2]
        check(near, peer.report(), peer.digest)


# ---------------------------------------------------------------- the other end sends


PLACES = 1 << 18  # of receives, in the memory of the near end
REUSED = 0xEE


class Taking(Near):
    """The end with the ShiftQP, which is notified, checks, and then reuses the memory."""

    receives = taken = 0

    def connect(self, gid, qpn, psn):
        super().connect(gid, qpn, psn)
        for _ in range(DEPTH):
            self.receive()

    def receive(self):
        at = PLACES + self.receives % 128 * SLOT
        place = [SGE(self.mr.buf + at, SLOT, self.mr.lkey)]
        self.qp.post_recv(RecvWR(self.receives, 1, place))
        self.receives += 1

    def target(self):
        """What a sender must know."""
        gid = str(self.context.query_gid(1, 0))
        found = self.store.scan(f"region/{gid}/{self.mr.rkey}")
        return {"addr": self.mr.buf, "rkeys": [self.mr.rkey, *found.values()]}

    def take(self, rounds):
        """Notifications of so many rounds, once and in order, with the bytes of each."""
        deadline = time.monotonic() + PATIENCE_S
        while self.taken < 2 * rounds:
            assert time.monotonic() < deadline, (self.state, self.taken)
            self._go_on()
            for each in self.cq.poll(64)[1]:
                self.check(each)
        self._go_on()
        assert self.cq.poll(64)[1] == []

    def check(self, each):
        n, is_word = divmod(self.taken, 2)
        assert (each.status, each.wr_id) == (IBV_WC_SUCCESS, self.taken), self.backup.events
        content = np.frombuffer(verbs_peer.content(n, LONG + SHORT), np.uint8)
        if is_word:
            at = PLACES + self.taken % 128 * SLOT
            assert each.byte_len == 1 + n % LONG
            assert (self.memory[at : at + each.byte_len] == content[: each.byte_len]).all()
        else:
            assert socket.ntohl(each.imm_data) == n
            slot = self.memory[n % 256 * SLOT :][: LONG + SHORT]
            assert (slot == content).all()
            slot[:] = REUSED
        self.taken += 1
        self.receive()

    def check_end(self, rounds):
        """No WRITE has come once more into memory that was reused."""
        slots = self.memory[: rounds * SLOT].reshape(rounds, SLOT)[:, : LONG + SHORT]
        assert (slots == REUSED).all()


def listen(near, send, drain, set_link):
    """The other end's rail fails while it sends, and it goes on over the other one, and back."""
    send(6)
    near.take(6)
    send(4)
    set_link("down")
    send(8)
    near.take(18)
    wait(near, lambda: near.state is not Sender.DEFAULT)
    set_link("up")
    wait(near, lambda: near.state is Sender.WAIT_SIGNALED)
    drain()
    wait(near, lambda: near.state is Sender.DEFAULT)
    send(6)
    near.take(24)
    near.check_end(24)


def wait(near, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, near.state
        near._go_on()


@pytest.mark.parametrize(
    ("dead", "resubmitted"),
    [((1,), 24), ((0,), 0), ((0, 1), 24)],
    ids=["requests lost", "acknowledgements lost", "both"],
)
def test_a_program_over_rnics_in_memory_sends_to_a_shift_qp(dead, resubmitted):
    """What the near end has taken is not sent again, though nobody acknowledged it."""

    def set_link(word):
        for side in dead:
            rails.pairs[0].cable(side).down = word == "down"

    with Rails(delay_ns=1000) as rails:
        near, peer, _ = joined(rails, Taking, timeout=3)
        listen(near, lambda rounds: peer.send(rounds, **near.target()), peer.drain, set_link)
        report = peer.report()
        assert [epoch for epoch, *_ in report["moves"]] == [1, 2]
        assert report["kept"] == 0
        assert report["resubmitted"] >= resubmitted
        assert resubmitted or report["resubmitted"] == 0


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


def test_a_program_that_keeps_its_requests_sends_over_two_rails_of_rxe(lab):
    with rails_of(lab) as contexts, program(lab.guest("k1"), shift_peer) as remote:
        near = Taking(
            contexts, SETTINGS, lambda: remote.work(seconds=0.02), timeout=16, retry_cnt=4
        )
        far = remote.hello()
        near.know(far)
        with Pump(near.backup) as pump:
            remote.connect(**near.here())
            near.connect(far["gid"], far["qpn"], far["psn"])
            listen(near, lambda rounds: remote.send(rounds=rounds, **near.target()), remote.drain,
                   lambda word: link(lab, word))  # fmt: skip
            assert pump.error is None
        report = remote.report()
        assert [epoch for epoch, *_ in report["moves"]] == [1, 2]
        assert report["kept"] == 0
        assert report["resubmitted"] > 0
    print(json.dumps({"moves": report["moves"], "resubmitted": report["resubmitted"]}))


def test_a_kernel_sender_that_knows_of_no_backup_has_its_error(lab):
    """As with a plain queue pair: nothing arrives after it, and the ShiftQP does not move."""
    with rails_of(lab) as contexts, program(lab.guest("k1"), verbs_peer, "rxe0") as remote:
        near = Taking(contexts, SETTINGS, lambda: time.sleep(0.001), timeout=16, retry_cnt=4,
                      in_background=True)  # fmt: skip
        hello, psn = remote.hello(), 77
        qpn = remote.create(kind="rc", psn=psn)["qpn"]
        with Pump(near.backup) as pump:
            near.connect(hello["gid"], qpn, psn)
            remote.connect(gid=near.here()["gid"], qpn=near.qp.qp_num, psn=5, mtu=1024,
                           retry_cnt=shift_peer.RETRIES)  # fmt: skip
            remote.fill(at=0, length=LONG + SHORT, seed=0)

            def post(opcode, at, length):
                remote.post(opcode=opcode, at=at, length=length, there=near.mr.buf + at,
                            rkey=near.mr.rkey, imm=socket.htonl(0))  # fmt: skip
                return remote.poll(count=1, timeout_s=30)["completions"][0][1]

            assert post("write", 0, LONG) == IBV_WC_SUCCESS
            assert post("write_imm", LONG, SHORT) == IBV_WC_SUCCESS
            assert post("send", 0, 1) == IBV_WC_SUCCESS
            near.take(1)
            link(lab, "down")
            try:
                assert post("write", 0, LONG) == IBV_WC_RETRY_EXC_ERR
                assert post("send", 0, 1) == IBV_WC_WR_FLUSH_ERR
            finally:
                link(lab, "up")
            time.sleep(0.2)
            assert near.cq.poll(64)[1] == []
            near.check_end(1)
            assert near.state is Sender.DEFAULT
            assert near.backup.events == []
            assert pump.error is None
