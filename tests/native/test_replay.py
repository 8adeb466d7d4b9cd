# SPDX-License-Identifier: GPL-2.0-or-later
"""Recorded conversations of Linux's rxe, and our responder in the place of the recorded one."""

import dataclasses
import itertools

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.verbs.enums import (
    IBV_SEND_SIGNALED,
    IBV_WC_GRH,
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WITH_IMM,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
)
from tests.captures.replay import conversations
from tests.native import frames
from tests.native.bare_verbs import UD, BareRnic, address_vector
from tests.native.connected import RC, UC
from tests.native.opcodes import IB, frame_of

CAPTURES = sorted(path.stem for path in frames.CAPTURES.glob("*.pcap"))
CONVERSATIONS = {name: conversations(name) for name in CAPTURES}


# ---------------------------------------------------------------- our responder in its place


MAY_DIFFER = {
    "udp.srcport": "each implementation's own hash of the QP, for paths to differ (A17.3.1.1)",
    "ip.id": "of no meaning in a packet that may not be fragmented, as all are (RFC 6864)",
}
NAK_SEQUENCE, NAK_INVALID, NAK_OPERATION = 0x60, 0x61, 0x63
GRH = 40
KINDS = {"rc": RC, "uc": UC, "ud": UD}


def deviation(request, answer, last):
    """Which of the above an answer is, if any; `last` is the one before it."""
    if answer.syndrome == NAK_SEQUENCE and last is not None and last.is_rnr_nak:
        return "NAK after RNR NAK"
    if answer.syndrome == NAK_OPERATION and "SEND" in request.name:
        return "SEND too long"
    return None


def as_specified(exchanges):
    """The exchanges, and the answers that the specification has."""
    last = None
    for exchange in exchanges:
        answers = []
        for answer in exchange.answers:
            which = deviation(exchange.request, answer, last)
            last = answer
            if which is None:
                answers.append(answer)
            elif which == "SEND too long":
                fields = dict(answer.fields) | {IB + "aeth.syndrome": NAK_INVALID}
                answers.append(dataclasses.replace(answer, fields=fields))
        yield exchange, answers


def overruns(conversation):
    """First packet of a SEND that was longer than its receive -> bytes that were not too many."""
    found = {}
    first, length = None, 0
    for request, answers, is_taken in conversation.exchanges():
        if request.begins:
            first, length = request, 0
        refused = [each.syndrome for each in answers if not is_taken]
        if "SEND" in request.name and refused and refused[0] in (NAK_INVALID, NAK_OPERATION):
            found[first.number] = length + len(request.payload) - 1
        length += len(request.payload)
    return found


class Responder:
    """An RNIC of ours as a conversation found the recorded one."""

    def __init__(self, conversation):
        self.conversation = each = conversation
        self.rnic = BareRnic(each.responder, each.responder_mac, path_mtu=4096)
        kind = KINDS[each.service]
        self.qp = self.rnic.create_qp(kind)
        fields = (each.answers or each.requests)[0].fields
        self.rnic.to_rtr(
            self.qp,
            kind,
            address=address_vector(
                each.requester,
                each.requester_mac,
                traffic_class=fields.get("ip.dsfield", fields.get("ipv6.tclass")),
            ),
            peer_qp=each.requester_qp or 0,
            psn=each.first_psn,
            mtu=max(each.path_mtu, 256),
            qkey=each.requests[0].get("deth.q_key") or 0,
            rnr_timer=next((a.syndrome & 31 for a in each.answers if a.is_rnr_nak), 0),
        )
        self.overruns = overruns(each)
        regions, self.pokes = each.memory()
        self.regions = {region.key: region for region in regions}
        registered = {
            region.key: self.rnic.register(region.before, region.rights, region.iova)
            for region in regions
        }
        self.memory = {key: array for key, (array, _) in registered.items()}
        self.keys = {key: ours for key, (_, ours) in registered.items()}
        self.grh = GRH if each.service == "ud" else 0
        self.messages = each.messages()
        self.receives = []
        if each.service != "rc":  # nothing tells a peer that there is no receive
            most = max((message.length for message in self.messages), default=0)
            for _ in self.messages:
                self._post_receive(self.grh + most)

    def _post_receive(self, length):
        self.receives.append(self.rnic.post_receive(self.qp, length))

    def answers(self, exchange):
        """The frames with which it answers a recorded request."""
        for poke in self.pokes.get(exchange.request.number, []):
            at = poke.address - self.regions[poke.key].iova
            self.memory[poke.key][at : at + len(poke.data)] = np.frombuffer(poke.data, np.uint8)
        if self.conversation.service == "rc":
            self._provide(exchange)
        return self.rnic.answers(exchange.request.to(self.qp, self.keys))

    def _provide(self, exchange):
        """The receive that the recorded responder took for this request, if it did."""
        request = exchange.request
        for message in self.messages:
            if message.at is request:
                self._post_receive(len(message.payload or b""))
        if request.number in self.overruns:
            self._post_receive(self.overruns[request.number])


def as_we_would(recorded, ours, also=frozenset()):
    """The recorded frame with our values of the fields that may differ."""
    fields = _native.decode_frame(ours)
    assert isinstance(fields, dict), fields
    own = {name: fields[name] for name in {*MAY_DIFFER, *also} if name in fields}
    return frame_of(dict(recorded.fields) | own)


def name_of(conversation):
    first = conversation.requests[0]
    return f"{conversation.capture}-{conversation.service}-{first.number}"


