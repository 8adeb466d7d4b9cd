# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of operations of reliable connections over the lab's transports, to plant faults in.

    tape = record("irn", losses=[first(message=2, index=3)])
    tape.change(tape.of(REQUEST, 2), rkey=5)

The operations are those of `OPERATIONS`, twice; the number of one is its place in the list.
"""

import dataclasses
import functools

from softroce_lab.structs import enumerators
from softroce_lab.verbs import Context
from softroce_lab.verbs.enums import (
    IBV_WC_SUCCESS,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
)
from tests.check.striped_tape import ONE_WAY_NS, StripedTape, on_links
from tests.transports.sabotage import rule
from tests.verbs.conftest import carrying_pair
from tests.verbs.sides import ATOMICS, MILLISECOND_NS, connected, run

REQUEST, RESULT = (enumerators("lab_operation_class")[name] for name in ("request", "result"))
DATA = 0
PACKET_BYTES = 1024 - 64
OPERATIONS = (
    (IBV_WR_RDMA_WRITE, 5 * PACKET_BYTES),
    (IBV_WR_SEND, 2 * PACKET_BYTES - 7),
    (IBV_WR_RDMA_READ, 6 * PACKET_BYTES),
    (IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
    (IBV_WR_RDMA_READ, 100),
    (IBV_WR_ATOMIC_CMP_AND_SWP, 8),
    (IBV_WR_RDMA_WRITE_WITH_IMM, 3 * PACKET_BYTES),
    (IBV_WR_SEND, 0),
    (IBV_WR_RDMA_WRITE, 10),
)
WRITE, SEND, READ, ADD, SHORT_READ, SWAP, WRITE_IMM, EMPTY, LAST = range(len(OPERATIONS))
COUNT = 2 * len(OPERATIONS)
AGAIN = len(OPERATIONS)
"""Behind the number of an operation in the second round."""


class OperationTape(StripedTape):
    """A tape of operations."""

    def of(self, kind, number, *, qp=None, **fields):
        """Numbers of the frames of an operation's requests or results."""
        return [
            frame
            for frame in self.data(message=number, **fields)
            if self.lab(frame)["operation"] >> 8 == kind
            and qp in (None, self.lab(frame)["operation"] % 256 << 16 | self.lab(frame)["step"])
        ]

    def change(self, numbers, **fields):
        """Other fields in all of these frames."""
        for number in numbers:
            self.alter(number, **fields)
        return set(numbers)

    def repeat(self, numbers, **fields):
        """These frames once more at the end, with other fields; their numbers."""
        by_ns = self.frames[-1].time_ns - self.frame(numbers[0]).time_ns + MILLISECOND_NS
        begin = len(self)
        for number in numbers:
            frame = self.frame(number)
            self.frames.append(dataclasses.replace(frame, time_ns=frame.time_ns + by_ns))
        return self.change(range(begin + 1, len(self) + 1), **fields)

    def next_id(self, numbers):
        """An id that no message of the sender of these frames has had."""
        source = self.lab(numbers[0])["ip.src"]
        labs = (self.lab(number) for number in self.data())
        return 1 + max(each["message_id"] for each in labs if each["ip.src"] == source)

    def only(self, *links):
        return self._as(super().only(*links))

    def cut(self, snap_bytes):
        return self._as(super().cut(snap_bytes))

    def since(self, number):
        return self._as(super().since(number))

    @staticmethod
    def _as(tape):
        return OperationTape(tape.frames, tape.interfaces)


def record(transport, losses=(), *, back=(), pairs=1, bad_key=None, same_psn=False):
    """A fresh tape of operations from h1 to h2; `losses` and `back` (h2's) take packets.

    `pairs`: of queue pairs, each with all operations. `bad_key`: the number of one with a wrong
    key.
    """
    frozen = [tuple(tuple(sorted(each.items())) for each in taken) for taken in (losses, back)]
    tape = _record(transport, *frozen, pairs, bad_key, same_psn)
    return OperationTape([dataclasses.replace(frame) for frame in tape.frames])


@functools.cache
def _record(transport, losses, back, pairs, bad_key, same_psn):
    pair = carrying_pair(transport, path_mtu=1024)
    pair.keep_sent()
    drops = [[dict(each) for each in taken] for taken in (losses, back)]
    for side, taken in enumerate(drops):
        cable = pair.cable(side)
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 1_000
        cable.rules = [rule(**each) for each in taken]
    contexts = [Context(pair.side(which)) for which in range(2)]
    psns = {"sq_psn": 7, "rq_psn": 7} if same_psn else {}
    sides = [connected(contexts, attr={"timeout": 14} | psns) for _ in range(pairs)]
    for alice, bob in sides:
        for _ in range(COUNT):
            bob.receive(2 * PACKET_BYTES)
        alice.fill()
        for number, (opcode, length) in enumerate(OPERATIONS * 2):
            wrong = {"rkey": bob.mr.rkey ^ 0xFF} if number == bad_key else {}
            to = {"add": 1, "swap": 2} if opcode in ATOMICS else {}
            alice.post(opcode, bob, length, wr_id=number, to=0, **to, **wrong)
    run(pair, 400 * MILLISECOND_NS)
    for alice, _ in sides:
        statuses = [status for _, status in alice.ends()]
        assert len(statuses) == COUNT
        assert (set(statuses) == {IBV_WC_SUCCESS}) == (bad_key is None)
    sent = pair.take_sent()
    for context in contexts:
        context.close()
    return on_links(sent, drops)
