# SPDX-License-Identifier: GPL-2.0-or-later
"""Recorded traffic as conversations: who asked what of whom, and what was answered.

A conversation is one direction of a connection, or of datagrams: the requests of one side to one
queue pair of the other, and the answers to them. To let a responder of ours live through it:

- its QP expects `first_psn`, has the path MTU `path_mtu`, and its peer is `requester_qp` at
  `requester`, so that answers are addressed as the recorded ones;
- of the regions of `memory()` each is registered at the virtual address `iova`, with `before` in
  it and the rights `rights`. Afterwards `after` is in it. What the responder's own program wrote
  in the meantime, as later answers show, `memory()` says, too. An RNIC chooses its keys and QP
  numbers itself: `request.to(qp, keys)` is the recorded frame with ours in place of the recorded
  ones, a right ICRC, and no other change;
- `messages()` says what receives get, in order, and by which request each is taken: as many are to
  be posted, and not before, where the recorded responder had none and said so (RNR NAK).

Conversations of other captures are taken as they are: nothing here knows of the ones there are.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from softroce_lab import _native
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
)
from tests.native.frames import captured
from tests.native.opcodes import IB, OPCODES

GENERAL_SERVICES_QP = 1  # where MADs of the connection manager go
PSNS = 1 << 24
MOST_PSNS_OUTSTANDING = 1 << 12
PATH_MTUS = (256, 512, 1024, 2048, 4096)
READ_REQUEST, CMP_SWAP, FETCH_ADD = 0x0C, 0x13, 0x14
RESPONSES = range(0x0D, 0x13)  # of RC
READ_RESPONSES = range(0x0D, 0x11)
# Bits of the syndrome (IBA 9.7.5.2.1): RNR NAK and NAK have some of the first, ACK none; a NAK
# that breaks the connection has all of the first, and a code that is not 0, sequence error.
NAK, RNR_NAK, CODE = 0x60, 0x20, 0x1F
QWORD = 8
NO_KEY = 0xFFFFFFFF  # of no region


@dataclasses.dataclass(frozen=True)
class Packet:
    """One recorded frame; `number` counts from 1, as Wireshark does."""

    number: int
    frame: bytes
    fields: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def opcode(self) -> int:
        return int(self.fields[IB + "bth.opcode"])

    @property
    def name(self) -> str:
        """RC SEND First and so on."""
        return OPCODES[self.opcode].name

    @property
    def service(self) -> str:
        """rc, uc or ud."""
        return self.name.split()[0].lower()

    @property
    def is_response(self) -> bool:
        return self.opcode in RESPONSES

    @property
    def psn(self) -> int:
        return int(self.fields[IB + "bth.psn"])

    @property
    def syndrome(self) -> int:
        """Of an answer; 0, where there is none."""
        return self.get("aeth.syndrome") or 0

    @property
    def is_nak(self) -> bool:
        return self.syndrome & NAK != 0

    @property
    def is_rnr_nak(self) -> bool:
        return self.syndrome & NAK == RNR_NAK

    @property
    def destination_qp(self) -> int:
        return int(self.fields[IB + "bth.destqp"])

    @property
    def ends(self) -> tuple[int, int]:
        """Addresses of sender and receiver."""
        ip = "ipv6" if "ipv6.dst" in self.fields else "ip"
        return self.fields[f"{ip}.src"], self.fields[f"{ip}.dst"]

    @property
    def payload(self) -> bytes:
        return bytes(self.fields["payload"])

    def get(self, name: str) -> int | None:
        """A field of an extension header, if the packet has it."""
        return self.fields.get(IB + name)

    @property
    def begins(self) -> bool:
        return not self.name.endswith("Middle") and " Last" not in self.name

    @property
    def finishes(self) -> bool:
        return not self.name.endswith(("First", "Middle"))

    def to(self, qp: int, keys: Mapping[int, int] | None = None) -> bytes:
        """The frame, sent to another QP, with other rkeys: recorded -> ours."""
        changed = dict(self.fields) | {IB + "bth.destqp": qp}
        for name in ("reth.r_key", "atomiceth.r_key", "ieth"):
            if (key := self.get(name)) is not None:
                changed[IB + name] = (keys or {}).get(key, NO_KEY)
        return bytes(_native.encode_frame(changed))


@dataclasses.dataclass(frozen=True)
class Region:
    """Memory of the responder, as far as the conversation tells of it; what it does not is zero."""

    key: int
    iova: int
    rights: int
    before: bytes
    after: bytes


@dataclasses.dataclass(frozen=True)
class Poke:
    """What the responder's own program wrote into a region, before a request arrived."""

    key: int
    address: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Message:
    """What one receive is completed with."""

    payload: bytes | None  # None: it was a WRITE
    length: int
    immediate: int | None
    invalidated: int | None
    source_qp: int | None  # of datagrams
    at: Packet  # which takes the receive: a SEND's first, a WRITE's last