# The MADs are tests/programs/rdmacm's.
REPLAYED = [
    each for each in itertools.chain.from_iterable(CONVERSATIONS.values()) if not each.is_management
]
REPLAYS = pytest.mark.parametrize("conversation", REPLAYED, ids=name_of)


@REPLAYS
def test_our_responder_gives_the_recorded_answers(conversation):
    responder = Responder(conversation)
    for exchange, recorded in as_specified(conversation.exchanges()):
        ours = responder.answers(exchange)
        assert len(ours) == len(recorded), exchange
        for answer, expected in zip(ours, recorded, strict=True):
            assert answer == as_we_would(expected, answer), exchange
    for key, region in responder.regions.items():
        assert responder.memory[key].tobytes() == region.after


@REPLAYS
def test_our_receives_get_what_the_recorded_ones_got(conversation):
    responder = Responder(conversation)
    for exchange in conversation.exchanges():
        responder.answers(exchange)
    completions = responder.rnic.completions()
    for done in completions[len(responder.messages) :]:
        assert done.status == IBV_WC_LOC_LEN_ERR
        assert responder.overruns
    count = len(completions) - len(responder.overruns)
    receives = zip(completions[:count], responder.messages, responder.receives, strict=False)
    assert count == len(responder.messages) == len(responder.receives) - len(responder.overruns)
    for done, message, memory in receives:
        assert done.status == IBV_WC_SUCCESS
        assert done.byte_len == responder.grh + message.length
        if message.payload is not None:
            assert memory[responder.grh : done.byte_len].tobytes() == message.payload
        immediate = bool(done.flags & IBV_WC_WITH_IMM)
        assert (done.immediate if immediate else None) == message.immediate
        if conversation.service == "ud":
            assert done.src_qp == message.source_qp
            frame = message.at.frame
            header = frame[frames.IP_AT : frames.layout(frame).udp_at]
            assert memory[: responder.grh].tobytes().endswith(header)
            assert done.flags & IBV_WC_GRH


# ---------------------------------------------------------------- our requester in its place


class Requester:
    """An RNIC of ours as a conversation found the recorded asker."""

    def __init__(self, conversation):
        self.conversation = each = conversation
        self.kind = KINDS[each.service]
        self.rnic = BareRnic(each.requester, each.requester_mac)
        self.qp = self.rnic.create_qp(self.kind)
        fields = each.requests[0].fields
        self.peer = address_vector(
            each.responder,
            each.responder_mac,
            traffic_class=fields.get("ip.dsfield", fields.get("ipv6.tclass")),
        )
        self.peer.hop_limit = fields.get("ip.ttl", fields.get("ipv6.hlim"))  # that is left there
        self.rnic.to_rtr(
            self.qp,
            self.kind,
            address=self.peer,
            peer_qp=each.responder_qp,
            mtu=each.path_mtu,
        )
        self.rnic.to_rts(self.qp, self.kind, psn=each.first_psn)

    def frames(self, work):
        """What it sends of a recorded work request, and the memory that a result goes to."""
        request = _native.SendRequest()
        request.opcode = opcode_of(work)
        request.send_flags = IBV_SEND_SIGNALED
        first = work.first
        request.address, request.remote_qpn = self.peer, self.conversation.responder_qp
        request.remote_qkey = first.get("deth.q_key") or 0
        request.remote_addr = first.get("reth.va") or first.get("atomiceth.va") or 0
        request.rkey = first.get("reth.r_key") or first.get("atomiceth.r_key") or 0
        request.imm_data = work.immediate or 0
        if request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP:
            request.compare_add = first.get("atomiceth.cmpdt")
            request.swap = first.get("atomiceth.swapdt")
        elif request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD:
            request.compare_add = first.get("atomiceth.swapdt")
        reads = request.opcode in RESULTS
        memory = self.rnic.post_send(
            self.qp, request, bytes(len(work.result)) if reads else work.data
        )
        return self.rnic.frames(), memory


RESULTS = (IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD)


def opcode_of(work):
    """Of the work request, by the name of its first packet."""
    name = work.first.name
    if "READ" in name:
        return IBV_WR_RDMA_READ
    if "CmpSwap" in name:
        return IBV_WR_ATOMIC_CMP_AND_SWP
    if "FetchAdd" in name:
        return IBV_WR_ATOMIC_FETCH_AND_ADD
    if "WRITE" in name:
        return IBV_WR_RDMA_WRITE if work.immediate is None else IBV_WR_RDMA_WRITE_WITH_IMM
    return IBV_WR_SEND if work.immediate is None else IBV_WR_SEND_WITH_IMM


# What is answered by a NAK or arrives with gaps does not tell what was asked for.
SMOOTH = [each for each in REPLAYED if each.is_smooth]


@pytest.mark.parametrize("conversation", SMOOTH, ids=name_of)
def test_our_requester_asks_as_the_recorded_one(conversation):
    requester = Requester(conversation)
    own = {IB + "deth.srcqp"} if conversation.service == "ud" else set()
    for work in conversation.work():
        ours, memory = requester.frames(work)
        assert len(ours) == len(work.packets), work.first
        for frame, expected in zip(ours, work.packets, strict=True):
            assert frame == as_we_would(expected, frame, own), expected
        for answer in work.answers:
            assert requester.rnic.answers(answer.to(requester.qp)) == []
        (done,) = requester.rnic.completions()
        assert done.status == IBV_WC_SUCCESS
        if opcode_of(work) in RESULTS:
            assert memory.tobytes() == work.result
