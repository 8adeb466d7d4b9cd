# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts that post requests of any kind, right and wrong: `python fuzz_requests.py SEED STEPS`.

Over a cable that loses, doubles and reorders, regions and queue pairs come and go meanwhile. Run in
a process of its own, so that a crash is seen. Whatever happens, memory that nobody registered stays
as it was, and every request that was taken ends once.
"""

import collections
import random
import sys

from softroce_lab import _native
from softroce_lab.verbs import MR, SGE, Context, PyverbsRDMAError, QPAttr, RecvWR
from softroce_lab.verbs.enums import *
from tests.verbs.conftest import ADDRESSES, message_config
from tests.verbs.sides import BYTES, MILLISECOND_NS, SECOND_NS, SERVICES, Side, connect, run

RIGHTS = (IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC)
WRONG_ADDRESSES = (0, 8, 1 << 20, (1 << 63), (1 << 64) - 8, (1 << 64) - 4096)


class Conversation:
    """Two connected sides of one service."""

    def __init__(self, contexts, service, dice):
        self.sides = [Side(context, service, cqe=1 << 16, sq_sig_all=1) for context in contexts]
        self.dice = dice
        self.extra = [[], []]
        self.taken = [collections.Counter(), collections.Counter()]
        connect(*self.sides)

    def step(self):
        which = self.dice.randrange(2)
        act = self.dice.choices(
            (self.send, self.receive, self.region, self.drop_region, self.state),
            (60, 30, 5, 4, 1),
        )[0]
        act(which)

    def mr(self, which):
        return self.dice.choice([self.sides[which].mr, *self.extra[which]])

    def place(self, which, length):
        """An address and a key, as often as not of memory that is there."""
        mr = self.mr(which)
        key = mr.lkey
        address = mr.iova + self.dice.choice((0, 8, 64, BYTES - length, BYTES - length + 1, -1, -8,
                                              self.dice.randrange(BYTES)))  # fmt: skip
        if self.dice.random() < 0.05:
            address = self.dice.choice(WRONG_ADDRESSES)
        if self.dice.random() < 0.05:
            key ^= 1 << self.dice.randrange(16)
        return address % (1 << 64), key

    def length(self):
        return self.dice.choice((0, 1, 8, 64, 1023, 1024, 1025, 5000, 20_000, BYTES, 1 << 31,
                                 (1 << 32) - 1) if self.dice.random() < 0.1
                                else (0, 1, 8, 64, 1024, 2000, 5000))  # fmt: skip

    def elements(self, which):
        made = []
        for _ in range(self.dice.choice((1, 1, 1, 2, 3, 8, 9))):
            length = self.length()
            made.append(SGE(*reversed_place(self.place(which, length), length)))
        return made

    def send(self, which):
        here, there = self.sides[which], self.sides[1 - which]
        opcode = self.dice.choice(list(ibv_wr_opcode))
        address, key = self.place(1 - which, self.length())
        sg = self.elements(which)
        if opcode in (5, 6) and self.dice.random() < 0.9:
            address, sg = address // 8 * 8, [SGE(here.mr.buf, 8, here.mr.lkey)]
        options = {"rkey": key, "remote_addr": address, "sg": sg, "add": self.dice.getrandbits(64),
                   "swap": self.dice.getrandbits(64), "send_flags": self.dice.randrange(16),
                   "imm_data": self.dice.getrandbits(32) if opcode != 9 else key}  # fmt: skip
        self.attempt(which, lambda: here.post(opcode, there, 0, **options))

    def receive(self, which):
        request = RecvWR(0, num_sge=len(sg := self.elements(which)), sg=sg)
        self.attempt(which, lambda: self.sides[which].qp.post_recv(request))

    def attempt(self, which, post):
        try:
            post()
        except PyverbsRDMAError:
            return
        self.taken[which]["requests"] += 1

    def region(self, which):
        side = self.sides[which]
        access = IBV_ACCESS_LOCAL_WRITE
        for right in RIGHTS:
            access |= right * self.dice.randrange(2)
        iova = self.dice.choice((None, 0, 1 << 40))
        self.extra[which].append(MR(side.pd, side.memory, access, iova=iova))

    def drop_region(self, which):
        if self.extra[which]:
            self.extra[which].pop(self.dice.randrange(len(self.extra[which]))).close()

    def state(self, which):
        self.sides[which].qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)

    def collect(self):
        for side, taken in zip(self.sides, self.taken, strict=True):
            taken["ends"] += len(side.poll())
            assert side.guards_stand(), "memory outside every region was written"

    def mend(self):
        """Bring both to RTS again, when one is not there; everything ends before."""
        if all(side.state == IBV_QPS_RTS for side in self.sides):
            return
        for side in self.sides:
            side.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
        self.collect()
        for taken in self.taken:
            assert taken["requests"] == taken["ends"], taken
        for side in self.sides:
            side.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)
        connect(*self.sides)


def reversed_place(place, length):
    address, key = place
    return address, length, key


def main(seed, steps):
    dice = random.Random(seed)
    pair = _native.Pair(*(message_config(address) for address in ADDRESSES), seed)
    contexts = [Context(pair.side(which)) for which in range(2)]
    for which in range(2):
        cable = pair.cable(which)
        cable.loss = cable.duplicate = int(dice.choice((0, 0.01, 0.1)) * 2**64)
        cable.delay_ns, cable.jitter_ns = 2_000, dice.choice((0, 10_000))
    conversations = [Conversation(contexts, service, dice) for service in SERVICES]
    for _ in range(steps):
        conversation = dice.choice(conversations)
        conversation.step()
        if dice.random() < 0.2:
            run(pair, dice.choice((1_000, 100_000, 2 * MILLISECOND_NS)))
            conversation.collect()
            conversation.mend()
    run(pair, SECOND_NS)
    ends = 0
    for conversation in conversations:
        for side in conversation.sides:
            side.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
        conversation.collect()
        for taken in conversation.taken:
            assert taken["requests"] == taken["ends"], taken
            ends += taken["ends"]
    print(ends)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
