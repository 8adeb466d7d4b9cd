# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab with a soft host and a kernel host, and a conversation between them, cell by cell."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import struct
import time
from pathlib import Path

from softroce_lab import verbs
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from tests.interop import verbs_peer

SOFT, KERNEL, LINK = "h1", "k1", "k1<->s1"
TO_KERNEL = "s1->k1"
PROGRAM = Path(verbs_peer.__file__)
ANSWER_S = 60
MESSAGES = 64  # of a cell that counts how many arrive
SUCCESS = 0
IMMEDIATE, SECOND = 0x11223344, 77
ATOMICS = ("fetch_add", "cmp_swap")
TAKE_RECEIVES = ("send", "send_imm", "write_imm")
UNRELIABLE_BYTES = 1 << 20
PACE = ["rate", "20mbit", "limit", "20000"]  # where nothing else slows a guest's peer down
PACE_BPS = 20_000_000
SETTLE_S = 0.5
FRAME_OVERHEAD = 100  # bytes
END_S = 600  # go-back-N of a long READ sends all that follows again, for each packet lost
# 1.1 s: a READ asked for again is answered behind what is left of the answer before, up to 4 MiB.
READ_TIMEOUT = 18
ERR = 6
RECV, RECV_RDMA_WITH_IMM = 128, 129
ENDS = {"write": 1, "write_imm": 1, "send": 0, "send_imm": 0, "read": 2, "cmp_swap": 3,
        "fetch_add": 4}  # fmt: skip
