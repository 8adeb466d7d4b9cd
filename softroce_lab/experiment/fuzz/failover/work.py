# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload whose notifications and memory tell whether anything ran twice, or not at all.

Each sender WRITEs into slots of the peer and notifies it. The peer checks what it was notified of,
then reuses the memory: a WRITE that is repeated later destroys what it put there.
"""

from __future__ import annotations

import dataclasses
import math
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, Rig
from softroce_lab.transports.shift import SEND_ONCE
from softroce_lab.verbs.enums import (
    IBV_QPS_ERR,
    IBV_SEND_SIGNALED,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
)

W, WI, S, SI, R, FA = (
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
)
NOTIFY = (WI, S, SI)
SLOT, SLOTS = 2048, 16
SOURCES, RECEIVES = 32768, 65536  # offsets; the first half is the peer's to WRITE
RECEIVE_BYTES, DEPTH = 1024, 12
REUSED = 0xEE

# Longest time that a case may take: the failure is noticed, each of two lost messages of the
# handshake is repeated after at most four timeouts, and what is resubmitted takes its time.
BOUND_NS = DETECTION_NS + 3 * 8 * (4096 << 3) + 500_000


@dataclasses.dataclass(frozen=True)
class Op:
    """A request: its length, and whether its completion is asked for."""

    kind: int
    length: int
    signaled: bool = True
    once: bool = False


FIXED = (
    Op(W, 1500), Op(W, 300, False), Op(WI, 1200), Op(S, 700), Op(W, 64, False), Op(SI, 1024, False),
    Op(W, 2048), Op(WI, 0), Op(S, 1), Op(W, 900, False), Op(W, 900, False), Op(WI, 2048),
)  # fmt: skip


class BrokenError(AssertionError):
    """Exactly-once, order or memory is not as it was to be."""


class Talk:
    """What one end sends to the other, and what came of it."""

    def __init__(self, rig: Rig, sender: int, ops: Iterable[Op]) -> None:
        self.rig, self.a, self.b = rig, rig.ends[sender], rig.ends[1 - sender]
        self.ops = list(ops)
        self.posted = 0
        self.posted_ns: list[int] = []
        self.notified: list[int] = []  # numbers of notifications
        self.receives = self.lacking = 0
        self.done: list[tuple[int, int]] = []  # (number, status)
        self.failed = False
        self.slots: dict[int, tuple[int, int]] = {}  # number of a WRITE -> (offset, length)
        for _ in range(DEPTH):
            self.post_receive()

    def value(self, number: int) -> int:
        """Of the bytes of a request."""
        return number * 7 % 250 + 1

    def post_receive(self) -> None:
        """One more, at the receiving end."""
        at = RECEIVES + self.receives % DEPTH * RECEIVE_BYTES
        self.b.receive(RECEIVE_BYTES, at, wr_id=1000 + self.receives)
        self.receives += 1

    def post(self, count: int) -> None:
        """So many requests more."""
        for _ in range(min(count, len(self.ops) - self.posted)):
            number, op = self.posted, self.ops[self.posted]
            at = SOURCES + number % SLOTS * SLOT
            flags = (IBV_SEND_SIGNALED if op.signaled else 0) | (SEND_ONCE if op.once else 0)
            options: dict[str, Any] = {"wr_id": number, "flags": flags}
            if op.kind == FA:
                self.a.post(FA, 8, at, to=SLOTS * SLOT - 8, **options)
            elif op.kind == R:
                self.a.post(R, op.length, at, to=0, **options)
            else:
                self.a.memory[at : at + op.length] = self.value(number)
                slot = number % (SLOTS - 1)
                self.slots[number] = (slot * SLOT, op.length)
                options |= {"to": slot * SLOT, "imm": socket.htonl(number)}
                self.a.post(op.kind, op.length, at, **options)
            self.posted += 1
            self.posted_ns.append(self.rig.now_ns)

    @property
    def notifying(self) -> list[int]:
        """The numbers of all requests that notify."""
        return [number for number, op in enumerate(self.ops) if op.kind in NOTIFY]

    @property
    def signaled(self) -> list[int]:
        """The numbers of all requests whose completion is asked for."""
        return [number for number, op in enumerate(self.ops) if op.signaled]

    def check_notification(self, wc: Any) -> None:
        """A notification at the receiver: the next one, in the next receive, with its bytes."""
        self.need(len(self.notified) < len(self.notifying), "a notification that nobody sent")
        expected = self.notifying[len(self.notified)]
        op = self.ops[expected]
        index = len(self.notified)
        self.need(wc.wr_id == 1000 + index, f"receive {wc.wr_id} instead of {1000 + index}")
        self.need(wc.qp_num == self.b.qp.qp_num, "another QP's number")
        if op.kind != S:
            self.need(socket.ntohl(wc.imm_data) == expected, f"immediate of {wc.imm_data}")
        self.need(wc.byte_len == op.length, f"{wc.byte_len} bytes instead of {op.length}")
        if op.kind != WI:
            at = RECEIVES + index % DEPTH * RECEIVE_BYTES
            got = self.b.memory[at : at + op.length]
            self.need((got == self.value(expected)).all(), f"bytes of SEND {expected}")
        first = self.notifying[index - 1] + 1 if index else 0
        writes = [n for n in range(first, expected + 1) if self.ops[n].kind in (W, WI)]
        for number in writes:
            at, length = self.slots[number]
            got = self.b.memory[at : at + length]
            self.need((got == self.value(number)).all(), f"bytes of WRITE {number}")
        for number in writes:
            at, length = self.slots[number]
            self.b.memory[at : at + length] = REUSED  # the application's again
        self.notified.append(expected)
        self.lacking += 1

    def ended(self, wc: Any) -> None:
        """A completion at the sender, in the order of posting."""
        self.need(
            not self.done or wc.wr_id > self.done[-1][0], f"{wc.wr_id} after {self.done[-1:]}"
        )
        self.need(wc.qp_num == self.a.qp.qp_num, "another QP's number")
        self.done.append((wc.wr_id, wc.status))
        if wc.status != IBV_WC_SUCCESS:
            self.failed = True

    def need(self, holds: bool, why: str) -> None:
        """BrokenError if it does not hold."""
        if not holds:
            raise BrokenError(why)

    @property
    def is_over(self) -> bool:
        """Whether all its requests have ended, and all notifications have come."""
        if self.failed:
            return self.done[-1][0] == self.posted - 1
        return (
            self.posted == len(self.ops)
            and [n for n, _ in self.done] == self.signaled
            and len(self.notified) == len(self.notifying)
        )

    def check_end(self) -> None:
        """All is done once, and the memory is what it is without failures."""
        if self.failed:
            self.check_failure()
            return
        done = [number for number, _ in self.done]
        self.need(done == self.signaled, f"completions {self.done}")
        last = self.notifying[-1] if self.notifying else -1
        for number, (at, length) in self.slots.items():
            later = {n % (SLOTS - 1) for n in self.slots if n > number}
            if self.ops[number].kind not in (W, WI) or number % (SLOTS - 1) in later:
                continue
            value = REUSED if number <= last else self.value(number)
            self.need((self.b.memory[at : at + length] == value).all(), f"memory of {number}")
        adds = sum(op.kind == FA for op in self.ops)
        at = SLOTS * SLOT - 8
        counted = int.from_bytes(self.b.memory[at : at + 8].tobytes(), "little")
        self.need(counted == adds, f"{counted} additions of {adds}")

    def check_failure(self) -> None:
        """As a plain QP: one RETRY_EXC_ERR, the rest flushed.

        What is posted after an error has surfaced, with nothing in flight, is flushed, all of it.
        """
        first = next(number for number, status in self.done if status != IBV_WC_SUCCESS)
        errors = [status for _, status in self.done if status != IBV_WC_SUCCESS]
        known = [IBV_WC_WR_FLUSH_ERR] if self.posted_ns[first] >= self._failed_ns() else []
        if self.posted_ns[first] <= self._failed_ns():
            known.append(IBV_WC_RETRY_EXC_ERR)
        self.need(errors[0] in known, f"first error {errors[0]}")
        self.need(all(each == IBV_WC_WR_FLUSH_ERR for each in errors[1:]), f"errors {errors}")

    def _failed_ns(self) -> float:
        """When an error surfaced at the sender, its own or the peer's."""
        events = [] if self.a.backup is None else self.a.backup.events
        return next((each.at_ns for each in events if each.after == "Failed"), math.inf)


