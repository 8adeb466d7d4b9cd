# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program sees of a ShiftQP that has moved is what it sees of a QP: completions, events."""

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS
from softroce_lab.transports.shift import Sender, ShiftQP
from softroce_lab.verbs import CQ, SGE, CompChannel, QPInitAttr, RecvWR
from softroce_lab.verbs.enums import (
    IBV_QPT_RC,
    IBV_WC_RDMA_WRITE,
    IBV_WC_SEND,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
)

AFTER_NS = 2 * DETECTION_NS


def another(rig, cqs):
    """One more connection of both ends: its numbers differ from NIC to NIC."""
    a, b = rig.ends
    qps = [
        ShiftQP(end.pd, QPInitAttr(IBV_QPT_RC, None, cq, cq), backup=end.backup)
        for end, cq in zip(rig.ends, cqs, strict=True)
    ]
    for qp, end, other, peer in ((qps[0], a, b, qps[1]), (qps[1], b, a, qps[0])):
        attr = end.attr(other)
        attr.dest_qp_num = peer.qp_num
        qp.to_rts(attr)
    return qps


def test_completions_have_the_number_of_the_qp_that_the_program_made(rig):
    a, b = rig.ends
    c, d = another(rig, [a.cq, b.cq])
    assert c.twin_qp_num not in (c.qp_num, a.qp.qp_num)
    rig.cut()
    for wr_id in (1, 2):
        wr = a.request(IBV_WR_SEND, 8, 0, wr_id=wr_id)
        d.post_recv(_receive(b, wr_id))
        c.post_send(wr)
        rig.run(AFTER_NS)
        assert [(wc.wr_id, wc.qp_num, wc.status) for wc in a.poll()] == [
            (wr_id, c.qp_num, IBV_WC_SUCCESS)
        ]
        assert [(wc.wr_id, wc.qp_num) for wc in b.poll()] == [(wr_id, d.qp_num)]


def _receive(end, wr_id):
    return RecvWR(wr_id, 1, [SGE(end.mr.buf + 40000, 64, end.mr.lkey)])


def test_what_the_peer_had_executed_completes_as_what_it_was(rig):
    """No NIC makes these completions."""
    a, b = rig.ends
    rig.pairs[0].cable(1).down = True
    for wr_id in (7, 8):
        b.receive(64, 40000, wr_id=wr_id)
    for wr_id, opcode in enumerate((IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND)):
        a.post(opcode, 8, 0, to=8, wr_id=wr_id)
    rig.run(AFTER_NS)
    assert a.backup.events[-1].resubmitted == 0
    assert [(wc.wr_id, wc.status, wc.opcode) for wc in a.poll()] == [
        (0, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE),
        (1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE),
        (2, IBV_WC_SUCCESS, IBV_WC_SEND),
    ]


def test_they_ring_the_channel_too(rig):
    """An event that was asked for before, and one of what waits already."""
    a, b = rig.ends
    channel = CompChannel(a.context)
    cq = CQ(a.context, 64, channel=channel)
    c, d = another(rig, [cq, b.cq])
    cq.req_notify()
    rig.pairs[0].cable(1).down = True
    d.post_recv(_receive(b, 7))
    c.post_send(a.request(IBV_WR_SEND, 8, 0, wr_id=1))
    rig.run(AFTER_NS)
    channel.get_cq_event(cq, timeout_s=0.1)
    cq.req_notify()
    channel.get_cq_event(cq, timeout_s=0.1)
    assert [(wc.wr_id, wc.status) for wc in cq.poll(9)[1]] == [(1, IBV_WC_SUCCESS)]


def test_a_full_queue_has_room_for_the_fence(rig):
    """As many requests in flight as the queue takes, while the peer drains for the failback."""
    a, b = rig.ends
    rig.cut()
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
    rig.run(AFTER_NS)
    rig.cut(down=False)
    assert rig.until(lambda: all(e.state is Sender.WAIT_SIGNALED for e in rig.ends), 2_000_000)
    b.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=2)
    assert (a.state, b.state) == (Sender.WAIT_SIGNALED, Sender.WAIT_DRAINED)
    for number in range(64):
        a.memory[100 + number] = number + 1
        a.post(IBV_WR_SEND, 1, 100 + number, flags=0, wr_id=3)
    assert a.qp.native.waiting_requests == 0  # all of them are in flight, until there are receives
    assert rig.until(lambda: a.state is Sender.WAIT_DRAINED, 100_000)
    for number in range(64):
        b.receive(1, 1000 + number)
    assert rig.until(rig.is_default, 1_000_000)
    assert b.memory[1000:1064].tolist() == list(range(1, 65))
