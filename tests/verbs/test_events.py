# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion queues: polled, full, resized; their events: solicited, moderated, by a channel."""

import errno
import select
import threading
import time

import pytest

from softroce_lab.verbs import (
    CQ,
    PD,
    QP,
    CompChannel,
    ModerateCQ,
    ModifyCQAttr,
    PyverbsRDMAError,
    QPAttr,
    QPInitAttr,
    RecvWR,
)
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.sides import MILLISECOND_NS, Side, connect, connected, run


@pytest.fixture
def channel(contexts):
    return CompChannel(contexts[1])


@pytest.fixture
def sides(contexts, channel):
    """The second one's completions can ring."""
    made = Side(contexts[0]), Side(contexts[1], channel=channel)
    connect(*made)
    return made


def rings(channel, cq):
    """Whether an event waits; takes it."""
    readable = bool(select.select([channel.fd], [], [], 0)[0])
    if readable:
        channel.get_cq_event(cq, 0)
    else:
        refused(errno.ETIMEDOUT, channel.get_cq_event, cq, 0)
    return readable


def send(pair, alice, bob, opcode=IBV_WR_SEND, flags=0):
    bob.receive(64)
    alice.post(opcode, bob, 8, to=1024, send_flags=IBV_SEND_SIGNALED | flags)
    run(pair)


def test_one_event_for_each_time_it_is_asked_for(pair, sides, channel):
    alice, bob = sides
    send(pair, alice, bob)
    assert not rings(channel, bob.cq)
    bob.cq.req_notify()
    assert not rings(channel, bob.cq)  # what was there already does not ring
    send(pair, alice, bob)
    send(pair, alice, bob)
    assert rings(channel, bob.cq)
    assert not rings(channel, bob.cq)
    assert len(bob.poll()) == 3
    bob.cq.ack_events(1)


@pytest.mark.parametrize("opcode", [IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM])
def test_solicited_events(pair, sides, channel, opcode):
    alice, bob = sides
    bob.cq.req_notify(solicited_only=True)
    send(pair, alice, bob, opcode)
    assert not rings(channel, bob.cq)
    send(pair, alice, bob, opcode, IBV_SEND_SOLICITED)
    assert rings(channel, bob.cq)


def test_an_error_rings_though_nobody_solicited_it(pair, sides, channel):
    alice, bob = sides
    bob.cq.req_notify(solicited_only=True)
    bob.post(IBV_WR_RDMA_WRITE, alice, 8)
    run(pair)
    assert not rings(channel, bob.cq)
    bob.post(IBV_WR_RDMA_WRITE, alice, 8, rkey=alice.mr.rkey + 1)
    run(pair)
    assert rings(channel, bob.cq)
    assert bob.ends()[-1][1] == IBV_WC_REM_ACCESS_ERR
    event = alice.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_QP_ACCESS_ERR, alice.qp)


def test_asking_for_less_does_not_take_back_what_was_asked_for(pair, sides, channel):
    alice, bob = sides
    bob.cq.req_notify()
    bob.cq.req_notify(solicited_only=True)
    send(pair, alice, bob)
    assert rings(channel, bob.cq)


def test_moderation_by_count(pair, sides, channel):
    alice, bob = sides
    bob.cq.modify(ModifyCQAttr(moderate=ModerateCQ(cq_count=3, cq_period=65535)))
    bob.cq.req_notify()
    for wanted in (False, False, True):
        bob.receive(64)
        alice.post(IBV_WR_SEND, bob, 8)
        pair.run(pair.now_ns + MILLISECOND_NS)
        assert rings(channel, bob.cq) is wanted


def test_moderation_by_time(pair, sides, channel):
    alice, bob = sides
    bob.cq.modify(ModifyCQAttr(moderate=ModerateCQ(cq_count=100, cq_period=2000)))
    bob.cq.req_notify()
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    pair.run(pair.now_ns + MILLISECOND_NS)
    assert not rings(channel, bob.cq)
    pair.run(pair.now_ns + 2 * MILLISECOND_NS)
    assert rings(channel, bob.cq)
    bob.cq.modify(ModifyCQAttr())  # no moderation
    bob.cq.req_notify()
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    pair.run(pair.now_ns + MILLISECOND_NS)
    assert rings(channel, bob.cq)


@pytest.mark.parametrize(
    ("attr", "error"),
    [
        (ModifyCQAttr(attr_mask=2), PyverbsRDMAError),
        (ModifyCQAttr(moderate=ModerateCQ(1 << 16, 0)), OverflowError),
        (ModifyCQAttr(moderate=ModerateCQ(0, -1)), OverflowError),
        (ModifyCQAttr(moderate=None), TypeError),
        (None, TypeError),
    ],
)
def test_moderation_that_cannot_be(sides, attr, error):
    with pytest.raises(error):
        sides[1].cq.modify(attr)


