# SPDX-License-Identifier: GPL-2.0-or-later
"""Shared receive queues: one pool of receives for many queue pairs, and its limit."""

import errno

import pytest

from softroce_lab.verbs import (
    PD,
    SGE,
    SRQ,
    QPAttr,
    RecvWR,
    SrqAttr,
    SrqInitAttr,
)
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.sides import SERVICES, Side, connect, run

CARRIED_BY = ("rc", "csa_ud", "irn")


@pytest.fixture
def srq(pd):
    return SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8, max_sge=2)))


@pytest.fixture
def sharing(contexts, pd, srq):
    """Two pairs of sides; those on the first context share the queue."""
    pairs = []
    for service in (SERVICES[0], SERVICES[0]):
        bob = Side(contexts[0], service, srq=srq, pd=pd)
        alice = Side(contexts[1], service)
        connect(alice, bob)
        pairs.append((alice, bob))
    return pairs


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_message_takes_a_shared_receive(pair, contexts, pd, srq, service):
    bob = Side(contexts[0], service, srq=srq, pd=pd)
    alice = Side(contexts[1], service)
    connect(alice, bob)
    data = alice.fill()
    bob.receive(1000, wr_id=9, srq=srq)
    alice.post(IBV_WR_SEND, bob, 1000)
    run(pair)
    assert bob.ends() == [(9, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[bob.head : bob.head + 1000]) == data[:1000]


def test_receives_are_of_the_shared_queues_domain(pair, contexts, pd, srq):
    bob, alice = Side(contexts[0], srq=srq), Side(contexts[1])
    connect(alice, bob)
    data = alice.fill()
    place = Side(contexts[0], pd=pd)
    place.receive(64, srq=srq)
    alice.post(IBV_WR_SEND, bob, 64)
    run(pair)
    assert bob.ends() == [(0, IBV_WC_SUCCESS)]
    assert bytes(place.memory[:64]) == data[:64]


def test_queue_pairs_take_in_the_order_posted(pair, sharing, srq):
    (alice, bob), (carol, dora) = sharing
    for number in range(4):
        bob.receive(64, number * 64, wr_id=number, srq=srq)
    for sender, receiver in ((alice, bob), (carol, dora), (carol, dora), (alice, bob)):
        sender.post(IBV_WR_SEND, receiver, 8)
        run(pair)
    assert [wr_id for wr_id, _ in bob.ends()] == [0, 3]
    assert [wr_id for wr_id, _ in dora.ends()] == [1, 2]


def test_an_immediate_of_a_write_takes_one_too(pair, sharing, srq):
    (alice, bob), _ = sharing
    bob.receive(0, wr_id=5, srq=srq)
    alice.post(IBV_WR_RDMA_WRITE_WITH_IMM, bob, 8, to=100, imm_data=1)
    run(pair)
    assert bob.ends() == [(5, IBV_WC_SUCCESS)]


def test_an_empty_queue_is_not_ready(pair, sharing, srq):
    (alice, bob), _ = sharing
    alice.post(IBV_WR_SEND, bob, 8)
    pair.run(pair.now_ns + 1000)
    bob.receive(64, srq=srq)
    run(pair)
    assert alice.ends() == bob.ends() == [(0, IBV_WC_SUCCESS)]
    assert alice.context.endpoint.counters()["rnr_nak_retry_err"] >= 1


def test_the_limit_is_told_once(pair, sharing, srq):
    (alice, bob), _ = sharing
    for _ in range(6):
        bob.receive(64, srq=srq)
    srq.modify(SrqAttr(srq_limit=4), IBV_SRQ_LIMIT)
    assert srq.query().srq_limit == 4
    for left in (5, 4):
        alice.post(IBV_WR_SEND, bob, 8)
        run(pair)
        assert bob.next_event() is None, left
    for _ in range(2):
        alice.post(IBV_WR_SEND, bob, 8)
    run(pair)
    event = bob.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_SRQ_LIMIT_REACHED, srq)
    assert bob.next_event() is None
    assert srq.query().srq_limit == 0


def test_receives_stay_when_a_queue_pair_goes(pair, sharing, srq):
    (alice, bob), (carol, dora) = sharing
    bob.receive(64, wr_id=7, srq=srq)
    bob.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    event = bob.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_QP_LAST_WQE_REACHED, bob.qp)
    assert bob.ends() == []
    carol.post(IBV_WR_SEND, dora, 8)
    run(pair)
    assert dora.ends() == [(7, IBV_WC_SUCCESS)]
    alice.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)


def test_a_queue_pair_with_a_shared_queue_has_none_of_its_own(sharing):
    (_, bob), _ = sharing
    refused(errno.EINVAL, bob.receive, 64)


def test_sizes(srq, pd, context):
    with Side(context, pd=pd).mr as mr:
        element = SGE(mr.buf, 8, mr.lkey)
        for number in range(8):
            srq.post_recv(RecvWR(number, 1, [element]))
        bad = RecvWR(0, 1, [element])
        refused(errno.ENOMEM, srq.post_recv, RecvWR(8, 1, [element]), bad)
        assert bad.wr_id == 8
        refused(errno.EINVAL, srq.post_recv, RecvWR(9, 3, [element] * 3))
        refused(errno.EINVAL, srq.modify, SrqAttr(max_wr=7), IBV_SRQ_MAX_WR)
        srq.modify(SrqAttr(max_wr=9), IBV_SRQ_MAX_WR)
        srq.post_recv(RecvWR(8, 1, [element]))
    assert srq.query() == SrqAttr(9, 2, 0)
    assert srq.get_srq_num() > 0
    assert str(srq.number) in str(srq)


@pytest.mark.parametrize(
    "attr",
    [
        SrqAttr(max_wr=0),
        SrqAttr(max_wr=(1 << 15) + 1),
        SrqAttr(max_wr=(1 << 32) - 1),
        SrqAttr(max_sge=33),
    ],
)
def test_what_a_queue_cannot_be_made_of(pd, attr):
    refused(errno.EINVAL, lambda: SRQ(pd, SrqInitAttr(attr)))


@pytest.mark.parametrize(
    ("attr", "mask"),
    [
        (SrqAttr(srq_limit=9), IBV_SRQ_LIMIT),
        (SrqAttr(max_wr=0), IBV_SRQ_MAX_WR),
        (SrqAttr(max_wr=1 << 20), IBV_SRQ_MAX_WR),
        (SrqAttr(), 4),
    ],
)
def test_modifications_that_are_refused(srq, attr, mask):
    refused(errno.EINVAL, srq.modify, attr, mask)
    assert srq.query() == SrqAttr(8, 2, 0)


def test_closing(contexts, pd, srq):
    """The queue's queue pairs go first; a domain closes it before the regions."""
    bob = Side(contexts[0], srq=srq, pd=pd)
    refused(errno.EINVAL, lambda: Side(contexts[1], srq=srq))
    srq.close()
    assert bob.qp.closed
    for call in (srq.query, srq.get_srq_num, lambda: bob.receive(8, srq=srq)):
        refused(errno.EINVAL, call)
    refused(errno.EINVAL, lambda: Side(contexts[0], srq=srq, pd=pd))
    other = SRQ(pd, SrqInitAttr(SrqAttr()))
    pd.close()
    assert other.closed
    refused(errno.EINVAL, SRQ, pd, SrqInitAttr(SrqAttr()))
    assert not PD(contexts[0]).closed