class Case:
    """Both ends talk; `at_once` requests are posted at a time."""

    def __init__(
        self,
        rig: Rig,
        ops: Sequence[Iterable[Op]] = (FIXED, FIXED[:4]),
        at_once: int = 4,
        receive_every: int = 1,
    ) -> None:
        self.rig, self.at_once, self.receive_every = rig, at_once, receive_every
        self.steps = 0
        self.talks = [Talk(rig, sender, each) for sender, each in enumerate(ops)]
        self.flushed = [0, 0]

    def poll(self) -> None:
        """Check all completions that wait."""
        for which, end in enumerate(self.rig.ends):
            for wc in end.poll():
                if wc.wr_id < 1000:
                    self.talks[which].ended(wc)
                elif wc.status == IBV_WC_WR_FLUSH_ERR:
                    self.flushed[which] += 1
                else:
                    self.talks[1 - which].check_notification(wc)

    def extend(self, *ops: Iterable[Op]) -> None:
        """More requests, behind those before."""
        for talk, more in zip(self.talks, ops, strict=True):
            talk.ops.extend(more)

    def step(self) -> None:
        """Post what has room, and let a step of time pass."""
        self.steps += 1
        for talk in self.talks:
            while talk.lacking and self.steps % self.receive_every == 0:
                talk.lacking -= 1
                talk.post_receive()
                if self.receive_every > 1:
                    break
            if not talk.failed and self._has_room(talk):
                talk.post(self.at_once)
        self.rig.step()
        self.poll()

    def _has_room(self, talk: Talk) -> bool:
        """Slots are free again when the peer was notified, sources when the request is done."""
        notified = talk.notified[-1] + 1 if talk.notified else 0
        done = talk.done[-1][0] + 1 if talk.done else 0
        return talk.posted - min(notified, done) <= SLOTS - 2 - self.at_once

    @property
    def is_over(self) -> bool:
        """Whether both directions are."""
        return all(talk.is_over for talk in self.talks)

    @property
    def failed(self) -> bool:
        """Whether an error has surfaced."""
        return any(talk.failed for talk in self.talks)

    @property
    def stopped(self) -> bool:
        """An error has surfaced, and nothing more is going to happen."""
        ended = all(t.failed or t.is_over or not self._goes_on() for t in self.talks)
        return ended and (self.failed or not self._goes_on())

    def run(self, bound_ns: int = BOUND_NS) -> None:
        """To the end; BrokenError, if that takes longer than the bound."""
        until = self.rig.now_ns + bound_ns
        while not self.is_over:
            if self.failed and self.stopped:
                break
            if self.rig.now_ns > until:
                raise BrokenError(f"not over after {bound_ns} ns: {[t.done for t in self.talks]}")
            self.step()
        self.rig.run(20_000)
        self.poll()
        for talk in self.talks:
            if talk.failed or talk.is_over:
                talk.check_end()

    def _goes_on(self) -> bool:
        return not any(end.qp.qp_state == IBV_QPS_ERR for end in self.rig.ends)