SOURCE, TARGET = 0, 4 << 20  # in either end's memory, which is longer than the longest message


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is tried: who asks, what, how long, over what path."""

    requester: str  # soft or kernel
    service: str
    opcode: str
    size: int
    mtu: int
    loss_percent: int

    def __str__(self):
        return (f"{self.requester}-{self.service}-{self.opcode}-{self.size}-mtu{self.mtu}"
                f"-loss{self.loss_percent}")  # fmt: skip


SERVICES = {
    "rc": ("send", "send_imm", "write", "write_imm", "read", "fetch_add", "cmp_swap"),
    "uc": ("send", "write"),
    "ud": ("send",),
}


def sizes(service, opcode, mtu):
    """The message sizes of the matrix."""
    if opcode in ("fetch_add", "cmp_swap"):
        return (8,)
    short = (0, 1, mtu - 1, mtu)
    return short if service == "ud" else (*short, mtu + 1, 64 << 10, 4 << 20)


def matrix(mtus=(256, 1024, 2048), losses=(0, 1, 5)):
    """All cells."""
    for requester, (service, opcodes) in itertools.product(("soft", "kernel"), SERVICES.items()):
        for opcode, mtu, loss in itertools.product(opcodes, mtus, losses):
            for size in sizes(service, opcode, mtu):
                yield Cell(requester, service, opcode, size, mtu, loss)


class Remote:
    """A program in the guest that does as lines of JSON say: verbs_peer.py, or another."""

    def __init__(self, guest, program=PROGRAM, *arguments):
        there = f"/run/{program.name}"
        guest.put(there, program.read_bytes())
        self._command = guest.start(["python3", there, *(arguments or ("rxe0",))])
        self._read = 0

    def __getattr__(self, name):
        def ask(**values):
            self._command.write(json.dumps({"do": name, **values}).encode() + b"\n")
            timeout_s = ANSWER_S + values.get("timeout_s", 0)
            answer = json.loads(self._line(timeout_s))
            assert "error" not in answer, (answer, self._command.stderr.decode()[-2000:])
            return answer

        return ask

    def _line(self, timeout_s):
        deadline = time.monotonic() + timeout_s
        while True:
            lines = self._command.stdout.split(b"\n")
            if len(lines) > self._read + 1:
                self._read += 1
                return lines[self._read - 1]
            assert time.monotonic() < deadline, self._command.stderr.decode()[-2000:]
            self._command.ends(0.001)  # GuestDeadError

    def close(self):
        self._command.kill()
        self._command.close()


class Conversation:
    """The two ends, and the loss between them."""

    def __init__(self, lab, stack):
        self.lab = lab
        self._stack = stack
        self._set = [], LINK
        context = stack.enter_context(opened(lab, SOFT))
        self.soft = verbs_peer.Peer(context, verbs, 0)
        self.places = {"soft": self.soft.hello()}
        self.begin()

    def begin(self):
        """With the guest as it is now."""
        self.guest = self.lab.guest(KERNEL)
        remote = contextlib.closing(Remote(self.guest))
        self.kernel = self._stack.enter_context(remote)
        self.places["kernel"] = self.kernel.hello()

    def set_link(self, cell):
        """The kernel host's link, both ways: its loss, and a pace where nothing else sets one."""
        words = ["loss", f"{cell.loss_percent}%"] if cell.loss_percent else []
        if cell.service != "rc":
            words += PACE
        self._set_words(words)

    def lose_towards_kernel(self, percent):
        """All that the kernel host sends arrives."""
        self._set_words(["loss", f"{percent}%"] if percent else [], TO_KERNEL)

    def clear_link(self):
        """No loss, and no pace."""
        self._set_words([])

    def _set_words(self, words, where=LINK):
        if (words, where) == self._set:
            return
        links = links_of(self.lab.plan, where)

        def change(plan):
            cleared = live.clear_on(plan, links_of(plan, LINK))
            return live.set_on(cleared, links, live.parse_impairments(words)) if words else cleared

        self.lab.faults.change(change, time.monotonic_ns)
        self._set = words, where

    def ends(self, cell):
        """Requester, responder, and where the responder is."""
        soft = cell.requester == "soft"
        one, other = (self.soft, self.kernel) if soft else (self.kernel, self.soft)
        return one, other, self.places["kernel" if soft else "soft"]

    def connect(self, cell, psn):
        """A fresh queue pair at each end."""
        ours = self.soft.create(kind=cell.service, psn=psn)["qpn"]
        theirs = self.kernel.create(kind=cell.service, psn=psn + 1000)["qpn"]
        soft, kernel = self.places["soft"], self.places["kernel"]
        timeout = READ_TIMEOUT if cell.opcode == "read" else verbs_peer.TIMEOUT
        way = {"mtu": cell.mtu, "timeout": timeout}
        self.soft.connect(gid=kernel["gid"], qpn=theirs, psn=psn + 1000, **way)
        self.kernel.connect(gid=soft["gid"], qpn=ours, psn=psn, **way)

    def run(self, cell, seed):
        """One cell. AssertionError if anything is not as the specification says."""
        self.set_link(cell)
        self.connect(cell, psn=seed * 7919 % (1 << 24) & 0xFFF000)
        if cell.opcode in ATOMICS:
            self._atomic(cell, seed)
        elif cell.service == "rc":
            self._reliable(cell, seed)
        else:
            self._unreliable(cell, seed)

    def _reliable(self, cell, seed):
        requester, responder, place = self.ends(cell)
        taken = cell.opcode in TAKE_RECEIVES
        source, target = (responder, requester) if cell.opcode == "read" else (requester, responder)
        source.fill(at=SOURCE, length=cell.size, seed=seed)
        target.fill(at=TARGET, length=cell.size + 8, seed=seed + 1)
        if taken:
            responder.receive(at=TARGET, length=max(cell.size, 1))
        here, there = (TARGET, SOURCE) if cell.opcode == "read" else (SOURCE, TARGET)
        requester.post(opcode=cell.opcode, at=here, length=cell.size, there=place["addr"] + there,
                       rkey=place["rkey"], imm=IMMEDIATE)  # fmt: skip
        self._ended(requester, cell)
        if taken:
            (received,) = responder.poll(count=1, timeout_s=30)["completions"]
            opcode = RECV_RDMA_WITH_IMM if cell.opcode == "write_imm" else RECV
            assert received[:4] == [0, SUCCESS, opcode, cell.size], received
            if cell.opcode != "send":
                assert (received[4], received[5] & 2) == (IMMEDIATE, 2), received
        fence = verbs_peer.content(seed + 1, cell.size + 8)[cell.size :]
        wanted = [digest(verbs_peer.content(seed, cell.size)), digest(fence)]
        pieces = [[TARGET, cell.size], [TARGET + cell.size, 8]]
        assert target.digest(pieces=pieces)["digests"] == wanted
        self._stands(requester, responder)

    def _atomic(self, cell, seed):
        requester, responder, place = self.ends(cell)
        word = verbs_peer.content(seed, 8)
        value = int.from_bytes(word, "little")
        responder.fill(at=SOURCE, length=8, seed=seed)
        first, second = (SECOND, 0) if cell.opcode == "fetch_add" else (value, SECOND)
        requester.post(opcode=cell.opcode, at=TARGET, length=8, there=place["addr"] + SOURCE,
                       rkey=place["rkey"], first=first, second=second)  # fmt: skip
        self._ended(requester, cell)
        after = SECOND if cell.opcode == "cmp_swap" else (value + SECOND) % (1 << 64)
        assert requester.digest(pieces=[[TARGET, 8]])["digests"] == [digest(word)]
        there = responder.digest(pieces=[[SOURCE, 8]])["digests"]
        assert there == [digest(after.to_bytes(8, "little"))]
        self._stands(requester, responder)

    def mixed(self, cell, rounds, seed):
        """WRITE, READ and atomic in turn, none of which waits for the one before."""
        self.set_link(cell)
        self.connect(cell, psn=seed)
        requester, responder, place = self.ends(cell)
        length, counter, counted = rounds * cell.size, 2 * TARGET - 8, TARGET + rounds * cell.size
        requester.fill(at=SOURCE, length=length, seed=seed)
        responder.fill(at=SOURCE, length=length, seed=seed + 1)
        responder.fill(at=counter, length=8, seed=seed + 2)
        (start,) = struct.unpack("<Q", verbs_peer.content(seed + 2, 8))
        for at in range(0, length, cell.size):
            way = {"length": cell.size, "rkey": place["rkey"]}
            requester.post(opcode="write", at=SOURCE + at, there=place["addr"] + TARGET + at, **way)
            requester.post(opcode="read", at=TARGET + at, there=place["addr"] + SOURCE + at, **way)
            way |= {"length": 8, "first": 1}
            requester.post(opcode="fetch_add", at=counted + 8 * (at // cell.size),
                           there=place["addr"] + counter, **way)  # fmt: skip
        done = requester.poll(count=3 * rounds, timeout_s=END_S)["completions"]
        kinds = [ENDS[opcode] for opcode in ("write", "read", "fetch_add")]
        assert [each[1:3] for each in done] == [[SUCCESS, kind] for kind in kinds] * rounds, done
        written = responder.digest(pieces=[[TARGET, length]])["digests"]
        assert written == [digest(verbs_peer.content(seed, length))]
        numbers = struct.pack(f"<{rounds}Q", *((start + n) % (1 << 64) for n in range(rounds)))
        read = requester.digest(pieces=[[TARGET, length], [counted, len(numbers)]])["digests"]
        assert read == [digest(verbs_peer.content(seed + 1, length)), digest(numbers)]
        self._stands(requester, responder)

    def _ended(self, requester, cell):
        done = requester.poll(count=1, timeout_s=END_S)["completions"]
        assert [each[:3] for each in done] == [[0, SUCCESS, ENDS[cell.opcode]]], done

    def _stands(self, *ends):
        assert all(end.state()["state"] != ERR for end in ends)

    def _unreliable(self, cell, seed):
        """Several messages: each arrives whole or not at all, as many as the loss lets through."""
        requester, responder, place = self.ends(cell)
        count = messages(cell)
        head = verbs_peer.GRH_BYTES if cell.service == "ud" else 0
        stride = -(-(cell.size + head) // 64) * 64 + 64
        assert TARGET + count * stride <= verbs_peer.MEMORY_BYTES
        requester.fill(at=SOURCE, length=count * stride, seed=seed)
        responder.fill(at=TARGET, length=count * stride, seed=seed + 1)
        if cell.opcode == "send":
            responder.receive(at=TARGET, length=cell.size + head, count=count, stride=stride)
        requester.post(opcode=cell.opcode, at=SOURCE, length=cell.size, count=count, stride=stride,
                       there=place["addr"] + TARGET, rkey=place["rkey"])  # fmt: skip
        done = requester.poll(count=count, timeout_s=60)["completions"]
        assert [each[:2] for each in done] == [[n, SUCCESS] for n in range(count)], done
        if cell.opcode == "send":
            arrived = self._received(cell, responder, count, stride, head, seed)
        else:
            arrived = self._written(cell, responder, count, stride, seed)
        packets = max(1, -(-cell.size // cell.mtu))
        self._check_proportion(cell, arrived, count, (1 - cell.loss_percent / 100) ** packets)
        self._stands(requester, responder)

    def _received(self, cell, responder, count, stride, head, seed):
        received = responder.poll(count=count, timeout_s=settle_s(cell))["completions"]
        sent = verbs_peer.content(seed, count * stride)
        messages = [digest(sent[n * stride : n * stride + cell.size]) for n in range(count)]
        pieces = [[TARGET + each[0] * stride + head, cell.size] for each in received]
        assert all(each[1:4] == [SUCCESS, RECV, cell.size + head] for each in received), received
        there = responder.digest(pieces=pieces)["digests"]
        at = -1
        for each in there if cell.size else ():  # in order, none twice
            assert each in messages[at + 1 :]
            at = messages.index(each, at + 1)
        return len(received)

    def _written(self, cell, responder, count, stride, seed):
        time.sleep(settle_s(cell))
        sent = verbs_peer.content(seed, count * stride)
        before = verbs_peer.content(seed + 1, count * stride)
        whole, pieces, allowed = 0, [], []
        for n in range(count):
            for at in range(0, cell.size, cell.mtu):
                piece = slice(n * stride + at, n * stride + min(at + cell.mtu, cell.size))
                pieces.append([TARGET + piece.start, piece.stop - piece.start])
                allowed.append((digest(sent[piece]), digest(before[piece])))
        there = responder.digest(pieces=pieces)["digests"]
        assert all(each in pair for each, pair in zip(there, allowed, strict=True))
        per_message = -(-cell.size // cell.mtu)
        for n in range(count):
            part = slice(n * per_message, (n + 1) * per_message)
            whole += all(e == p[0] for e, p in zip(there[part], allowed[part], strict=True))
        return whole

    def _check_proportion(self, cell, arrived, count, probability):
        """Within what one run in a million would leave."""
        if cell.loss_percent == 0:
            assert arrived == count, f"{arrived} of {count} arrived"
            return
        tail = sum(_binomial(count, k, probability) for k in range(count + 1) if k <= arrived)
        head = sum(_binomial(count, k, probability) for k in range(count + 1) if k >= arrived)
        # rxe drops the beginning of the message behind one that lost a packet, and if that was a
        # WRITE, all that follow: do_class_d1e_error in rxe_resp.c.
        stuck = (cell.requester, cell.service) == ("soft", "uc")
        likely = head if stuck else min(tail, head)
        assert likely > 1e-6, f"{arrived} of {count} arrived, {probability:.3f} expected"


def messages(cell):
    """How many a cell of UC or UD sends."""
    return min(MESSAGES, max(1, UNRELIABLE_BYTES // max(cell.size, 1)))


def settle_s(cell):
    """How long what is under way may take to arrive, behind the last completion."""
    frames = messages(cell) * max(1, -(-cell.size // cell.mtu))
    sent = messages(cell) * cell.size + frames * FRAME_OVERHEAD
    return SETTLE_S + 2 * 8 * sent / PACE_BPS


def _binomial(n, k, p):
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def digest(data):
    """As the peers tell it."""
    return hashlib.sha256(data).hexdigest()
