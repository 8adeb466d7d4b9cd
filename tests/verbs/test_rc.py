# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connections when something is not there: receives, peers, room for READs."""

import errno

import pytest

from softroce_lab import _native
from softroce_lab.verbs.enums import *
from tests.native.bare_verbs import BareRnic, address_vector
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES
from tests.verbs.sides import ALL_ACCESS, MILLISECOND_NS, SECOND_NS, Side, connected, run

CARRIED_BY = ("rc", "csa_ud", "irn")


def counter(side, name):
    return side.context.endpoint.counters()[name]


# ---------------------------------------------------------------- receiver not ready


@pytest.mark.parametrize(
    "opcode", [IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM], ids=lambda o: o.name
)
def test_what_needs_a_receive_waits_for_one(pair, contexts, opcode):
    alice, bob = connected(contexts, attr={"rnr_retry": 7})
    data = alice.fill()
    alice.post(opcode, bob, 3000, wr_id=1)
    run(pair)
    assert alice.ends() == bob.ends() == []
    assert counter(alice, "rnr_nak_retry_err") > 2
    bob.receive(3000, wr_id=2)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_SUCCESS)]
    assert bob.ends() == [(2, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[:3000]) == data[:3000]


@pytest.mark.only_rc
@pytest.mark.parametrize("retries", [0, 1, 3, 6])
def test_rnr_retries_are_counted(pair, contexts, retries):
    alice, bob = connected(contexts, attr={"rnr_retry": retries})
    alice.post(IBV_WR_SEND, bob, 8, wr_id=1)
    alice.post(IBV_WR_SEND, bob, 8, wr_id=2)
    run(pair)
    assert alice.ends() == [(1, IBV_WC_RNR_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
    assert alice.state == IBV_QPS_ERR
    assert bob.state == IBV_QPS_RTS
    assert counter(bob, "tx_rnr_nak") == retries + 1


def test_what_arrives_begins_the_count_of_rnr_retries_anew(pair, contexts):
    alice, bob = connected(contexts, attr={"rnr_retry": 1, "min_rnr_timer": 12})
    for number in range(3):
        alice.post(IBV_WR_SEND, bob, 8, wr_id=number)
        pair.run(pair.now_ns + MILLISECOND_NS // 10)
        bob.receive(8)
        run(pair)
        assert alice.ends() == [(number, IBV_WC_SUCCESS)]
    assert counter(bob, "tx_rnr_nak") == 3


@pytest.mark.only_rc
@pytest.mark.parametrize(
    ("code", "least_ms"), [(1, 0.01), (12, 0.64), (20, 10.24), (31, 491.52), (0, 655.36)]
)
def test_the_rnr_timer_is_the_receivers(pair, contexts, code, least_ms):
    """IBA 9.7.5.2.8, table 45."""
    alice, bob = connected(contexts, attr={"rnr_retry": 7, "min_rnr_timer": code})
    alice.post(IBV_WR_SEND, bob, 8)
    began_ns = pair.now_ns
    pair.run(began_ns + 1000)
    bob.receive(8)
    pair.run(began_ns + int(least_ms * MILLISECOND_NS) - 1)
    assert bob.ends() == []
    pair.run(began_ns + int(least_ms * MILLISECOND_NS) + 1000)
    assert bob.ends() == [(0, IBV_WC_SUCCESS)]


# ---------------------------------------------------------------- nobody answers


@pytest.mark.only_rc
@pytest.mark.parametrize("opcode", [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ])
@pytest.mark.parametrize("retries", [0, 1, 7])
def test_retries_are_counted(pair, contexts, opcode, retries):
    """IBA 9.9.2.1.1: after `retry_cnt` more tries the request fails, and the rest is flushed."""
    alice, bob = connected(contexts, attr={"retry_cnt": retries})
    pair.cable(0).down = True
    alice.post(opcode, bob, 8, wr_id=1)
    alice.post(opcode, bob, 8, wr_id=2)
    alice.receive(8, wr_id=3)
    began_ns = pair.now_ns
    run(pair, SECOND_NS)
    ends = alice.ends()
    assert ends[0] == (1, IBV_WC_RETRY_EXC_ERR)
    assert sorted(ends[1:]) == [(2, IBV_WC_WR_FLUSH_ERR), (3, IBV_WC_WR_FLUSH_ERR)]
    assert alice.state == IBV_QPS_ERR
    assert bob.state == IBV_QPS_RTS
    assert counter(alice, "local_ack_timeout_err") == retries + 1
    assert pair.totals(0)["sent"] == 2 * (retries + 1)
    assert pair.now_ns > began_ns


@pytest.mark.only_rc
def test_a_timeout_of_zero_waits_for_ever(pair, contexts):
    alice, bob = connected(contexts, attr={"timeout": 0})
    pair.cable(0).down = True
    alice.post(IBV_WR_RDMA_WRITE, bob, 8)
    run(pair, 1000 * SECOND_NS)
    assert alice.ends() == []
    assert alice.state == IBV_QPS_RTS


@pytest.mark.only_rc
def test_the_timeout_is_a_power_of_two_of_4_us(pair, contexts):
    """IBA 9.7.6.1.3: between the time and four times it."""
    alice, bob = connected(contexts, attr={"timeout": 14, "retry_cnt": 0})
    pair.cable(0).down = True
    alice.post(IBV_WR_RDMA_WRITE, bob, 8)
    nominal_ns = 4096 << 14
    pair.run(pair.now_ns + nominal_ns - 1)
    assert alice.ends() == []
    pair.run(pair.now_ns + 3 * nominal_ns + 1)
    assert alice.ends() == [(0, IBV_WC_RETRY_EXC_ERR)]


def test_a_link_that_comes_back_in_time_is_not_noticed(pair, contexts):
    alice, bob = connected(contexts, attr={"timeout": 10, "retry_cnt": 7})
    data = alice.fill()
    pair.cable(0).down = True
    alice.post(IBV_WR_RDMA_WRITE, bob, 5000)
    run(pair, 10 * MILLISECOND_NS)
    pair.cable(0).down = False
    run(pair, SECOND_NS)
    assert alice.ends() == [(0, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[:5000]) == data[:5000]


# ---------------------------------------------------------------- READs and atomics outstanding


@pytest.mark.only_rc
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_reads_are_outstanding_than_agreed(pair, contexts, limit):
    """IBA 9.7.4.1.3: those beyond wait at the requester."""
    alice, bob = connected(contexts, attr={"max_rd_atomic": limit, "max_dest_rd_atomic": limit})
    for which in range(2):
        pair.cable(which).delay_ns = 100_000
    for number in range(10):
        opcode = IBV_WR_RDMA_READ if number % 2 else IBV_WR_ATOMIC_FETCH_AND_ADD
        alice.post(opcode, bob, 8, number * 8, wr_id=number)
    pair.run(pair.now_ns + 1000)
    assert pair.totals(0)["sent"] == limit
    run(pair)
    assert alice.ends() == [(number, IBV_WC_SUCCESS) for number in range(10)]


@pytest.mark.parametrize("opcode", [IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD])
def test_with_room_for_no_reads_there_are_none(contexts, opcode):
    alice, bob = connected(contexts, attr={"max_rd_atomic": 0})
    refused(errno.EINVAL, lambda: alice.post(opcode, bob, 8))


def test_a_responder_without_room_for_reads_refuses_them(pair, contexts):
    alice, bob = connected(contexts, attr={"max_dest_rd_atomic": 0})
    alice.post(IBV_WR_RDMA_READ, bob, 8)
    run(pair)
    assert alice.ends() == [(0, IBV_WC_REM_INV_REQ_ERR)]
    assert bob.state == IBV_QPS_ERR


# ---------------------------------------------------------------- establishment


def test_the_first_request_establishes_the_connection(pair, contexts):
    """A peer in RTR hears of it (IBA 11.6.3.2), and can answer once it is in RTS."""
    alice, bob = (Side(context) for context in contexts)
    bob.qp.to_rtr(bob.attr(alice))
    alice.qp.to_rts(alice.attr(bob))
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    run(pair)
    event = bob.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_COMM_EST, bob.qp)
    assert bob.next_event() is None
    assert alice.ends() == bob.ends() == [(0, IBV_WC_SUCCESS)]


# ---------------------------------------------------------------- the responder, frame by frame

READ, FETCH_ADD, WRITE = IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE
NAK_SEQUENCE = 0x60


def requester(*opcodes):
    """Both ends, what makes the first post a request, and frames that the other has not seen."""
    ends = [BareRnic(address, mac) for mac, address in enumerate(ADDRESSES, start=1)]
    qps = [end.create_qp(IBV_QPT_RC) for end in ends]
    for which, end in enumerate(ends):
        to = address_vector(ADDRESSES[1 - which], 2 - which)
        end.to_rtr(qps[which], IBV_QPT_RC, address=to, peer_qp=qps[1 - which])
        end.to_rts(qps[which], IBV_QPT_RC)
    memory, key = ends[1].register(64, ALL_ACCESS)

    def post(opcode):
        request = _native.SendRequest()
        request.opcode, request.rkey, request.remote_addr = opcode, key, memory.ctypes.data
        if opcode == IBV_WR_SEND:
            ends[1].post_receive(qps[1], 8)
        ends[0].post_send(qps[0], request, bytes(8))
        return ends[0].frames()

    return *ends, post, [frame for opcode in opcodes for frame in post(opcode)]


def responder_and_requests(*opcodes):
    """An RNIC, and frames of a peer's requests for its memory, which it has not seen."""
    _, bob, _, frames = requester(*opcodes)
    return bob, frames


def changed(frame, **fields):
    headers = dict(_native.decode_frame(frame))
    return bytes(_native.encode_frame(headers | {f"infiniband.{k}": v for k, v in fields.items()}))


@pytest.mark.parametrize("first", [FETCH_ADD, READ])
def test_a_duplicate_of_another_kind_is_not_answered(first):
    """A READ with the PSN of an atomic, and the reverse (IBA 9.7.5.1.3)."""
    bob, (executed, other) = responder_and_requests(
        first, READ if first == FETCH_ADD else FETCH_ADD
    )
    assert len(bob.answers(executed)) == 1
    assert len(bob.answers(executed)) == 1  # of its own kind it is
    psn = _native.decode_frame(executed)["infiniband.bth.psn"]
    for nothing in (False, True):  # what was kept of an atomic has no memory
        fields = {"bth.psn": psn}
        if nothing and first == FETCH_ADD:
            fields |= {"reth.r_key": 0, "reth.va": 0, "reth.dmalen": 0}
        assert bob.answers(changed(other, **fields)) == []


@pytest.mark.parametrize("then", [0, 1])
def test_a_nak_that_waits_is_superseded_by_what_is_newer_alone(then):
    """IBA 9.7.5.1.2: a NAK acknowledges what was before it, so an older duplicate takes nothing."""
    bob, requests = responder_and_requests(WRITE, WRITE, WRITE)
    bob.answers(requests[0])
    for number in (2, then):  # the second one is missed, and comes or does not
        bob.endpoint.handle_frame(requests[number], 0)
    (answer,) = map(_native.decode_frame, bob.frames())
    assert (answer["infiniband.aeth.syndrome"] == NAK_SEQUENCE) is (then == 0)
    psn = _native.decode_frame(requests[1])["infiniband.bth.psn"]
    assert answer["infiniband.bth.psn"] == psn


def test_each_gap_is_told_of_once():
    bob, requests = responder_and_requests(*[WRITE] * 6)
    told = []
    for number in (0, 2, 3, 1, 2, 4, 3, 5):  # 1 is missed, then 3
        answers = map(_native.decode_frame, bob.answers(requests[number]))
        told.append([each["infiniband.aeth.syndrome"] == NAK_SEQUENCE for each in answers])
    assert told == [[False], [True], [], [False], [False], [True], [False], [True]]


def test_sends_wait_for_credits():
    """IBA 9.7.7.2: as many as the peer has receives; then it says that it does not count them."""
    alice, bob, post, requests = requester(*[IBV_WR_SEND] * 3)
    answers = [bob.answers(frame)[0] for frame in requests]
    assert alice.answers(changed(answers[0], **{"aeth.syndrome": 0})) == []
    assert post(IBV_WR_SEND) == []
    assert len(post(WRITE)) == 0  # behind it
    assert len(alice.answers(answers[1])) == 2