def test_queues_share_a_channel(pair, contexts, sides, channel):
    alice, bob = sides
    other = CQ(contexts[1], 8, channel=channel)
    bob.cq.req_notify()
    send(pair, alice, bob)
    with pytest.raises(PyverbsRDMAError, match="unexpected CQ"):
        channel.get_cq_event(other, 0)
    bob.cq.req_notify()
    send(pair, alice, bob)
    bob.cq.close()  # and what it told is forgotten
    assert not rings(channel, other)


def test_a_wait_ends_when_something_completes(pair, sides, channel):
    alice, bob = sides
    bob.cq.req_notify()
    bob.receive(64)
    alice.post(IBV_WR_SEND, bob, 8)
    waited = []

    def wait():
        channel.get_cq_event(bob.cq, 60)
        waited.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    run(pair)
    waiter.join(60)
    assert waited


def test_a_wait_is_bounded(sides, channel):
    began = time.monotonic()
    refused(errno.ETIMEDOUT, channel.get_cq_event, sides[1].cq, 0.05)
    refused(errno.ETIMEDOUT, sides[1].context.get_async_event, 0.05)
    assert 0.1 <= time.monotonic() - began < 60


def test_a_channel_is_of_the_queues_context(contexts, channel):
    refused(errno.EINVAL, lambda: CQ(contexts[0], 8, channel=channel))
    refused(errno.EINVAL, lambda: CQ(contexts[1], 8, channel=channel, comp_vector=1))


def test_closing_a_channel_closes_its_queues(sides, channel):
    bob = sides[1]
    assert "FD" in str(channel)
    channel.close()
    assert bob.cq.closed
    assert bob.qp.closed
    refused(errno.EINVAL, channel.get_cq_event, bob.cq)


# ---------------------------------------------------------------- sizes of queues


def test_a_queue_can_grow_and_shrink(pair, sides):
    alice, bob = sides
    for _ in range(4):
        send(pair, alice, bob)
    refused(errno.EINVAL, bob.cq.resize, 3)
    assert bob.cq.cqe == 256
    bob.cq.resize(4)
    assert bob.cq.cqe == 4
    bob.cq.resize(5)
    send(pair, alice, bob)
    assert len(bob.poll()) == 5


@pytest.mark.parametrize("cqe", [0, -1, (1 << 22) + 1, 1 << 80])
def test_sizes_that_a_queue_cannot_have(contexts, sides, cqe):
    refused(errno.EINVAL, CQ, contexts[0], cqe)
    refused(errno.EINVAL, sides[1].cq.resize, cqe)


def test_events_of_what_is_closed_are_nobodys(pair, sides):
    alice, bob = sides
    bob.post(IBV_WR_RDMA_WRITE, alice, 8, rkey=alice.mr.rkey + 1)
    run(pair)
    alice.qp.close()
    assert alice.next_event() is None


# ---------------------------------------------------------------- polling


def test_polling_takes_as_many_as_asked_for_in_order(pair, sides):
    alice, bob = sides
    for wr_id in range(12):
        alice.post(IBV_WR_RDMA_WRITE, bob, 8, wr_id=wr_id)
    run(pair)
    assert [each.wr_id for each in alice.cq.poll()[1]] == [0]
    polled = []
    for most in (1, 0, 3, 16, 1):
        count, completions = alice.cq.poll(most)
        assert count == len(completions) <= most
        polled.append([each.wr_id for each in completions])
    assert polled == [[1], [], [2, 3, 4], list(range(5, 12)), []]
    alice.post(IBV_WR_RDMA_WRITE, bob, 8, wr_id=12)
    run(pair)
    alice.qp.close()  # completions outlive it
    assert alice.ends() == [(12, IBV_WC_SUCCESS)]
    assert "256" in str(alice.cq)


def test_sends_and_receives_may_have_queues_that_queue_pairs_share(contexts):
    context = contexts[0]
    pd = PD(context)
    sends, receives = CQ(context, 8), CQ(context, 8)
    sides = [Side(context, IBV_QPT_UD, pd=pd) for _ in range(3)]
    qps = [QP(pd, QPInitAttr(scq=sends, rcq=receives), QPAttr(qkey=1)) for _ in sides]
    for qp, side in zip(qps, sides, strict=True):
        qp.post_recv(RecvWR(num_sge=1, sg=[side.sge(64)]))
        qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    assert [each.qp_num for each in receives.poll(8)[1]] == [qp.qp_num for qp in qps]
    assert sends.poll(8) == (0, [])
    receives.close()
    assert all(qp.closed for qp in qps)
    assert not sends.closed


def test_a_queue_that_is_full_is_in_error_and_so_are_its_queue_pairs(pair, contexts):
    """IBA 11.6.3.1: what does not fit is lost, and nothing completes there any more."""
    alice, bob = connected(contexts, IBV_QPT_UD, cqe=2)
    for wr_id in range(4):
        bob.receive(100, wr_id=wr_id)
        alice.post(IBV_WR_SEND, bob, 8, send_flags=0)
    run(pair)
    assert [each.wr_id for each in bob.poll()] == [0, 1]
    event = bob.next_event()
    assert (event.event_type, event.element) == (IBV_EVENT_CQ_ERR, bob.cq)
    assert bob.state == IBV_QPS_ERR
    assert bob.poll() == []
