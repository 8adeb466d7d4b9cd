# SPDX-License-Identifier: GPL-2.0-or-later
"""What is refused, before anything is sent; and events of completion channels."""

import errno

import pytest

from softroce_lab import _native
from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS
from softroce_lab.transports.shift import (
    SEND_ONCE,
    Backup,
    LocalStore,
    Sender,
    ShiftQP,
)
from softroce_lab.transports.shift.rails import config
from softroce_lab.verbs import (
    PD,
    SRQ,
    Context,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPInitAttr,
    SendWR,
    SrqAttr,
    SrqInitAttr,
)
from softroce_lab.verbs.enums import (
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_INV,
)

ONCE_AND_INLINE = IBV_SEND_SIGNALED | IBV_SEND_INLINE | SEND_ONCE


def fall(rig):
    rig.cut(0)
    rig.ends[0].post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
    assert rig.until(lambda: rig.ends[0].poll() != [], 2 * DETECTION_NS)


def test_a_backup_on_the_same_nic(rig):
    context = rig.ends[0].context
    with pytest.raises(PyverbsUserError, match="same NIC"):
        Backup(context, context, LocalStore())
    with pytest.raises(PyverbsUserError, match="same NIC"):
        Backup(context, Context(rig.pairs[0].side(0)), LocalStore())


def test_path_mtus_that_differ(rig):
    small = config(0x0A010001)
    small.path_mtu = 1024
    pair = _native.Pair(small, config(0x0A010002), 1)
    with pytest.raises(PyverbsUserError, match=r"path MTUs differ: IBV_MTU_.* and IBV_MTU_1024"):
        Backup(rig.ends[0].context, Context(pair.side(0)), LocalStore())


def test_a_qp_that_can_have_no_backup(rig):
    end = rig.ends[0]
    with pytest.raises(PyverbsUserError, match="only a reliable connection"):
        ShiftQP(end.pd, QPInitAttr(IBV_QPT_UC, None, end.cq, end.cq), backup=end.backup)
    srq = SRQ(end.pd, SrqInitAttr(SrqAttr()))
    with pytest.raises(PyverbsUserError, match="SRQ"):
        ShiftQP(end.pd, QPInitAttr(IBV_QPT_RC, None, end.cq, end.cq, srq), backup=end.backup)
    with pytest.raises(PyverbsUserError, match="another context"):
        ShiftQP(PD(end.contexts[1]), QPInitAttr(IBV_QPT_RC, None, end.cq, end.cq),
                backup=end.backup)  # fmt: skip


@pytest.mark.parametrize("fallen", [False, True])
def test_a_request_that_no_backup_could_carry_out(rig, fallen):
    """RefusedError alike in both states, with the request that it is about; nothing is sent."""
    a = rig.ends[0]
    if fallen:
        fall(rig)
    sent = [pair.totals(0)["sent"] for pair in rig.pairs]
    for flags, opcode, code in (
        (ONCE_AND_INLINE, IBV_WR_RDMA_WRITE, errno.EINVAL),
        (IBV_SEND_SIGNALED, IBV_WR_SEND_WITH_INV, errno.EOPNOTSUPP),
    ):
        wr, bad = a.request(opcode, 8, 0, wr_id=5, flags=flags), SendWR(sg=[a_sge(a)], num_sge=1)
        with pytest.raises(PyverbsRDMAError) as caught:
            a.qp.post_send(wr, bad)
        assert caught.value.error_code == code
        assert bad.wr_id == 5
    assert [pair.totals(0)["sent"] for pair in rig.pairs] == sent


def a_sge(end):
    return end.request(IBV_WR_SEND, 8).sg_list[0]


def test_inline_bytes_are_those_of_the_post(rig):
    """Also of requests that move, and of requests that are held."""
    a, b = rig.ends
    rig.cut(0)
    flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE
    a.memory[:8] = 1
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=100, wr_id=1, flags=flags)
    a.memory[:8] = 2
    assert rig.until(lambda: a.qp.epoch, 2 * DETECTION_NS)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=200, wr_id=2, flags=flags)
    a.memory[:8] = 3
    rig.run(DETECTION_NS)
    assert [wc.wr_id for wc in a.poll()] == [1, 2]
    assert (b.memory[100:108] == 1).all()
    assert (b.memory[200:208] == 2).all()


def test_no_more_requests_are_held_than_the_queue_takes(rig):
    a = rig.ends[0]
    rig.cut(0)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, wr_id=1)
    rig.ends[1].backup.advance = lambda: None  # the handshake does not end
    assert rig.until(lambda: a.qp.epoch, 2 * DETECTION_NS)
    for number in range(2, 65):
        a.post(IBV_WR_RDMA_WRITE, 8, 0, wr_id=number)
    with pytest.raises(PyverbsRDMAError) as caught:
        a.post(IBV_WR_RDMA_WRITE, 8, 0, wr_id=65)
    assert caught.value.error_code == errno.ENOMEM


def test_both_ends_are_to_be_shift_qps(rig):
    """A peer without a backup is noticed when the QP is connected."""
    a, b = rig.ends
    qp = ShiftQP(a.pd, QPInitAttr(IBV_QPT_RC, None, a.cq, a.cq), backup=a.backup)
    attr = a.attr(b)
    attr.dest_qp_num = 77
    with pytest.raises(PyverbsUserError, match="has no backup in the key-value service"):
        qp.to_rts(attr)


@pytest.mark.parametrize("fallen", [False, True])
def test_a_program_that_puts_its_qp_in_error(rig, fallen):
    a, b = rig.ends
    if fallen:
        fall(rig)
    for wr_id in (7, 8):
        a.receive(8, 40000, wr_id=wr_id)
    a.qp.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    assert [(wc.wr_id, wc.status) for wc in a.poll()] == [
        (7, IBV_WC_WR_FLUSH_ERR), (8, IBV_WC_WR_FLUSH_ERR)
    ]  # fmt: skip
    assert a.qp.qp_state == IBV_QPS_ERR
    rig.run(DETECTION_NS)
    assert b.state is Sender.FAILED


def test_a_closed_qp_leaves_nothing_behind(rig):
    end = rig.ends[0]
    fall(rig)
    rig.run(1_000_000)
    end.qp.close()
    assert not end.backup.is_active
    end.backup.advance()
    assert end.backup.next_time_ns() is None
    end.mr.close()
    end.cq.close()
    end.pd.close()
