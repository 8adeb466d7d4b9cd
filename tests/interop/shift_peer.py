# SPDX-License-Identifier: GPL-2.0-or-later
"""The other end of a ShiftQP's connection, in verbs alone (docs/explanation/shift.md).

shift_peer.py               in a kernel guest, with rdma-core's pyverbs, over rxe0 and rxe1: a JSON
                            document a line on standard input and output
Peer(contexts, verbs, gid)  in a test, with softroce_lab.verbs in the place of `verbs`

It is what a program on any RNIC would have to do: two queue pairs, a third for control messages,
a mailbox, and answers to MOVE and DRAINED. As a sender it keeps its requests itself, for libibverbs
hands none back, and posts WRITEs and notifications alone: whether a packet of a request has left is
not known, so that an atomic could never be posted again.
"""

import collections
import hashlib
import importlib
import json
import random
import socket
import struct
import sys
import time
import types

ACCESS = 15  # local write, remote write, read, atomic
ERR, RESET = 6, 0
STATE = 1  # IBV_QP_STATE
SLOTS = 16
MESSAGE = struct.Struct(">4sBxxxIIQIII16s")
MAGIC = b"SHF2"
MOVE, DRAINED, FAILED = 1, 2, 4
MEMORY_BYTES = 1 << 20
RECEIVES, RECEIVE_BYTES, DEPTH = 1 << 19, 1024, 64
PSN_MASK, PSN_GAP = 0xFFFFFF, 1 << 18
RC, WRITE, WRITE_WITH_IMM, SEND, SIGNALED = 2, 0, 1, 2, 2
SENDS = 1 << 20  # ids of requests begin there
LONG, SHORT, SLOT = 600, 100, 1024
SUCCESS, RECEIVED = 0, 128
WAIT_S = 30
RETRIES = 4  # with 7 rxe never gives up


