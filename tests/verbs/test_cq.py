# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion queues: order, polling, and what happens when one is full."""

import errno

import pytest

from softroce_lab.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    PyverbsRDMAError,
    QPAttr,
    QPInitAttr,
    RecvWR,
)
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_EVENT_CQ_ERR,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_WC_RECV,
    IBV_WC_SEND,
)
from tests.verbs.conftest import QKEY, ud_resources

MILLISECOND_NS = 1_000_000


def run(pair):
    pair.run(pair.now_ns + MILLISECOND_NS)


@pytest.mark.parametrize("cqe", [0, -1])
def test_a_queue_without_entries_is_refused(context, cqe):
    with pytest.raises(PyverbsRDMAError) as caught:
        CQ(context, cqe)
    assert caught.value.error_code == errno.EINVAL


def test_a_new_queue_is_empty(context):
    cq = CQ(context, 4)
    assert cq.poll(8) == (0, [])
    assert "4" in str(cq)


def test_polling_takes_as_many_as_asked_for_in_order(pair, talkers):
    alice, bob = talkers
    for wr_id in range(10):
        alice.send(bob, 8, wr_id=wr_id)
    run(pair)
    polled = []
    for most in (1, 0, 3, 16, 1):
        count, completions = alice.cq.poll(most)
        assert count == len(completions) <= most
        polled.append([each.wr_id for each in completions])
    assert polled == [[0], [], [1, 2, 3], [4, 5, 6, 7, 8, 9], []]


def test_by_default_one_is_polled(pair, talkers):
    alice, bob = talkers
    alice.send(bob, 8)
    alice.send(bob, 8)
    run(pair)
    assert [alice.cq.poll()[0] for _ in range(3)] == [1, 1, 0]


def test_sends_and_receives_may_have_queues_of_their_own(pair, contexts):
    alice, bob = (ud_resources(context) for context in contexts)
    sends, receives = CQ(bob.context, 4), CQ(bob.context, 4)
    bob.qp = QP(bob.pd, QPInitAttr(scq=sends, rcq=receives), QPAttr(qkey=QKEY))
    bob.receive(100)
    alice.send(bob, 8)
    bob.send(alice, 8)
    run(pair)
    assert [each.opcode for each in sends.poll(4)[1]] == [IBV_WC_SEND]
    assert [each.opcode for each in receives.poll(4)[1]] == [IBV_WC_RECV]


def test_queue_pairs_may_share_one(context):
    cq = CQ(context, 4)
    pd = PD(context)
    mr = MR(pd, 64, IBV_ACCESS_LOCAL_WRITE)
    qps = [QP(pd, QPInitAttr(scq=cq, rcq=cq), QPAttr(qkey=QKEY)) for _ in range(3)]
    for qp in qps:
        qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]))
        qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    assert [each.qp_num for each in cq.poll(8)[1]] == [qp.qp_num for qp in qps]


def test_a_queue_that_is_full_is_in_error_and_so_are_its_queue_pairs(pair, contexts):
    """IBA 11.6.3.1: what does not fit is lost, and nothing completes there any more."""
    alice, bob = (ud_resources(context) for context in contexts)
    small = CQ(bob.context, 2)
    bob.qp = QP(bob.pd, QPInitAttr(scq=bob.cq, rcq=small), QPAttr(qkey=QKEY))
    for wr_id in range(4):
        bob.receive(100, wr_id=wr_id)
        alice.send(bob, 8)
    run(pair)
    assert [each.wr_id for each in small.poll(8)[1]] == [0, 1]
    event = bob.context.get_async_event(0)
    assert (event.event_type, event.element) == (IBV_EVENT_CQ_ERR, small)
    assert bob.qp.qp_state == IBV_QPS_ERR
    assert small.poll(8) == (0, [])


def test_completions_outlive_their_queue_pair(pair, talkers):
    alice, bob = talkers
    alice.send(bob, 8, wr_id=5)
    run(pair)
    alice.qp.close()
    assert alice.cq.poll()[1][0].wr_id == 5


def test_closing_a_queue_closes_its_queue_pairs(talkers):
    alice, _ = talkers
    alice.cq.close()
    assert alice.qp.closed
    assert not alice.mr.closed
