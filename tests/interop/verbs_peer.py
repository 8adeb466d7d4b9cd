# SPDX-License-Identifier: GPL-2.0-or-later
"""One end of a conversation in verbs, told what to do: the same program for Linux and for the lab.

verbs_peer.py DEVICE        in a kernel guest, with rdma-core's pyverbs: a JSON document a line
                            on standard input and output
Peer(context, verbs, gid)   in a test, with softroce_lab.verbs in the place of `verbs`
"""

import hashlib
import importlib
import json
import random
import sys
import time
import types

MEMORY_BYTES = 9 << 20
QKEY = 0x11111111
GRH_BYTES = 40
ACCESS = 15  # local write, remote write, read, atomic
KINDS = {"rc": 2, "uc": 3, "ud": 4}
OPCODES = {"write": 0, "write_imm": 1, "send": 2, "send_imm": 3, "read": 4, "cmp_swap": 5,
           "fetch_add": 6}  # fmt: skip
SIGNALED = 2
TIMEOUT = 16  # 0.27 s: a guest on a busy machine may stand still for longer than 67 ms eight times
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}


def content(seed, length):
    """The bytes that both ends know under this seed."""
    return random.Random(seed).randbytes(length)


class Peer:
    """A protection domain, a region, a completion queue, and one queue pair after the other."""

    def __init__(self, context, verbs, sgid_index):
        self.verbs = verbs
        self.sgid_index = sgid_index
        self.gid = str(context.query_gid(1, sgid_index))
        self.pd = verbs.PD(context)
        self.cq = verbs.CQ(context, 4096)
        self.mr = verbs.MR(self.pd, MEMORY_BYTES, ACCESS)
        self.qp = self.ah = None

    def hello(self):
        """Where this end is, and the memory that it grants."""
        return {"gid": self.gid, "addr": self.mr.buf, "rkey": self.mr.rkey}

    def create(self, kind, psn):
        """A queue pair; the number is what the other end must know."""
        self.destroy()
        self.kind, self.psn = kind, psn
        cap = self.verbs.QPCap(max_send_wr=512, max_recv_wr=512, max_send_sge=1, max_recv_sge=1)
        init = self.verbs.QPInitAttr(
            qp_type=KINDS[kind], scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0
        )
        self.qp = self.verbs.QP(self.pd, init)
        return {"qpn": self.qp.qp_num}

    def _route(self, gid):
        route = self.verbs.GlobalRoute(dgid=self.verbs.GID(gid), sgid_index=self.sgid_index)
        return self.verbs.AHAttr(gr=route, is_global=1, port_num=1)

    def connect(self, gid, qpn, psn, mtu, timeout=TIMEOUT, rnr_retry=7, retry_cnt=7):
        """To the other end's queue pair."""
        attr = self.verbs.QPAttr(port_num=1)
        self.peer_qpn = qpn
        if self.kind == "ud":
            attr.qkey = QKEY
            attr.sq_psn = self.psn
            self.qp.to_rts(attr)
            self.ah = self.verbs.AH(self.pd, attr=self._route(gid))
            return {}
        attr.qp_access_flags = ACCESS
        attr.path_mtu = MTUS[mtu]
        attr.dest_qp_num = qpn
        attr.rq_psn, attr.sq_psn = psn, self.psn
        attr.ah_attr = self._route(gid)
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.rnr_retry = 1, rnr_retry
        attr.timeout, attr.retry_cnt = timeout, retry_cnt
        self.qp.to_rts(attr)
        return {}

    def fill(self, at, length, seed):
        """Put known bytes into the memory."""
        self.mr.write(content(seed, length), length, at)
        return {}

    def digest(self, pieces):
        """What is in the memory now: a hash for each (offset, length)."""
        return {"digests": [hashlib.sha256(self.mr.read(n, at)).hexdigest() for at, n in pieces]}

    def receive(self, at, length, count=1, stride=0):
        """Post receives, numbered from 0 on."""
        for number in range(count):
            sge = self.verbs.SGE(self.mr.buf + at + number * stride, length, self.mr.lkey)
            self.qp.post_recv(self.verbs.RecvWR(wr_id=number, num_sge=1, sg=[sge]))
        return {}

    def post(
        self, opcode, at, length, there=0, rkey=0, imm=0, first=0, second=0, count=1, stride=0
    ):
        """Post requests, numbered from 0 on; `stride` moves both ends of each."""
        for number in range(count):
            step = number * stride
            sge = self.verbs.SGE(self.mr.buf + at + step, length, self.mr.lkey)
            wr = self.verbs.SendWR(wr_id=number, opcode=OPCODES[opcode], num_sge=1, sg=[sge],
                                   imm_data=imm, send_flags=SIGNALED)  # fmt: skip
            if self.kind == "ud":
                wr.set_wr_ud(self.ah, self.peer_qpn, QKEY)
            elif opcode in ("cmp_swap", "fetch_add"):
                wr.set_wr_atomic(rkey, there + step, first, second)
            elif opcode not in ("send", "send_imm"):
                wr.set_wr_rdma(rkey, there + step)
            self.qp.post_send(wr)
        return {}

    def poll(self, count, timeout_s):
        """Completions until there are so many, or the time is over."""
        deadline, done = time.monotonic() + timeout_s, []
        while len(done) < count and time.monotonic() < deadline:
            _, completions = self.cq.poll(16)
            done += [
                [int(c.wr_id), int(c.status), int(c.opcode), c.byte_len, c.imm_data, c.wc_flags]
                for c in completions
            ]
            if not completions:
                time.sleep(0.0005)
        return {"completions": done}

    def state(self):
        """The state of the queue pair."""
        attr, _ = self.qp.query(1)
        return {"state": int(attr.qp_state)}

    def destroy(self):
        """End the queue pair, and forget what completed."""
        if self.ah is not None:
            self.ah.close()
        if self.qp is not None:
            self.qp.close()
        self.qp = self.ah = None
        while self.cq.poll(64)[0]:
            pass
        return {}


def pyverbs():
    """rdma-core's classes under one name, as `softroce_lab.verbs` has them."""
    names = types.SimpleNamespace()
    for module in ("addr", "cq", "mr", "pd", "qp", "wr"):
        vars(names).update(vars(importlib.import_module(f"pyverbs.{module}")))
    return names


def serve(device):
    """Do as the lines say, until they end."""
    from pyverbs.device import Context

    peer = Peer(Context(name=device), pyverbs(), 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(peer, command.pop("do"))(**command)
        except Exception as error:  # the test prints it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