class Peer:
    """Both rails of a host, and what came."""

    def __init__(self, contexts, verbs, sgid_index, timeout=16):
        self.verbs, self.sgid_index, self.timeout = verbs, sgid_index, timeout
        self.gids = [str(each.query_gid(1, sgid_index)) for each in contexts]
        self.pds = [verbs.PD(each) for each in contexts]
        self.cqs = [verbs.CQ(each, 1024) for each in contexts]
        self.mrs = [verbs.MR(self.pds[0], MEMORY_BYTES, ACCESS)]
        self.mrs.append(verbs.MR(self.pds[1], MEMORY_BYTES, ACCESS, address=self.mrs[0].buf))
        self.mailbox = verbs.MR(self.pds[1], SLOTS * MESSAGE.size, ACCESS)
        self.out = verbs.MR(self.pds[1], SLOTS * MESSAGE.size, ACCESS)
        self.control_cq = verbs.CQ(contexts[1], 1024)
        self.qps = [self._qp(self.pds[n], self.cqs[n]) for n in range(2)]
        self.control = self._qp(self.pds[1], self.control_cq)
        self.psns = [0x111111, 0x222222]  # of which these queue pairs begin
        self.epoch = self.sent = self.taken = self.posted = 0
        self.notified = []  # (wr_id, immediate or None, bytes)
        self.moves = []
        self.kept = collections.deque()  # requests that are not known to be done: (number, opcode)
        self.requests = self.ended = self.acknowledged = self.resubmitted = 0
        self.used = [0, 0]  # PSNs of each queue pair since it began
        self.broken = self.drained = False
        self.flushed = []  # numbers of receives

    def _qp(self, pd, cq):
        cap = self.verbs.QPCap(max_send_wr=64, max_recv_wr=256, max_send_sge=1, max_recv_sge=1)
        return self.verbs.QP(
            pd, self.verbs.QPInitAttr(qp_type=RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=0)
        )

    # ---------------------------------------------------------------- setting up

    def hello(self):
        """What the other end must know: as a ShiftQP publishes it, and the default queue pair."""
        return {
            "gid": self.gids[0], "qpn": self.qps[0].qp_num, "psn": self.psns[0],
            "addr": self.mrs[0].buf, "rkeys": [each.rkey for each in self.mrs],
            "backup": {
                "gid": self.gids[1], "qp": self.qps[1].qp_num, "psn": self.psns[1],
                "control": {"qp": self.control.qp_num, "psn": 7, "mailbox": self.mailbox.buf,
                            "rkey": self.mailbox.rkey},
            },
        }  # fmt: skip

    def connect(self, gid, qpn, psn, backup):
        """To the other end's three queue pairs, with receives for notifications and messages."""
        self.there = [(gid, qpn), (backup["gid"], backup["qp"])]
        self.peer = backup["control"]
        self._bring(0, psn)
        self._bring(1, backup["psn"])
        attr = self._attr(backup["gid"], self.peer["qp"], 7, self.peer["psn"])
        self.control.to_rts(attr)
        for _ in range(SLOTS):
            self._expect_message()
        for _ in range(DEPTH):
            self._post_receive(0)
        return {}

    def _attr(self, gid, qpn, psn, peer_psn):
        route = self.verbs.GlobalRoute(dgid=self.verbs.GID(gid), sgid_index=self.sgid_index)
        attr = self.verbs.QPAttr(port_num=1)
        attr.ah_attr = self.verbs.AHAttr(gr=route, is_global=1, port_num=1)
        attr.qp_access_flags, attr.path_mtu = ACCESS, 3  # 1024
        attr.dest_qp_num, attr.sq_psn, attr.rq_psn = qpn, psn, peer_psn
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry = 12, 7
        attr.timeout, attr.retry_cnt = self.timeout, RETRIES
        return attr

    def _bring(self, path, peer_psn):
        self.qps[path].to_rts(self._attr(*self.there[path], self.psns[path], peer_psn))

    def _post_receive(self, path):
        """The next one, in a place of its own."""
        self._post(path, self.posted)
        self.posted += 1

    def _post(self, path, number):
        at = self.mrs[0].buf + RECEIVES + number % 256 * RECEIVE_BYTES
        sge = self.verbs.SGE(at, RECEIVE_BYTES, self.mrs[path].lkey)
        self.qps[path].post_recv(self.verbs.RecvWR(wr_id=number, num_sge=1, sg=[sge]))

    def _expect_message(self):
        sge = self.verbs.SGE(self.out.buf, 0, self.out.lkey)
        self.control.post_recv(self.verbs.RecvWR(wr_id=0, num_sge=1, sg=[sge]))

    # ---------------------------------------------------------------- what comes

    def step(self):
        """Take what has come, and answer; whether anything had."""
        got = self._take(self.epoch & 1)
        if self.broken and not self.moving:
            self._leave()
        _, completions = self.control_cq.poll(16)
        for each in completions:
            if int(each.opcode) >= RECEIVED and int(each.status) == SUCCESS:
                self._handle()
        return bool(got or completions)

    def _take(self, path):
        """How many completed; receives that were flushed wait for the other path."""
        count, completions = self.cqs[path].poll(64)
        for each in completions:
            if int(each.wr_id) >= SENDS:
                self._end(int(each.wr_id) - SENDS, int(each.status))
                continue
            if int(each.status) != SUCCESS:
                self.flushed.append(int(each.wr_id))
                continue
            immediate = socket.ntohl(each.imm_data) if int(each.wc_flags) & 2 else None
            self.notified.append([int(each.wr_id), immediate, each.byte_len])
            if path == self.epoch & 1 and not self.moving:
                self._post_receive(path)
        return count

    moving = False

    def _handle(self):
        slot = self.taken % SLOTS
        data = self.mailbox.read(MESSAGE.size, slot * MESSAGE.size)
        magic, kind, epoch, psn, received, number, *_ = MESSAGE.unpack(data)
        if magic != MAGIC or number != self.taken:
            raise ValueError(f"the mailbox does not hold message {self.taken}")
        self.taken += 1
        self._expect_message()
        if kind == DRAINED and epoch == self.epoch and not self.drained:
            self.drain()
        elif kind == MOVE:
            if epoch == self.epoch + 1:
                self._leave()
            self._resolve(received, psn)

    def drain(self):
        """Nothing is in flight here, and nothing more is posted on this path."""
        if self.kept:
            raise ValueError("requests are in flight")
        self.drained = True
        self._tell(DRAINED, 0)
        return {}

    def _leave(self):
        """Out of RTR, receives to the other rail, then the count."""
        old = self.epoch & 1
        self.moving = True
        self.qps[old].modify(self.verbs.QPAttr(qp_state=ERR), STATE)
        until = time.monotonic() + WAIT_S
        while self.flushing:
            self._take(old)
            if time.monotonic() > until:
                raise TimeoutError("the failed queue pair is not flushed")
        self.epoch += 1
        left, self.flushed = self.flushed, []
        for number in left:
            self._post(1 - old, number)
        while self.posted - len(self.notified) < DEPTH:
            self._post_receive(1 - old)
        self.psns[old] = (self.psns[old] + self.used[old] + PSN_GAP) & PSN_MASK
        self.used[old] = 0
        self._tell(MOVE, self.psns[old])
        self.moves.append([self.epoch, len(self.notified), len(left)])

    @property
    def flushing(self):
        """Whether receives or requests of a queue pair in error have not completed."""
        here = len(self.flushed) + len(self.notified)
        return here < self.posted or self.ended < self.requests

    def _resolve(self, received, peer_psn):
        """The other end's count is known: what it has not taken goes on here, the old QP is anew.

        All before the last notification that it took is done, a WRITE among it, too.
        """
        old = 1 - (self.epoch & 1)
        while self.acknowledged < received:
            self._done()
        self.broken = self.drained = self.moving = False
        self.qps[old].modify(self.verbs.QPAttr(qp_state=RESET), STATE)
        self._bring(old, peer_psn)
        self.resubmitted += len(self.kept)
        for each in self.kept:
            self._request(*each)

    # ---------------------------------------------------------------- what is sent

    def send(self, rounds, addr, rkeys):
        """Of each round a WRITE, a WRITE with immediate and a SEND, all of them signaled."""
        self.target, self.rkeys = addr, rkeys
        first = self.requests_ever // 3
        for number in range(first, first + rounds):
            content = random.Random(number).randbytes(LONG + SHORT)
            self.mrs[0].write(content, LONG + SHORT, number % 256 * SLOT)
            for opcode in (WRITE, WRITE_WITH_IMM, SEND):
                self.kept.append((self.requests_ever, opcode))
                self.requests_ever += 1
                if not self.moving:
                    self._request(*self.kept[-1])
        return {}

    requests_ever = 0

    def _request(self, number, opcode):
        """On the path of today."""
        path, n = self.epoch & 1, number // 3
        at = n % 256 * SLOT + (LONG if opcode == WRITE_WITH_IMM else 0)
        length = {WRITE: LONG, WRITE_WITH_IMM: SHORT, SEND: 1 + n % LONG}[opcode]
        sge = self.verbs.SGE(self.mrs[0].buf + at, length, self.mrs[path].lkey)
        wr = self.verbs.SendWR(
            wr_id=SENDS + number, opcode=opcode, num_sge=1, sg=[sge], send_flags=SIGNALED,
            imm_data=socket.htonl(n),
        )  # fmt: skip
        if opcode != SEND:
            wr.set_wr_rdma(self.rkeys[path], self.target + at)
        self.qps[path].post_send(wr)
        self.requests += 1
        self.used[path] += 1  # a request is one packet

    def _end(self, number, status):
        """A request is over: done, or to be asked about."""
        self.ended += 1
        if status != SUCCESS:
            self.broken = True
        elif not self.kept or self.kept[0][0] != number:
            raise ValueError(f"request {number} is done before {self.kept[:1]}")
        else:
            self._done()

    def _done(self):
        """The oldest one is."""
        _, opcode = self.kept.popleft()
        self.acknowledged += opcode != WRITE

    def _tell(self, kind, psn):
        slot = self.sent % SLOTS
        data = MESSAGE.pack(MAGIC, kind, self.epoch, psn, len(self.notified), self.sent,
                            self.qps[0].qp_num, self.qps[1].qp_num, bytes(16))  # fmt: skip
        self.out.write(data, MESSAGE.size, slot * MESSAGE.size)
        sge = self.verbs.SGE(self.out.buf + slot * MESSAGE.size, MESSAGE.size, self.out.lkey)
        wr = self.verbs.SendWR(
            wr_id=0, opcode=WRITE_WITH_IMM, num_sge=1, sg=[sge], send_flags=SIGNALED,
            imm_data=socket.htonl(len(self.notified)),
        )  # fmt: skip
        wr.set_wr_rdma(self.peer["rkey"], self.peer["mailbox"] + slot * MESSAGE.size)
        self.control.post_send(wr)
        self.sent += 1

    # ---------------------------------------------------------------- what is asked

    def work(self, seconds):
        """Go on for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.step():
                time.sleep(0.0005)
        return {"notified": len(self.notified), "epoch": self.epoch, "kept": len(self.kept)}

    def report(self):
        """All that came, in order, and the moves."""
        return {
            "notified": self.notified, "moves": self.moves, "epoch": self.epoch,
            "resubmitted": self.resubmitted, "kept": len(self.kept),
        }  # fmt: skip

    def digest(self, pieces):
        """What is in the memory now: a hash for each (offset, length)."""
        memory = self.mrs[0]
        return {"digests": [hashlib.sha256(memory.read(n, at)).hexdigest() for at, n in pieces]}


def pyverbs():
    """rdma-core's classes under one name, as `softroce_lab.verbs` has them."""
    names = types.SimpleNamespace()
    for module in ("addr", "cq", "mr", "pd", "qp", "wr"):
        vars(names).update(vars(importlib.import_module(f"pyverbs.{module}")))
    return names


def serve():
    """Do as the lines say, until they end."""
    from pyverbs.device import Context

    peer = Peer([Context(name=name) for name in ("rxe0", "rxe1")], pyverbs(), 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(peer, command.pop("do"))(**command)
        except Exception as error:  # the test prints it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