@dataclasses.dataclass(frozen=True)
class Work:
    """What the recorded requester's program asked for, and the packets that came of it."""

    packets: list[Packet]
    answers: list[Packet]

    @property
    def first(self) -> Packet:
        return self.packets[0]

    @property
    def data(self) -> bytes:
        """What was sent."""
        return b"".join(each.payload for each in self.packets)

    @property
    def result(self) -> bytes:
        """What a READ or an atomic got."""
        original = self.answers[0].get("atomicacketh.origremdt") if self.answers else None
        if original is not None:
            return original.to_bytes(QWORD, "little")
        return b"".join(each.payload for each in self.answers)

    @property
    def immediate(self) -> int | None:
        return self.packets[-1].get("immdt")


class Exchange(NamedTuple):
    """A request, the answers to it, and whether it was done as it says."""

    request: Packet
    answers: list[Packet]
    is_taken: bool


@dataclasses.dataclass
class Conversation:
    """Requests of one side to a queue pair of the other, and its answers, as recorded."""

    capture: str
    service: str
    requester: int
    responder: int
    responder_qp: int
    requests: list[Packet]
    answers: list[Packet] = dataclasses.field(default_factory=list)

    @property
    def requester_qp(self) -> int | None:
        """Where the answers went; None: there were none, and requests do not tell."""
        return self.answers[0].destination_qp if self.answers else None

    @property
    def requester_mac(self) -> int:
        return int(self.requests[0].fields["eth.src"])

    @property
    def responder_mac(self) -> int:
        return int(self.requests[0].fields["eth.dst"])

    @property
    def is_management(self) -> bool:
        return self.responder_qp == GENERAL_SERVICES_QP

    @functools.cached_property
    def first_psn(self) -> int:
        """Of all, though the packet may have been lost at first."""
        first = self.requests[0].psn
        return min((each.psn for each in self.requests), key=lambda psn: _distance(psn, first))

    @functools.cached_property
    def path_mtu(self) -> int:
        """The least that holds every payload: First and Middle packets are full (IBA 9.7.4.1.6)."""
        most = max(len(each.payload) for each in (*self.requests, *self.answers))
        return next(mtu for mtu in PATH_MTUS if mtu >= most)

    @property
    def is_smooth(self) -> bool:
        """Nothing was refused, and nothing lost, as far as the responder could tell."""
        psns = [each.psn for each in self.taken()]
        steps = zip(self.taken(), psns[1:], strict=False)
        return not any(each.is_nak for each in self.answers) and all(
            (each.psn + self.psns(each)) % PSNS == psn for each, psn in steps
        )

    def psns(self, request: Packet) -> int:
        """How many PSNs a request takes: those of its response (IBA 9.7.3.1)."""
        if request.opcode != READ_REQUEST:
            return 1
        return max(1, -(-int(request.fields[IB + "reth.dmalen"]) // self.path_mtu))

    def exchanges(self) -> list[Exchange]:
        """Each request with the answers to it: a responder answers in the order of requests.

        Raises: AssertionError for an answer that is left over.
        """
        responder = _Responder(self)
        exchanges = [responder.exchange(request) for request in self.requests]
        assert not responder.answers, f"answers to nothing: {responder.answers}"
        return exchanges

    def taken(self) -> Iterator[Packet]:
        """Requests that the responder did as they say: not again, not refused, none before them
        missing."""
        return (each.request for each in self.exchanges() if each.is_taken)

    def messages(self) -> list[Message]:
        """SENDs, and WRITEs with an immediate, which use up a receive each."""
        messages = []
        parts: list[Packet] = []
        for request in self.taken():
            parts = [request] if request.begins else [*parts, request]
            is_send = "SEND" in request.name
            if request.finishes and (is_send or request.get("immdt") is not None):
                data = b"".join(each.payload for each in parts)
                messages.append(
                    Message(
                        payload=data if is_send else None,
                        length=len(data),
                        immediate=request.get("immdt"),
                        invalidated=request.get("ieth"),
                        source_qp=request.get("deth.srcqp"),
                        at=parts[0] if is_send else request,
                    )
                )
        return messages

    def work(self) -> Iterator[Work]:
        """Work requests in their order, as far as they were done; what came again counts once."""
        parts: list[Packet] = []
        got: list[Packet] = []
        for request, answers, is_taken in self.exchanges():
            if not is_taken:
                continue
            parts = [request] if request.begins else [*parts, request]
            got = answers if request.begins else got + answers
            if request.finishes:
                yield Work(parts, got)

    def memory(self) -> tuple[list[Region], dict[int, list[Poke]]]:
        """Memory that the requests name, such that the answers are right; pokes by request."""
        regions: dict[int, _Memory] = {}
        pokes: dict[int, list[Poke]] = {}
        at, region = 0, _Memory(0)
        for request, answers, is_taken in self.exchanges():
            if not is_taken:
                continue
            key = request.get("reth.r_key") or request.get("atomiceth.r_key")
            if key is not None:
                region = regions.setdefault(key, _Memory(key))
                at = request.get("reth.va") or request.get("atomiceth.va") or 0
            if request.opcode == READ_REQUEST:
                data = b"".join(each.payload for each in answers)
                pokes[request.number] = region.saw(at, data, IBV_ACCESS_REMOTE_READ)
            elif request.opcode in (CMP_SWAP, FETCH_ADD):
                pokes[request.number] = region.atomic(at, request, answers)
            elif "WRITE" in request.name:
                region.write(at, request.payload)
                at += len(request.payload)
        return [each.region() for each in regions.values()], pokes


class _Responder:
    """Which of the recorded answers are to which request, as a responder works (IBA 9.7)."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.answers = collections.deque(conversation.answers)
        self.expected = conversation.first_psn
        self.nak_is_sent = self.is_broken = False

    def exchange(self, request: Packet) -> Exchange:
        if self.conversation.service == "ud":
            return Exchange(request, [], is_taken=True)
        ahead = _distance(request.psn, self.expected)
        if self.conversation.service == "uc":
            return self._unreliable(request)
        if self.is_broken:
            return Exchange(request, [], is_taken=False)
        if ahead == 0:
            return self._due(request)
        return self._early(request) if ahead > 0 else self._again(request)

    def _next(self) -> Packet | None:
        return self.answers[0] if self.answers else None

    def _take(self, count: int) -> list[Packet]:
        return [self.answers.popleft() for _ in range(min(count, len(self.answers)))]

    def _due(self, request: Packet) -> Exchange:
        self.nak_is_sent = False
        answer = self._next()
        if answer is not None and answer.psn == request.psn and answer.is_nak:
            self.is_broken = answer.syndrome & NAK == NAK and answer.syndrome & CODE != 0
            return Exchange(request, self._take(1), is_taken=False)
        psns = self.conversation.psns(request)
        self.expected = (self.expected + psns) % PSNS
        return Exchange(request, self._take(self._count(request, psns)), is_taken=True)

    def _count(self, request: Packet, psns: int) -> int:
        if request.opcode != READ_REQUEST:
            return int(bool(request.fields[IB + "bth.a"]))
        count = 0
        for answer, psn in zip(self.answers, range(request.psn, request.psn + psns), strict=False):
            if answer.psn != psn % PSNS or answer.opcode not in READ_RESPONSES:
                break
            count += 1
        return count

    def _early(self, request: Packet) -> Exchange:
        """Said once, until what is missing has come (IBA 9.7.5.2.2)."""
        answer = self._next()
        states = answer is not None and answer.psn == self.expected and answer.is_nak
        reported = states and not self.nak_is_sent
        self.nak_is_sent = True
        return Exchange(request, self._take(int(reported)), is_taken=False)

    def _again(self, request: Packet) -> Exchange:
        """Acknowledged at once (IBA C9-105), or answered as it was."""
        psns = self.conversation.psns(request)
        count = self._count(request, psns) if request.opcode == READ_REQUEST else 1
        return Exchange(request, self._take(count), is_taken=False)

    def _unreliable(self, request: Packet) -> Exchange:
        return Exchange(request, [], is_taken=request.number in self._whole)

    @functools.cached_property
    def _whole(self) -> set[int]:
        """Numbers of the packets of messages that arrived whole."""
        whole: set[int] = set()
        message: list[Packet] = []
        for request in self.conversation.requests:
            follows = bool(message) and request.psn == (message[-1].psn + 1) % PSNS
            if request.begins or not follows:
                message = [request] if request.begins else []
            else:
                message = [*message, request]
            if message and request.finishes:
                whole |= {each.number for each in message}
        return whole


class _Memory:
    """Bytes by address: as they were when they were first heard of, and as they are."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.before: dict[int, int] = {}
        self.now: dict[int, int] = {}
        self.rights = int(IBV_ACCESS_LOCAL_WRITE)

    def saw(self, at: int, data: bytes, right: int) -> list[Poke]:
        """The peer was told that this is there. What it did not know of, the program wrote."""
        self.rights |= int(right)
        reported = dict(enumerate(data, at))
        changed = any(self.now.get(address, byte) != byte for address, byte in reported.items())
        for address, byte in reported.items():
            self.before.setdefault(address, byte)
        self.now |= reported
        return [Poke(self.key, at, data)] if changed else []

    def write(self, at: int, data: bytes) -> None:
        self.rights |= int(IBV_ACCESS_REMOTE_WRITE)
        for address, byte in enumerate(data, at):
            self.before.setdefault(address, 0)
            self.now[address] = byte

    def atomic(self, at: int, request: Packet, answers: list[Packet]) -> list[Poke]:
        """The answer tells what was there; what is there now follows."""
        original = int(answers[0].fields[IB + "atomicacketh.origremdt"])
        operand = int(request.fields[IB + "atomiceth.swapdt"])
        compare = request.fields[IB + "atomiceth.cmpdt"]
        # Eight bytes of memory are a number of the host's: little-endian here.
        pokes = self.saw(at, original.to_bytes(QWORD, "little"), IBV_ACCESS_REMOTE_ATOMIC)
        if request.opcode == FETCH_ADD:
            value = (original + operand) % (1 << 64)
        else:
            value = operand if original == compare else original
        self.now.update(enumerate(value.to_bytes(QWORD, "little"), at))
        return pokes

    def region(self) -> Region:
        addresses = range(min(self.before), max(self.before) + 1)
        before, after = (
            bytes(values.get(each, 0) for each in addresses) for values in (self.before, self.now)
        )
        return Region(self.key, addresses.start, self.rights, before, after)


def packets(capture: str) -> list[Packet]:
    """Every frame of a capture.

    Raises: AssertionError for one that is not RoCEv2.
    """
    all_packets = []
    for number, frame in enumerate(captured(capture), 1):
        fields = _native.decode_frame(frame)
        assert isinstance(fields, dict), f"packet {number}: {fields}"
        all_packets.append(Packet(number, frame, fields))
    return all_packets


def conversations(capture: str) -> list[Conversation]:
    """Those of a capture, in order of their first packets; every packet is in just one of them.

    Raises: AssertionError for an answer to nobody.
    """
    found: dict[tuple[int, ...] | tuple[str, int, int, int], Conversation] = {}
    for packet in packets(capture):
        source, destination = packet.ends
        if packet.is_response:
            _asker(list(found.values()), packet).answers.append(packet)
            continue
        key = (packet.service, source, destination, packet.destination_qp)
        conversation = found.setdefault(
            key,
            Conversation(capture, packet.service, source, destination, packet.destination_qp, []),
        )
        conversation.requests.append(packet)
    return list(found.values())


def _asker(candidates: list[Conversation], answer: Packet) -> Conversation:
    """Whose requests this answers: the QP tells, once it has had an answer; else the latest's."""
    responder, requester = answer.ends
    candidates = [
        each
        for each in candidates
        if (each.service, each.requester, each.responder) == ("rc", requester, responder)
        and abs(_distance(answer.psn, each.requests[-1].psn)) < MOST_PSNS_OUTSTANDING
    ]
    known = [each for each in candidates if each.requester_qp == answer.destination_qp]
    assert known or candidates, f"{answer} answers nobody"
    return (known or [each for each in candidates if each.requester_qp is None])[-1]


def _distance(psn: int, other: int) -> int:
    """PSNs from the other one on; negative, if it was before (IBA 9.7.2)."""
    half = PSNS // 2
    return (psn - other + half) % PSNS - half
